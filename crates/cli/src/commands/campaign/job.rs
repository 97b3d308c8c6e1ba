//! `tracewise campaign job`: the process that `campaign run` starts for each job.

use std::process::ExitCode;
use std::time::Duration;

use campaign::jobs::{self, JobSpec, Until};

use super::job_runner;
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
    let spec = JobSpec {
        kind: args.kind,
        cpus,
        length,
        seed: args.seed,
        scratch: args.scratch.clone(),
        quota: args.quota,
    };
    jobs::run(&spec, &job_runner()?, &until)?;
    Ok(ExitCode::SUCCESS)
}
