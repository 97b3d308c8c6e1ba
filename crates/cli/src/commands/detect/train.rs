//! `tracewise detect train`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use detect::{Progress as Step, train};
use report::text::{show_count, show_duration};
use serde_json::json;

use super::open;
use crate::args::TrainArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json};
use crate::progress::Progress;

pub fn run(args: &TrainArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = open(args.data.as_deref(), config)?;
    let seed = args.seed.unwrap_or(config.detector.train.seed);
    let reading = Progress::new(format!("reading {}", archive.address()));
    let checkpoint = checkpoint_of(&args.out);
    let trained =
        train(&archive, args.model, &config.detector, seed, Some(&checkpoint), |step| match step {
            Step::Reading { done, total, .. } => reading.update(done, total),
            Step::Resumed { epoch } => eprint_note(&format!("going on after epoch {epoch}")),
            Step::Epoch(epoch) => eprint_note(&format!(
                "epoch {:3} of {}  loss {:.5}  validation {:.5} (best {:.5})  {:.1} s  {} left at most",
                epoch.epoch,
                epoch.n_epochs,
                epoch.loss,
                epoch.validation,
                epoch.best,
                epoch.took.as_secs_f64(),
                show_duration(epoch.left.as_secs_f64()),
            )),
        })?;
    drop(reading);
    trained.write(&args.out)?;
    if checkpoint.exists() {
        std::fs::remove_dir_all(&checkpoint)?;
    }
    let (origin, threshold) = (&trained.origin, &trained.thresholds);
    if args.json {
        print_json(&json!({
            "out": args.out, "model": trained.model, "origin": origin, "thresholds": threshold,
            "window_seconds": trained.config.window as f64 * trained.period.as_seconds(),
        }))?;
    } else {
        print(&format!(
            "{}: {} learnt from {} windows of {} s ({} there were), seed {seed}\n\
             mean error on validation {:.5}; scores from {:.5} on are alarms, which {} % of normal windows reach",
            args.out.display(),
            trained.model.name(),
            show_count(origin.n_windows as u64),
            trained.config.window as f64 * trained.period.as_seconds(),
            show_count(origin.n_seen as u64),
            origin.validation_error,
            threshold.for_all.score,
            threshold.rate * 100.0,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Beside the model.
fn checkpoint_of(out: &Path) -> PathBuf {
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    out.with_file_name(format!("{name}.checkpoint"))
}
