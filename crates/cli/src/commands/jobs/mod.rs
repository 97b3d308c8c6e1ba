//! `tracewise jobs`

mod compare;
mod inspect;
mod replay;
mod sample;
mod train;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use jobs::{Role, Schema, Trace};

use crate::args::{JobsCommand, Reading};
use crate::output::eprint_note;

pub fn run(command: JobsCommand) -> anyhow::Result<ExitCode> {
    match command {
        JobsCommand::Inspect(args) => inspect::run(&args),
        JobsCommand::Train(args) => train::run(&args),
        JobsCommand::Sample(args) => sample::run(&args),
        JobsCommand::Compare(args) => compare::run(&args),
        JobsCommand::Replay(args) => replay::run(&args),
    }
}

impl Reading {
    /// Reads a trace, and says what had to be put right.
    fn read(&self, path: &Path) -> anyhow::Result<Trace> {
        let schema = self.schema.as_deref().map(Schema::read).transpose()?;
        self.read_as(path, schema)
    }

    /// The same for a file whose columns are known.
    fn read_as(&self, path: &Path, schema: Option<Schema>) -> anyhow::Result<Trace> {
        let columns: BTreeMap<String, Role> = self.columns.iter().cloned().collect();
        let trace = Trace::read(path, self.preset, &columns, schema)?;
        trace.warnings.iter().for_each(|warning| eprint_note(&format!("{}: {warning}", path.display())));
        Ok(trace)
    }
}
