//! `tracewise campaign job`: the process that a campaign starts for each of its jobs.

use std::process::ExitCode;
use std::time::Duration;

use campaign::jobs::{self, Order, Until};

use crate::args::JobArgs;

pub fn run(args: &JobArgs) -> anyhow::Result<ExitCode> {
    let length = Duration::try_from_secs_f64(args.seconds)?;
    let until = Until::after(length);
    if args.tied {
        until.end_with_stdin();
    }
    let cpus = match &args.cpus {
        Some(cpus) => cpus.iter().collect(),
        None => jobs::allowed_cpus()?,
    };
    let (scratch, quota) = (args.scratch.clone(), args.quota);
    jobs::run(&Order { kind: args.kind, cpus, length, seed: args.seed, scratch, quota }, &until)?;
    Ok(ExitCode::SUCCESS)
}
