//! `tracewise archive show`

use std::process::ExitCode;

use anyhow::bail;
use report::text::show_duration;
use serde_json::json;
use workload::{Coverage, Derivation, Owner, Rates, Trace};

use crate::args::ShowArgs;
use crate::config::Config;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;
use crate::times::show_time;

const COLUMNS: usize = 60;
const THREADS_SHOWN: usize = 64;
const SHADES: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Statistics of one thread.
struct ThreadSummary {
    cpu: u16,
    mean: [f64; 4],
    n_read: usize,
    n_bridged: usize,
    n_missing: usize,
    /// How busy each part of the time was; `None` without readings.
    busy: Vec<Option<f64>>,
}

pub fn run(args: &ShowArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let stop = stop_on_signals(None)?;
    let snapshot = args.data.open(config)?.with_stop(&stop).snapshot(args.which.selection())?;
    let nodes = snapshot.nodes();
    let progress = Progress::new("reading");
    let mut shown = Vec::new();
    let mut found = false;
    for (done, node) in nodes.iter().enumerate() {
        progress.update(done as u64, nodes.len() as u64);
        let derivation = Derivation { period: snapshot.period(node), ..Derivation::default() };
        let traces = snapshot.traces(node, &derivation)?;
        for stretch in traces.chunk_by(|a, b| a.start() == b.start()) {
            let threads: Vec<ThreadSummary> =
                stretch.iter().filter_map(|trace| summary(trace, args.which.job.as_ref())).collect();
            let Some(first) = stretch.first().filter(|_| !threads.is_empty()) else { continue };
            found = true;
            if args.json {
                let threads: Vec<_> = threads.iter().map(as_json).collect();
                shown.push(json!({
                    "node": node, "from": first.start(),
                    "to": first.time(first.len()),
                    "period_seconds": first.period().0 as f64 / 1e3, "threads": threads,
                }));
            } else {
                print_stretch(first, &threads)?;
            }
        }
    }
    progress.update(nodes.len() as u64, nodes.len() as u64);
    drop(progress);
    if !found {
        bail!("no reading matches; `tracewise archive list` shows what there is");
    }
    if args.json {
        print_json(&shown)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(trace: &Trace, job: Option<&workload::JobId>) -> Option<ThreadSummary> {
    let wanted = |step: usize| match (job, trace.owner(step)) {
        (None, _) => true,
        (Some(job), Owner::Job(owner)) => owner == job,
        (Some(_), _) => false,
    };
    let mut counts = [0usize; 3];
    let mut mean = [0.0; 4];
    let mut busy = vec![(0.0, 0usize); COLUMNS.min(trace.len())];
    let n_columns = busy.len();
    // With a job, missing steps count between its first and its last step.
    let first = (0..trace.len()).find(|step| wanted(*step))?;
    let last = (0..trace.len()).rfind(|step| wanted(*step))?;
    let counts_as = |step: &usize| wanted(*step) || trace.coverage(*step) == Coverage::Missing;
    for step in (first..=last).filter(counts_as) {
        counts[match trace.coverage(step) {
            Coverage::Read => 0,
            Coverage::Bridged => 1,
            Coverage::Missing => 2,
        }] += 1;
        if let Some(rates) = trace.rates(step) {
            for (sum, rate) in mean.iter_mut().zip(rates.as_array()) {
                *sum += f64::from(*rate);
            }
            let (sum, n) = &mut busy[step * n_columns / trace.len()];
            *sum += f64::from(1.0 - rates.other());
            *n += 1;
        }
    }
    let known = counts[0] + counts[1];
    let mean = mean.map(|sum| sum / known.max(1) as f64);
    (known > 0).then(|| ThreadSummary {
        cpu: trace.thread().cpu.0,
        mean,
        n_read: counts[0],
        n_bridged: counts[1],
        n_missing: counts[2],
        busy: busy.into_iter().map(|(sum, n)| (n > 0).then(|| sum / n as f64)).collect(),
    })
}

fn as_json(thread: &ThreadSummary) -> serde_json::Value {
    let mean: serde_json::Map<_, _> = Rates::CHANNELS
        .iter()
        .zip(thread.mean)
        .map(|(name, mean)| ((*name).to_owned(), json!(mean)))
        .collect();
    json!({
        "cpu": thread.cpu, "mean": mean, "read": thread.n_read, "bridged": thread.n_bridged,
        "missing": thread.n_missing,
    })
}

fn print_stretch(first: &Trace, threads: &[ThreadSummary]) -> anyhow::Result<()> {
    let (start, end) = (first.start(), first.time(first.len()));
    print(&format!(
        "{}  {} to {} ({}), one step per {}",
        first.thread().node,
        show_time(start),
        show_time(end),
        show_duration((end - start).as_seconds()),
        humantime::format_duration(std::time::Duration::from_millis(first.period().0 as u64)),
    ))?;
    print(&format!(
        "{:>5} {:>6} {:>6} {:>6} {:>6} {:>8}  busy over time",
        "cpu", "user", "system", "iowait", "other", "missing"
    ))?;
    for thread in threads.iter().take(THREADS_SHOWN) {
        let [user, system, iowait, other] = thread.mean.map(|mean| format!("{:.1}%", mean * 100.0));
        let chart: String = thread
            .busy
            .iter()
            .map(|busy| busy.map_or('·', |busy| SHADES[(busy.clamp(0.0, 1.0) * 8.0).round() as usize]))
            .collect();
        print(&format!(
            "{:>5} {user:>6} {system:>6} {iowait:>6} {other:>6} {:>8}  |{chart}|",
            thread.cpu, thread.n_missing
        ))?;
    }
    if threads.len() > THREADS_SHOWN {
        print(&format!("… and {} more threads; --json prints all", threads.len() - THREADS_SHOWN))?;
    }
    print("")
}
