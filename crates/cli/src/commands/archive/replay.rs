//! `tracewise archive replay`

use std::process::ExitCode;

use anyhow::bail;
use archive::Replay;
use serde_json::json;

use crate::args::ReplayArgs;
use crate::config::Config;
use crate::output::{complain, say};

pub fn run(args: &ReplayArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if args.speed.is_some_and(|speed| !speed.is_finite() || speed <= 0.0) {
        bail!("--speed has to be a number above zero");
    }
    let snapshot = args.place.open(config)?.snapshot(args.which.selection())?;
    let mut n_shown = 0u64;
    for reading in Replay::new(&snapshot, args.speed)? {
        let reading = reading?;
        let threads: Vec<_> = reading
            .threads
            .iter()
            .filter(|thread| args.which.job.as_ref().is_none_or(|job| thread.owner.job() == Some(job)))
            .map(|thread| {
                json!({ "cpu": thread.cpu, "owner": thread.owner.state(), "job": thread.owner.job(),
                    "ticks": thread.ticks })
            })
            .collect();
        if !threads.is_empty() {
            let time = reading.time.0 as f64 / 1e3;
            say(&json!({ "time": time, "node": reading.node, "threads": threads }).to_string())?;
            n_shown += 1;
        }
    }
    if n_shown == 0 {
        complain("warning: nothing matches; `tracewise archive list` shows what there is");
    }
    Ok(ExitCode::SUCCESS)
}
