//! `tracewise campaign`

mod compare;
mod fit;
mod inject;
mod job;
mod label;
mod run;
mod simulate;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use campaign::jobs::JobRunner;

use crate::args::CampaignCommand;
use crate::config::Config;

pub fn run(command: CampaignCommand, config: Option<&Path>) -> anyhow::Result<ExitCode> {
    match command {
        CampaignCommand::Run(args) => run::run(&args, &Config::load(config)?),
        CampaignCommand::Simulate(args) => simulate::run(&args, &Config::load(config)?),
        CampaignCommand::Label(command) => label::run(&command, &Config::load(config)?),
        CampaignCommand::Inject(args) => inject::run(&args, &Config::load(config)?),
        CampaignCommand::Fit(args) => fit::run(&args, &Config::load(config)?),
        CampaignCommand::Compare(args) => compare::run(&args, &Config::load(config)?),
        CampaignCommand::Job(args) => job::run(&args),
    }
}

/// This program, as the one that runs a single job.
fn job_runner() -> anyhow::Result<JobRunner> {
    let program = std::env::current_exe().context("the path of this program is not known")?;
    Ok(JobRunner { program, arguments: vec!["campaign".into(), "job".into()] })
}
