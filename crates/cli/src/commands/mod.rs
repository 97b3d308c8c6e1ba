//! One file per command.

mod agent;
mod analyze;
mod archive;
mod campaign;
mod config;
mod detect;
mod jobs;
mod record;
mod workflows;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::archive::Archive;
use workload::{NodeName, Stop};

use crate::args::{AgentCommand, Args, Command, DataArgs};
use crate::config::Config;

/// The exit code of a command that Ctrl-C ended, as shells have it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = args.config.as_deref();
    match args.command {
        Command::Archive(command) => archive::run(command, &Config::load(file)?),
        Command::Agent(AgentCommand::Doctor { roots, json }) => agent::doctor(&roots, json),
        Command::Record(record) => record::run(&record, &Config::load(file)?),
        Command::Analyze(command) => analyze::run(command, &Config::load(file)?),
        Command::Campaign(command) => campaign::run(command, file),
        Command::Detect(command) => detect::run(command, file),
        Command::Jobs(command) => jobs::run(command, &Config::load(file)?),
        Command::Workflows(command) => workflows::run(command),
        Command::Config(command) => config::run(command, file),
    }
}

impl DataArgs {
    fn open(&self, config: &Config) -> ::archive::Result<Archive> {
        let address = self.address.as_deref().unwrap_or(&config.archive.address);
        Archive::open(address, &config.archive_settings())
    }
}

/// The name of this machine in an archive: its hostname, unless another is given.
fn node_name(asked: Option<&NodeName>) -> anyhow::Result<NodeName> {
    match asked {
        Some(node) => Ok(node.clone()),
        None => Ok(NodeName::new(::agent::hostname())?),
    }
}

/// Stops at the first Ctrl-C, or after some time. The second Ctrl-C ends the process at once.
fn stop_on_ctrl_c(length: Option<Duration>) -> anyhow::Result<Stop> {
    let stop = Stop::after(length);
    let (stopped, is_second) = (stop.clone(), AtomicBool::new(false));
    ctrlc::set_handler(move || {
        if is_second.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        stopped.now();
    })?;
    Ok(stop)
}
