//! Readers of workflow runs. The first bytes of a file decide which reader is used.

mod archived;
pub mod dag;
pub mod dagman;
pub mod event_log;
pub mod events;
pub mod follow;
pub mod jobstate;
pub mod kickstart;
pub mod kind;
mod nested;
pub mod nextflow;
mod record_file;
pub mod run_builder;
pub mod stampede;
pub mod submit_directory;
pub mod table;
mod values;
pub mod wfformat;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use files::{Limited, Limits};
use serde::Serialize;

use crate::workflow::WorkflowRun;

use self::follow::LogFollower;
use crate::error::{Error, Result};

/// How far a workflow was when its log was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// The file does not say whether the workflow has ended.
    #[default]
    Unknown,
    /// It has started, and no end is logged.
    Running,
    Ended,
}

impl RunState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "end unknown",
            Self::Running => "running",
            Self::Ended => "over",
        }
    }
}

/// A run with what its file says about it.
#[derive(Debug, Clone, Default, PartialEq, Hash)]
pub struct Recording {
    pub run: WorkflowRun,
    pub state: RunState,
    /// The fault of each attempt, if the file labels attempts; `None` is healthy.
    pub labels: Vec<Option<String>>,
    /// What was skipped or corrected while reading.
    pub warnings: Vec<String>,
}

/// Warnings that are kept for one file; a file of another format could have one for every line.
const MAX_WARNINGS: usize = 20;
/// Characters of a warning; names and values in it come from the file.
const MAX_WARNING_CHARACTERS: usize = 300;

/// A warning of bounded length.
fn shortened(warning: String) -> String {
    match warning.char_indices().nth(MAX_WARNING_CHARACTERS) {
        Some((end, _)) => format!("{}…", &warning[..end]),
        None => warning,
    }
}

impl Recording {
    pub fn new(name: &str) -> Self {
        Self { run: WorkflowRun { name: name.to_owned(), ..WorkflowRun::default() }, ..Self::default() }
    }

    pub fn warn(&mut self, warning: String) {
        match self.warnings.len().cmp(&MAX_WARNINGS) {
            std::cmp::Ordering::Less => self.warnings.push(shortened(warning)),
            std::cmp::Ordering::Equal => self.warnings.push("further warnings are not shown".into()),
            std::cmp::Ordering::Greater => {}
        }
    }

    /// Numbers the attempts at each task in their order.
    pub fn number_attempts(&mut self) {
        let mut seen: HashMap<String, u32> = HashMap::new();
        for attempt in &mut self.run.attempts {
            let number = seen.entry(attempt.task.0.clone()).or_default();
            *number += 1;
            attempt.attempt = *number;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One row per job: FlowGAD, FlowBench.
    Table,
    /// `jobstate.log` of Pegasus.
    Jobstate,
    /// `*.dagman.out`
    Dagman,
    /// HTCondor's user log or event log.
    EventLog,
    /// Pegasus' database.
    Stampede,
    WfFormat,
    /// `trace.txt` of Nextflow.
    Nextflow,
}

/// Bytes by which a format is recognised.
const SNIFF_BYTES: usize = 4_096;

impl Format {
    /// Whether it is read line by line, also while it grows.
    fn is_log(self) -> bool {
        matches!(self, Self::Jobstate | Self::Dagman | Self::EventLog | Self::Nextflow)
    }

    /// What a log of this format alone does not have, and what cannot be judged without it.
    fn lacks(self) -> Option<&'static str> {
        match self {
            Self::Jobstate | Self::Dagman => Some(
                "this log alone has no hosts, CPU times, staging times, byte counts or dependencies, so faults of CPU, \
                 disk, network or single machines cannot be judged; the submit directory has them",
            ),
            _ => None,
        }
    }

    /// The format of a file that begins with these bytes.
    pub fn of(first: &[u8]) -> Option<Self> {
        if stampede::is_database(first) {
            return Some(Self::Stampede);
        }
        let text = String::from_utf8_lossy(first);
        let line = text.lines().map(str::trim_end).find(|line| !line.is_empty())?;
        match line {
            _ if table::is_header(line) => Some(Self::Table),
            _ if nextflow::is_header(line) => Some(Self::Nextflow),
            _ if event_log::is_line(line) => Some(Self::EventLog),
            _ if dagman::is_line(line) => Some(Self::Dagman),
            _ if jobstate::is_line(line) => Some(Self::Jobstate),
            _ if line.trim_start().starts_with('{') => Some(Self::WfFormat),
            _ => None,
        }
    }
}

/// Reads a file, a submit directory, or a tar archive of one. Only a database can contain several runs.
pub fn read(path: &Path, limits: &Limits) -> Result<Vec<Recording>> {
    if path.is_dir() {
        return submit_directory::read(path, limits).map(|one| vec![one]);
    }
    let first = first_bytes(path)?;
    if first.is_empty() {
        return Err(Error::file(path, "the file is empty"));
    }
    if archived::is_archive(&first) {
        return archived::read(path, limits).map(|one| vec![one]);
    }
    let format = Format::of(&first).ok_or_else(|| {
        Error::file(
            path,
            "unknown format: expected a FlowBench table, jobstate.log, *.dagman.out, an HTCondor event log, a stampede \
             database, WfFormat, Nextflow's trace.txt, or a tar archive of a submit directory",
        )
    })?;
    let name = name_of(path);
    let whole = || files::read(path, limits).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let wrong = |reason: String| Error::file(path, reason);
    match format {
        Format::Stampede => stampede::read(path, limits),
        Format::Table => {
            let file = Limited::new(File::open(path).map_err(Error::io(path))?, limits);
            let mut meter = file.meter();
            let one = table::read(&name, file, &mut meter).map_err(|error| wrong(error.to_string()))?;
            Ok(vec![one])
        }
        Format::WfFormat => wfformat::read(&whole()?).map_err(wrong).map(|one| vec![one]),
        Format::Jobstate | Format::Dagman | Format::EventLog | Format::Nextflow => {
            let mut log = LogFollower::open(path, limits)?;
            log.catch_up()?;
            log.end();
            if !log.is_begun() {
                return Err(wrong("the log contains no submitted task".into()));
            }
            Ok(vec![log.recording(&name)])
        }
    }
}

/// Reads a file that contains a single run.
pub fn read_one(path: &Path, limits: &Limits) -> Result<Recording> {
    only(path, read(path, limits)?)
}

/// The run of a file that contains a single one.
fn only(path: &Path, mut runs: Vec<Recording>) -> Result<Recording> {
    match runs.len() {
        1 => Ok(runs.remove(0)),
        several => {
            Err(Error::file(path, format!("the file contains {several} workflows; a single one is needed")))
        }
    }
}

/// The bytes by which the format of a file is recognised.
fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut first = Vec::new();
    let file = File::open(path).map_err(Error::io(path))?;
    file.take(SNIFF_BYTES as u64).read_to_end(&mut first).map_err(Error::io(path))?;
    Ok(first)
}

fn name_of(path: &Path) -> String {
    let name = path.file_stem().map_or_else(|| "run".into(), |name| name.to_string_lossy());
    name.into_owned()
}
