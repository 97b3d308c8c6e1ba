//! `tracewise rehearse`

use std::process::ExitCode;

use ::serve::rehearsal::{self, Day, RehearsalSettings, RehearsalStep, report};
use anyhow::Context;
use serde_json::json;
use workload::Control;

use super::runtime;
use crate::args::RehearseArgs;
use crate::commands::detect::detector_settings;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::signals::stop_on_signals;

/// Fewer windows and epochs than by default, so that a week is rehearsed within a quarter of an hour.
const MAX_WINDOWS: usize = 4_000;
const MAX_EPOCHS: usize = 12;

pub fn run(args: &RehearseArgs, config: &Config) -> anyhow::Result<ExitCode> {
    anyhow::ensure!((0.5..=24.0).contains(&args.hours), "--hours must be between 0.5 and 24");
    anyhow::ensure!((0.0..=1.0).contains(&args.error_rate), "--error-rate must be between 0 and 1");
    let mut detector = (*detector_settings(config)?).clone();
    detector.max_windows = detector.max_windows.min(MAX_WINDOWS);
    detector.train.n_epochs = detector.train.n_epochs.min(MAX_EPOCHS);
    let settings = RehearsalSettings {
        n_days: args.days,
        n_nodes: args.nodes,
        threads_per_node: args.threads,
        hours: args.hours,
        seed: args.seed,
        error_rate: args.error_rate,
        detector: detector.validate()?,
        first: config.serve.scoring.detector,
        night: config.serve.learning.night(),
    };
    let temporary = tempfile::tempdir()?;
    let folder = match &args.keep {
        Some(folder) => {
            anyhow::ensure!(!folder.join("metadata.db").exists(), "{} is in use already", folder.display());
            files::create_dirs(folder)?;
            folder.as_path()
        }
        None => temporary.path(),
    };
    let (stop, runtime) = (stop_on_signals(None)?, runtime()?);
    let control = Control::new(&stop, &|_, _| {});
    let days = rehearsal::rehearse(&settings, folder, runtime.handle(), control, note)?;
    let page = report::write(&days, &settings, &args.out).context("the report cannot be written")?;
    if args.json {
        print_json(&json!({ "report": page, "days": days }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_table(&report::HEADER, &days.iter().map(report::row).collect::<Vec<_>>())?;
    print(&format!("\nthe report is {}", page.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn note(step: RehearsalStep<'_>) {
    match step {
        RehearsalStep::Simulating { day } => eprint_note(&format!("day {day}: simulating")),
        RehearsalStep::Scoring { day } => eprint_note(&format!("day {day}: scoring")),
        RehearsalStep::Competing { day } => eprint_note(&format!("day {day}: models compete")),
        RehearsalStep::Done(day) => eprint_note(&summary(day)),
    }
}

fn summary(day: &Day) -> String {
    format!(
        "day {}: {} of {} anomalies found, {} false events; {}",
        day.day, day.found, day.anomalous_jobs, day.false_events, day.decision
    )
}
