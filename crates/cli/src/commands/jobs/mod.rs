//! `tracewise jobs`

mod compare;
mod inspect;
mod replay;
mod sample;
mod train;

use std::path::Path;
use std::process::ExitCode;

use files::Limits;
use jobs::error::{Error, RequestError, TraceError};
use jobs::trace::ReadOptions;
use jobs::{Schema, Trace};

use crate::args::{JobsCommand, Reading};
use crate::config::Config;
use crate::output::eprint_note;

pub fn run(command: JobsCommand, config: &Config) -> anyhow::Result<ExitCode> {
    let limits = config.limits();
    match command {
        JobsCommand::Inspect(args) => inspect::run(&args, &limits),
        JobsCommand::Train(args) => train::run(&args, &limits),
        JobsCommand::Sample(args) => sample::run(&args),
        JobsCommand::Compare(args) => compare::run(&args, &limits),
        JobsCommand::Replay(args) => replay::run(&args, &limits),
    }
}

impl Reading {
    /// Reads a trace and prints warnings about what was corrected.
    fn read(&self, path: &Path, limits: &Limits) -> anyhow::Result<Trace> {
        let schema = self.schema.as_deref().map(|file| Schema::read(file, limits)).transpose()?;
        let roles = self.columns.iter().cloned().collect();
        let options = ReadOptions { preset: self.preset, roles, schema, limits: *limits };
        let trace = Trace::read(path, &options).map_err(with_hint)?;
        print_warnings(path, &trace);
        Ok(trace)
    }
}

fn print_warnings(path: &Path, trace: &Trace) {
    for warning in trace.warnings() {
        eprint_note(&format!("{}: {warning}", path.display()));
    }
}

/// Adds which flag would help, if one does.
fn with_hint(error: Error) -> anyhow::Error {
    let hint = match &error {
        Error::InFile { source, .. } | Error::Trace(source) => match source {
            TraceError::NoSubmission => "name it with --columns submit=COLUMN or --columns interval=COLUMN",
            TraceError::NoRunTime => "name it with --columns run-time=COLUMN",
            TraceError::NotOfPreset { .. } => {
                "choose another --preset, or name it with --columns submit=COLUMN"
            }
            TraceError::LooksLikeSwf => "use --preset swf",
            _ => return error.into(),
        },
        Error::Request(RequestError::TooRare { .. }) => "lower --jobs, or choose a less rare --condition",
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}; {hint}")
}
