//! One file a command.

mod agent;
mod analyze;
mod archive;
mod campaign;
mod config;
mod record;

use std::process::ExitCode;

use ::archive::Archive;

use crate::args::{AgentCommand, Args, Command, Place};
use crate::config::Config;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = args.config.as_deref();
    match args.command {
        Command::Archive(command) => archive::run(command, &Config::load(file)?),
        Command::Agent(AgentCommand::Doctor { roots, json }) => agent::doctor(&roots, json),
        Command::Record(record) => record::run(&record, &Config::load(file)?),
        Command::Analyze(command) => analyze::run(command, &Config::load(file)?),
        Command::Campaign(command) => campaign::run(command, file),
        Command::Config(command) => config::run(command, file),
    }
}

impl Place {
    fn open(&self, config: &Config) -> ::archive::Result<Archive> {
        let address = self.archive.as_deref().unwrap_or(&config.archive.address);
        Archive::open(address, &config.archive_settings())
    }
}
