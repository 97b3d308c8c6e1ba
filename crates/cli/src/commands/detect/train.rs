//! `tracewise detect train`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use ::detect::{BUDGETS, Calibration, Start, Training, TrainingStep};
use learn::artifact::Provenance;
use report::text::{show_count, show_duration};
use serde_json::json;
use workload::Control;

use super::{detector_settings, with_hint};
use crate::args::TrainArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &TrainArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = args.data.open(config)?;
    let settings = detector_settings(config)?;
    let seed = args.seed.unwrap_or(settings.train.seed);
    let progress = Progress::new(format!("reading {}", archive.address()));
    let report = |done, total| progress.update(done, total);
    let stop = stop_on_signals(None)?;
    let checkpoint = checkpoint_of(&args.out);
    let training = Training {
        kind: args.detector,
        config: &settings,
        seed,
        checkpoint: Some(&checkpoint),
        start: Start::Random,
        control: Control::new(&stop, &report),
    };
    let trained = training.run(&archive, note).map_err(with_hint)?;
    drop(progress);
    trained.write(&args.out, &Provenance::at(SystemTime::now().into()))?;
    if checkpoint.exists() {
        std::fs::remove_dir_all(&checkpoint)?;
    }
    let origin = &trained.origin;
    if args.json {
        print_json(&json!({
            "out": args.out, "detector": trained.kind, "origin": origin, "calibration": trained.calibration,
            "window_seconds": trained.window_seconds(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!(
        "{}: {} trained on {} of {} windows of {} s, seed {seed}\n\
         mean reconstruction error on validation data {:.5}",
        args.out.display(),
        trained.kind.name(),
        show_count(origin.n_windows as u64),
        show_count(origin.n_available as u64),
        trained.window_seconds(),
        origin.validation_error,
    ))?;
    trained.calibration.as_ref().map_or(Ok(()), print_calibration)?;
    Ok(ExitCode::SUCCESS)
}

/// What the thresholds rest on, and what the budget costs.
fn print_calibration(calibration: &Calibration) -> anyhow::Result<()> {
    let [low, high] = calibration.plausible_events_per_day;
    print(&format!(
        "thresholds for {} false events per day (plausible: {low:.1} to {high:.1}), from {} normal jobs in {} of \
         validation data",
        calibration.false_events_per_day,
        show_count(calibration.n_jobs as u64),
        show_duration(calibration.days * 86_400.0),
    ))?;
    if calibration.is_uncertain() {
        eprint_note(&format!(
            "warning: {} jobs say little about what is normal; thresholds are set high, and weak anomalies will be missed \
             until the model is trained with more",
            calibration.n_jobs
        ));
    }
    if calibration.found.is_empty() {
        return Ok(());
    }
    print("")?;
    let mut rows = Vec::new();
    for found in &calibration.found {
        let mut row = vec![
            found.kind.clone(),
            if found.is_injected { "injected" } else { "labelled" }.to_owned(),
            found.n_jobs.to_string(),
        ];
        row.extend(found.n_found.map(|count| format!("{:.2}", count as f64 / found.n_jobs.max(1) as f64)));
        rows.push(row);
    }
    let budgets = BUDGETS.map(|budget| format!(">FOUND AT {budget}/DAY"));
    let mut header = vec!["ANOMALY", "SOURCE", ">JOBS"];
    header.extend(budgets.iter().map(String::as_str));
    print_table(&header, &rows)
}

fn note(step: TrainingStep<'_>) {
    match step {
        TrainingStep::Calibrating => eprint_note("setting thresholds with held-out jobs"),
        TrainingStep::Resumed { epoch } => eprint_note(&format!("continuing after epoch {epoch}")),
        TrainingStep::Epoch(epoch) => eprint_note(&format!(
            "epoch {:3} of {}  loss {:.5}  validation {:.5} (best {:.5})  {:.1} s  at most {} left",
            epoch.epoch,
            epoch.n_epochs,
            epoch.loss,
            epoch.validation,
            epoch.best,
            epoch.took.as_secs_f64(),
            show_duration(epoch.left.as_secs_f64()),
        )),
    }
}

/// The directory of checkpoints, next to the model.
fn checkpoint_of(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    out.with_file_name(format!("{name}.checkpoint"))
}
