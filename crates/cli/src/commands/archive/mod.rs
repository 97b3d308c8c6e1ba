//! `tracewise archive`

mod compact;
mod export;
mod import;
mod list;
mod replay;
mod show;
mod verify;

use std::process::ExitCode;

use archive::Selection;
use workload::Timestamp;

use crate::args::{ArchiveCommand, Which};
use crate::config::Config;

pub fn run(command: ArchiveCommand, config: &Config) -> anyhow::Result<ExitCode> {
    match command {
        ArchiveCommand::Import(args) => import::run(&args, config),
        ArchiveCommand::List(args) => list::run(&args, config),
        ArchiveCommand::Show(args) => show::run(&args, config),
        ArchiveCommand::Export(args) => export::run(&args, config),
        ArchiveCommand::Compact(args) => compact::run(&args, config),
        ArchiveCommand::Verify(args) => verify::run(&args, config),
        ArchiveCommand::Replay(args) => replay::run(&args, config),
    }
}

impl Which {
    fn selection(&self) -> Selection {
        Selection {
            node: self.node.clone(),
            job: self.job.clone(),
            from: self.from.unwrap_or(Timestamp::MIN),
            to: self.to.unwrap_or(Timestamp::MAX),
        }
    }
}
