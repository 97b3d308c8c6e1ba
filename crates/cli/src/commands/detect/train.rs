//! `tracewise detect train`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use ::detect::{Training, TrainingStep};
use learn::artifact::Provenance;
use report::text::{show_count, show_duration};
use serde_json::json;
use workload::Control;

use super::{detector_settings, with_hint};
use crate::args::TrainArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json};
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
        control: Control::new(&stop, &report),
    };
    let trained = training.run(&archive, note).map_err(with_hint)?;
    drop(progress);
    trained.write(&args.out, &Provenance::at(SystemTime::now().into()))?;
    if checkpoint.exists() {
        std::fs::remove_dir_all(&checkpoint)?;
    }
    let (origin, thresholds) = (&trained.origin, &trained.thresholds);
    if args.json {
        print_json(&json!({
            "out": args.out, "detector": trained.kind, "origin": origin, "thresholds": thresholds,
            "window_seconds": trained.window_seconds(),
        }))?;
    } else {
        print(&format!(
            "{}: {} trained on {} of {} windows of {} s, seed {seed}\n\
             mean reconstruction error on validation data {:.5}; threshold {:.5}, set for {} % of normal windows",
            args.out.display(),
            trained.kind.name(),
            show_count(origin.n_windows as u64),
            show_count(origin.n_available as u64),
            trained.window_seconds(),
            origin.validation_error,
            thresholds.for_all.score,
            thresholds.rate * 100.0,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn note(step: TrainingStep<'_>) {
    match step {
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
