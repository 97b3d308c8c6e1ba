//! `tracewise campaign fit`

use std::process::ExitCode;

use campaign::job_trace;
use campaign::simulate::fit::fit;
use campaign::simulate::model::{Behaviour, Model};
use serde_json::json;
use workload::{Control, Label};

use crate::args::FitArgs;
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::progress::Progress;
use crate::signals::stop_on_signals;
use crate::times::show_time;

pub fn run(args: &FitArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let stop = stop_on_signals(None)?;
    let archive = args.data.open(config)?;
    let labels = archive.labels()?;
    let progress = Progress::new(format!("reading {}", archive.address()));
    let jobs = job_trace::read(
        &archive,
        &labels,
        &Control::new(&stop, &|done, total| progress.update(done, total)),
    )?;
    drop(progress);
    let model = fit(&jobs, &origin(&labels), &stop)?;
    let text = serde_json::to_string(&model)? + "\n";
    files::write(&args.out, text.as_bytes())?;
    if args.json {
        let kinds: Vec<&String> = model.kinds.keys().collect();
        print_json(&json!({ "out": args.out, "origin": model.origin, "kinds": kinds }))?;
    } else {
        print(&format!("{}: fitted to {}", args.out.display(), model.origin))?;
        show(&model)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A description of the recording.
fn origin(labels: &[Label]) -> String {
    let seconds: i64 = labels.iter().map(|label| (label.end - label.start).0 / 1_000).sum();
    let first = labels.iter().map(|label| label.start).min().map(show_time).unwrap_or_default();
    format!("{} jobs of {} min in all, recorded from {first} on", labels.len(), seconds / 60)
}

fn show(model: &Model) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = model
        .kinds
        .iter()
        .map(|(kind, model)| {
            let behaviour = match &model.behaviour {
                Behaviour::Phases(phases) => format!("{} phases", phases.phases.len()),
                Behaviour::Barrier(barrier) => {
                    format!("ranks that compute for {:.1} s between barriers", barrier.mean_seconds)
                }
            };
            vec![kind.clone(), behaviour, format!("{:.0} MB", model.memory.bytes_per_thread / 1e6)]
        })
        .collect();
    print_table(&["KIND", "BEHAVIOUR", ">MEMORY PER THREAD"], &rows)
}
