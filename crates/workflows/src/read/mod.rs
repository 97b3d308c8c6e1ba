//! Runs of workflows, from whatever recorded them. What a file is, its first bytes say.

pub mod dagman;
pub mod event_log;
pub mod events;
pub mod follow;
pub mod jobstate;
pub mod kickstart;
pub mod kind;
pub mod nextflow;
pub mod stampede;
pub mod submit_folder;
pub mod table;
pub mod wfformat;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::workflow::WorkflowRun;

use self::follow::Follower;
use crate::error::{Error, Result};

/// A run as it was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    pub run: WorkflowRun,
    /// What was wrong with each attempt, where the file says so; nothing stands for a healthy one.
    pub labels: Vec<Option<String>>,
    /// What had to be left out or put right.
    pub warnings: Vec<String>,
}

/// Warnings that are kept of one file; a file of another kind would have one a line.
const MOST_WARNINGS: usize = 20;

impl Recording {
    pub fn new(name: &str) -> Self {
        Self { run: WorkflowRun { name: name.to_owned(), ..WorkflowRun::default() }, ..Self::default() }
    }

    pub fn warn(&mut self, warning: String) {
        match self.warnings.len().cmp(&MOST_WARNINGS) {
            std::cmp::Ordering::Less => self.warnings.push(warning),
            std::cmp::Ordering::Equal => self.warnings.push("and there is more like that".into()),
            std::cmp::Ordering::Greater => {}
        }
    }

    /// Rows with the same name are attempts at the same task, in their order.
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
    /// A table of jobs: FlowGAD, FlowBench.
    Table,
    /// `jobstate.log` of Pegasus.
    Jobstate,
    /// `*.dagman.out`
    Dagman,
    /// A user or event log of HTCondor.
    EventLog,
    Stampede,
    WfFormat,
    Nextflow,
}

/// Three years, in seconds: no task runs or waits longer.
const LONGEST: f64 = 1e8;
/// Bytes from which a format is told.
const ENOUGH: usize = 4_096;

impl Format {
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

/// The runs of a file or a submit folder of Pegasus: one, or several where a database has several.
pub fn read(path: &Path) -> Result<Vec<Recording>> {
    if path.is_dir() {
        return submit_folder::read(path).map(|one| vec![one]);
    }
    let mut file = File::open(path).map_err(Error::io(path))?;
    let mut first = vec![0; ENOUGH];
    let length = file.read(&mut first).map_err(Error::io(path))?;
    first.truncate(length);
    if first.is_empty() {
        return Err(Error::file(path, "it is empty"));
    }
    let format = Format::of(&first).ok_or_else(|| {
        Error::file(
            path,
            "it is none of: a table of jobs (FlowBench), jobstate.log, *.dagman.out, an event log of HTCondor, a stampede \
             database, WfFormat, Nextflow's trace.txt",
        )
    })?;
    let name = name_of(path);
    let whole = || {
        std::fs::read(path).map_err(Error::io(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let wrong = |reason: String| Error::file(path, reason);
    match format {
        Format::Stampede => stampede::read(path),
        Format::Table => {
            let file = File::open(path).map_err(Error::io(path))?;
            table::read(&name, std::io::BufReader::new(file)).map_err(wrong).map(|one| vec![one])
        }
        Format::WfFormat => wfformat::read(&whole()?).map_err(wrong).map(|one| vec![one]),
        Format::Nextflow => nextflow::read(&name, &whole()?).map_err(wrong).map(|one| vec![one]),
        Format::Jobstate | Format::Dagman | Format::EventLog => {
            let mut follower = Follower::new(path)?;
            follower.catch_up()?;
            follower.end();
            if follower.assembly().is_empty() {
                return Err(wrong("no job is submitted in it".into()));
            }
            Ok(vec![follower.recording(&name)])
        }
    }
}

/// The single run of a file.
pub fn read_one(path: &Path) -> Result<Recording> {
    let mut runs = read(path)?;
    match runs.len() {
        1 => Ok(runs.remove(0)),
        several => Err(Error::file(path, format!("there are {several} workflows in it, and one is needed"))),
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_stem().map_or_else(|| "run".into(), |name| name.to_string_lossy());
    name.into_owned()
}
