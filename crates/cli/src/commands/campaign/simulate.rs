//! `tracewise campaign simulate`

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context, bail};
use archive::Archive;
use campaign::simulate::model::Model;
use campaign::simulate::schedule::ClusterSettings;
use campaign::simulate::{Streamed, into_archive, recorded_model, stream};
use report::text::{show_bytes, show_count};
use serde_json::json;
use workload::{Label, Millis, Mode, NodeReading, Owner, Timestamp};

use crate::args::SimulateArgs;
use crate::commands::stop_on_ctrl_c;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;
use crate::times::show_time;

/// A Monday.
const START: Timestamp = Timestamp::from_seconds(1_767_571_200);
const FIRST_JOB: u64 = 1_000;
/// Nodes that a terminal has lines for.
const MOST_LINES: usize = 24;

pub fn run(args: &SimulateArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let model = match &args.model {
        None => recorded_model()?,
        Some(file) => {
            let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
            Model::from_json(&text).map_err(|reason| anyhow::anyhow!("{}: {reason}", file.display()))?
        }
    };
    if !(args.hours > 0.0 && args.hours <= 10_000.0) {
        bail!("--hours lies between 0 and 10000");
    }
    if !(0.001..=1e6).contains(&args.speed) {
        bail!("--speed lies between 0.001 and 1000000");
    }
    let now = Timestamp::from(SystemTime::now()).floor(Millis::SECOND);
    let start = args.start.unwrap_or(if args.live { now } else { START });
    let settings = ClusterSettings {
        n_nodes: args.nodes,
        threads_a_node: args.threads,
        seconds: (args.hours * 3_600.0).round() as u64,
        campaigns: ClusterSettings::campaigns(&args.campaigns.0),
        seed: args.seed,
        load: args.load,
        start,
        origin: start,
        first_job: FIRST_JOB,
    };
    let address = args.into.as_deref().unwrap_or(&config.archive.address);
    let archive = Archive::open_or_create(address, &config.archive_settings())?;
    if args.live {
        return run_live(args, &settings, &model, &archive);
    }
    let (progress, begun) = (Progress::new("simulating"), std::time::Instant::now());
    let (report, labels) =
        into_archive(&settings, &model, &archive, |done, total| progress.update(done, total))?;
    drop(progress);
    if args.json {
        let kinds = count(&labels).into_iter().map(|((_, kind), count)| (kind, count));
        let kinds = kinds.fold(BTreeMap::new(), |mut all: BTreeMap<String, usize>, (kind, count)| {
            *all.entry(kind).or_default() += count;
            all
        });
        print_json(
            &json!({ "archive": address, "seed": args.seed, "jobs": labels.len(), "kinds": kinds, "load": report }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    show_counts(&settings, &labels)?;
    print(&format!(
        "\n{address}: {} readings of {} nodes from {} to {}, {}, made in {:.1} s",
        show_count(report.readings),
        report.nodes,
        report.first.map(show_time).unwrap_or_default(),
        report.last.map(show_time).unwrap_or_default(),
        show_bytes(report.bytes),
        begun.elapsed().as_secs_f64(),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// How many jobs of each kind each campaign has.
fn show_counts(settings: &ClusterSettings, labels: &[Label]) -> anyhow::Result<()> {
    let counts = count(labels);
    let kinds: BTreeSet<&String> = counts.keys().map(|(_, kind)| kind).collect();
    let campaigns: Vec<&String> = settings.campaigns.iter().map(|(name, _)| name).collect();
    let header: Vec<String> = campaigns.iter().map(|name| format!(">{}", name.to_uppercase())).collect();
    let header: Vec<&str> = std::iter::once("JOBS OF").chain(header.iter().map(String::as_str)).collect();
    let row = |kind: &&String| {
        let of_campaign = |name: &&String| {
            let count = counts.get(&((*name).clone(), (*kind).clone()));
            count.map_or_else(|| "–".into(), ToString::to_string)
        };
        std::iter::once((*kind).clone()).chain(campaigns.iter().map(of_campaign)).collect()
    };
    print_table(&header, &kinds.iter().map(row).collect::<Vec<_>>())
}

fn count(labels: &[Label]) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for label in labels {
        *counts.entry((label.campaign.clone(), label.kind.clone())).or_insert(0) += 1;
    }
    counts
}

fn run_live(
    args: &SimulateArgs,
    settings: &ClusterSettings,
    model: &Model,
    archive: &Archive,
) -> anyhow::Result<ExitCode> {
    let stop = stop_on_ctrl_c(args.duration)?;
    eprint_note(&format!(
        "simulating {} nodes × {} threads into {}; Ctrl-C ends",
        args.nodes,
        args.threads,
        archive.address()
    ));
    let mut view = View { json: args.json, redraws: std::io::stdout().is_terminal(), ..View::default() };
    stream(settings, model, archive, args.speed, &stop, |streamed, readings| {
        // When nobody looks any more, the cluster goes on all the same.
        view.is_blind = view.is_blind || view.show(&streamed, readings).is_err();
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What people see of a cluster at work.
#[derive(Default)]
struct View {
    json: bool,
    redraws: bool,
    is_blind: bool,
    before: Vec<NodeReading>,
    n_lines: usize,
}

impl View {
    fn show(&mut self, streamed: &Streamed, readings: &[NodeReading]) -> anyhow::Result<()> {
        if self.is_blind {
            return Ok(());
        }
        if self.json {
            let threads: usize = readings.iter().map(|reading| reading.threads.len()).sum();
            let (took, late) = (streamed.took.as_secs_f64(), streamed.late.as_secs_f64());
            let time = streamed.time.as_epoch_seconds().to_string();
            return print(
                &json!({ "time": time, "threads": threads, "took_seconds": took, "late_seconds": late })
                    .to_string(),
            );
        }
        let is_due = self.redraws || streamed.n_seconds % 10 == 2;
        if is_due && self.before.len() == readings.len() {
            self.draw(streamed, readings)?;
        }
        if self.redraws || streamed.n_seconds % 10 == 1 {
            self.before = readings.to_vec();
        }
        Ok(())
    }

    fn draw(&mut self, streamed: &Streamed, readings: &[NodeReading]) -> anyhow::Result<()> {
        let late = if streamed.late.as_secs() > 0 {
            format!(", {} s late", streamed.late.as_secs())
        } else {
            String::new()
        };
        let mut lines = vec![format!(
            "{}  {:.0} ms a second{late}",
            show_time(streamed.time),
            streamed.took.as_secs_f64() * 1e3
        )];
        for (before, now) in self.before.iter().zip(readings).take(MOST_LINES) {
            lines.push(node_line(before, now));
        }
        if readings.len() > MOST_LINES {
            lines.push(format!("… and {} more nodes", readings.len() - MOST_LINES));
        }
        let mut stdout = std::io::stdout().lock();
        if self.redraws && self.n_lines > 0 {
            write!(stdout, "\x1b[{}A", self.n_lines)?;
        }
        self.n_lines = lines.len();
        for line in lines {
            writeln!(stdout, "{}{line}", if self.redraws { "\x1b[2K" } else { "" })?;
        }
        Ok(())
    }
}

fn node_line(before: &NodeReading, now: &NodeReading) -> String {
    let spent = |mode: Mode| {
        let ticks =
            |reading: &NodeReading| reading.threads.iter().map(|thread| thread.ticks[mode]).sum::<u64>();
        (ticks(now).saturating_sub(ticks(before))) as f64
    };
    let all: f64 = Mode::ALL.into_iter().map(spent).sum::<f64>().max(1.0);
    let share = |mode: Mode| spent(mode) / all * 100.0;
    let owned = now.threads.iter().filter(|thread| matches!(thread.owner, Owner::Job(_))).count();
    format!(
        "{:<8} {:>3} jobs on {:>3} of {} threads  user {:5.1} %  system {:5.1} %  iowait {:5.1} %",
        now.node.as_str(),
        now.jobs.len(),
        owned,
        now.threads.len(),
        share(Mode::User),
        share(Mode::System),
        share(Mode::Iowait),
    )
}
