//! One file per command.

mod agent;
mod analyze;
mod archive;
mod campaign;
mod config;
mod detect;
mod jobs;
mod record;
mod serve;
mod workflows;

use std::process::ExitCode;

use ::archive::Archive;
use workload::NodeName;

use crate::args::{AgentCommand, Args, Command, DataArgs};
use crate::config::Config;
use crate::owner::refuse_root;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = args.config.as_deref();
    match args.command {
        Command::Archive(command) => archive::run(command, &Config::load(file)?),
        Command::Agent(AgentCommand::Doctor { roots, json }) => agent::doctor(&roots, json),
        Command::Record(record) => record::run(&record, &Config::load(file)?),
        Command::Analyze(command) => analyze::run(command, &Config::load(file)?),
        Command::Campaign(command) => campaign::run(command, file),
        Command::Detect(command) => detect::run(command, file),
        Command::Serve(args) => serve::run(&args, file),
        Command::Demo(args) => serve::demo::run(&args),
        Command::Health(args) => serve::health::run(args, file),
        Command::Review(args) => serve::review::run(&args, &Config::load(file)?),
        Command::Learn(command) => serve::learn::run(command, &Config::load(file)?),
        Command::Exclude(command) => serve::exclude::run(command, &Config::load(file)?),
        Command::Rehearse(args) => serve::rehearse::run(&args, &Config::load(file)?),
        Command::Models(command) => serve::models::run(command, &Config::load(file)?),
        Command::Token(command) => serve::token::run(command, &Config::load(file)?),
        Command::Jobs(command) => jobs::run(command, &Config::load(file)?),
        Command::Workflows(command) => workflows::run(command, &Config::load(file)?),
        Command::Config(command) => config::run(command, file),
    }
}

impl DataArgs {
    fn open(&self, config: &Config) -> ::archive::Result<Archive> {
        let address = self.address.as_deref().unwrap_or(&config.archive.address);
        Archive::open(address, &config.archive_settings())
    }

    /// The same archive, to change it.
    fn open_to_write(&self, config: &Config) -> anyhow::Result<Archive> {
        refuse_root(self.address.as_deref().unwrap_or(&config.archive.address))?;
        Ok(self.open(config)?)
    }
}

/// The archive at an address, to write to it; a new one if there is none.
fn open_or_create(address: &str, config: &Config) -> anyhow::Result<Archive> {
    refuse_root(address)?;
    Ok(Archive::open_or_create(address, &config.archive_settings())?)
}

/// The name of this machine in an archive: its hostname, unless another is given.
fn node_name(asked: Option<&NodeName>) -> anyhow::Result<NodeName> {
    match asked {
        Some(node) => Ok(node.clone()),
        None => Ok(NodeName::new(::agent::hostname())?),
    }
}
