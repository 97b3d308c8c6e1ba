//! One file a command.

mod agent;
mod archive;
mod campaign;
mod config;
mod record;

use std::process::ExitCode;

use crate::args::{AgentCommand, Args, Command};
use crate::config::Config;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = args.config.as_deref();
    match args.command {
        Command::Archive(command) => archive::run(command, &Config::load(file)?),
        Command::Agent(AgentCommand::Doctor { roots, json }) => agent::doctor(&roots, json),
        Command::Record(record) => record::run(&record, &Config::load(file)?),
        Command::Campaign(command) => campaign::run(command, file),
        Command::Config(command) => config::run(command, file),
    }
}
