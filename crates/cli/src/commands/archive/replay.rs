//! `tracewise archive replay`

use std::process::ExitCode;

use anyhow::bail;
use archive::Replay;
use workload::Owner;
use workload::samples::json_line;

use crate::args::ReplayArgs;
use crate::config::Config;
use crate::output::{eprint_note, print_json_text};
use crate::signals::stop_on_signals;

pub fn run(args: &ReplayArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if args.speed.is_some_and(|speed| !speed.is_finite() || speed <= 0.0) {
        bail!("--speed must be greater than zero");
    }
    let stop = stop_on_signals(None)?;
    let snapshot = args.data.open(config)?.with_stop(&stop).snapshot(args.which.selection())?;
    let mut n_shown = 0u64;
    for replayed in Replay::new(&snapshot, args.speed)? {
        let mut reading = replayed?.reading;
        let is_wanted = |owner: &Owner| args.which.job.as_ref().is_none_or(|job| owner.job() == Some(job));
        reading.threads.retain(|thread| is_wanted(&thread.owner));
        if !reading.threads.is_empty() {
            print_json_text(&json_line(&reading))?;
            n_shown += 1;
        }
    }
    if n_shown == 0 {
        eprint_note("warning: no reading matches; `tracewise archive list` shows what there is");
    }
    Ok(ExitCode::SUCCESS)
}
