//! `tracewise campaign simulate`

mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use anyhow::{Context, anyhow, bail};
use archive::{Archive, LoadReport, WriterSettings};
use campaign::simulate::cluster::Cluster;
use campaign::simulate::model::Model;
use campaign::simulate::schedule::{ClusterSettings, Variation};
use campaign::simulate::{SimulateError, into_archive, recorded_model, stream};
use files::Limits;
use report::text::{show_bytes, show_count};
use serde_json::json;
use workload::{Control, Label, Millis, NodeReading, Timestamp};

use crate::args::SimulateArgs;
use crate::commands::open_or_create;
use crate::config::{Config, read_text};
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;
use crate::signals::stop_on_signals;
use crate::times::show_time;
use view::View;

/// A Monday.
const START: Timestamp = Timestamp::from_seconds(1_767_571_200);
const FIRST_JOB: u64 = 1_000;
const MAX_HOURS: f64 = 10_000.0;
const MIN_SPEED: f64 = 0.001;
const MAX_SPEED: f64 = 1e6;

pub fn run(args: &SimulateArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let model = match &args.model {
        None => recorded_model()?,
        Some(file) => read_model(file, &config.limits())?,
    };
    if !(args.hours > 0.0 && args.hours <= MAX_HOURS) {
        bail!("--hours has to be above 0 and at most {MAX_HOURS}");
    }
    if !(MIN_SPEED..=MAX_SPEED).contains(&args.speed) {
        bail!("--speed has to be between {MIN_SPEED} and {MAX_SPEED}");
    }
    let now = Timestamp::from(SystemTime::now()).floor(Millis::SECOND);
    let start = args.start.unwrap_or(if args.live { now } else { START });
    let settings = ClusterSettings {
        n_nodes: args.nodes,
        threads_per_node: args.threads,
        campaign_seconds: (args.hours * 3_600.0).round() as u64,
        campaigns: ClusterSettings::campaigns(&args.campaigns.0),
        seed: args.seed,
        load: args.load,
        start,
        origin: start,
        first_job: FIRST_JOB,
        is_busy_at_start: false,
        variation: Variation::default(),
    };
    let address = args.into.as_deref().unwrap_or(&config.archive.address);
    let archive = open_or_create(address, config)?;
    if args.live {
        return run_live(args, &settings, &model, &archive);
    }
    let stop = stop_on_signals(None)?;
    let (progress, begin) = (Progress::new("simulating"), Instant::now());
    let update = |done, total| progress.update(done, total);
    let (report, labels) =
        into_archive(&settings, &model, &archive, &Control::new(&stop, &update)).map_err(with_hint)?;
    drop(progress);
    if args.json {
        print_outcome(args, address, &report, &labels)?;
        return Ok(ExitCode::SUCCESS);
    }
    show_counts(&settings, &labels)?;
    print(&format!(
        "\n{address}: {} readings of {} nodes from {} to {}, {}, simulated in {:.1} s",
        show_count(report.readings),
        report.nodes,
        report.first.map(show_time).unwrap_or_default(),
        report.last.map(show_time).unwrap_or_default(),
        show_bytes(report.bytes),
        begin.elapsed().as_secs_f64(),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn read_model(file: &Path, limits: &Limits) -> anyhow::Result<Model> {
    let name = || file.display().to_string();
    let text = read_text(file, limits)?;
    Model::from_json(&text).with_context(name)
}

/// Adds what the user can do about an error.
fn with_hint(error: SimulateError) -> anyhow::Error {
    let hint = match &error {
        SimulateError::DoesNotFit => "use more --hours, or less --load",
        SimulateError::CampaignTooShort(_) => "use more --hours",
        SimulateError::NoKind(_) => "fit a model to a recording that has it, with `campaign fit`",
        SimulateError::KnownCampaign(_) => "simulate into another archive",
        SimulateError::TimeTaken(_) => "use another --start, or another archive",
        _ => return error.into(),
    };
    anyhow!("{error}; {hint}")
}

fn print_outcome(
    args: &SimulateArgs,
    address: &str,
    report: &LoadReport,
    labels: &[Label],
) -> anyhow::Result<()> {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for label in labels {
        *kinds.entry(&label.kind).or_default() += 1;
    }
    print_json(
        &json!({ "archive": address, "seed": args.seed, "jobs": labels.len(), "kinds": kinds, "load": report }),
    )
}

/// Prints the number of jobs of each kind and campaign.
fn show_counts(settings: &ClusterSettings, labels: &[Label]) -> anyhow::Result<()> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for label in labels {
        *counts.entry((&label.campaign, &label.kind)).or_default() += 1;
    }
    let kinds: BTreeSet<&str> = counts.keys().map(|(_, kind)| *kind).collect();
    let campaigns: Vec<&str> = settings.campaigns.iter().map(|campaign| campaign.name.as_str()).collect();
    let header: Vec<String> = campaigns.iter().map(|name| format!(">{}", name.to_uppercase())).collect();
    let header: Vec<&str> = std::iter::once("JOBS OF").chain(header.iter().map(String::as_str)).collect();
    let row = |kind: &&str| {
        let of_campaign = |name: &&str| counts.get(&(*name, *kind)).map_or("–".into(), ToString::to_string);
        std::iter::once((*kind).to_owned()).chain(campaigns.iter().map(of_campaign)).collect()
    };
    print_table(&header, &kinds.iter().map(row).collect::<Vec<_>>())
}

fn run_live(
    args: &SimulateArgs,
    settings: &ClusterSettings,
    model: &Model,
    archive: &Archive,
) -> anyhow::Result<ExitCode> {
    let stop = stop_on_signals(args.duration)?;
    eprint_note(&format!(
        "simulating {} nodes × {} threads into {}; Ctrl-C ends",
        args.nodes,
        args.threads,
        archive.address()
    ));
    let mut view = View::new(args.json);
    let mut writer = archive.writer(Cluster::source(settings), WriterSettings::default())?;
    let store = |readings: &[NodeReading]| Ok(writer.append(readings)?);
    stream(settings, model, archive, args.speed, &stop, store, |status, readings| {
        view.show(&status, readings)
    })
    .map_err(with_hint)?;
    writer.close()?;
    Ok(ExitCode::SUCCESS)
}
