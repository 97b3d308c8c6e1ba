//! A submit directory of Pegasus: `jobstate.log` (or DAGMan's log), the graph in `*.dag`, the records of kickstart
//! and PegasusLite for every attempt, and the submit directories of sub-workflows.
//!
//! A node of the graph may run a workflow of its own (`SUBDAG EXTERNAL`, or a job whose pre-script is
//! `pegasus-plan`). Its submit directory lies below that of its parent. Its tasks become part of the parent's run,
//! under the name `<node>/<task>`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use files::Limits;

use super::dag::{self, Dag, Listings};
use super::follow::LogFollower;
use super::nested::{self, MAX_DEPTH};
use super::record_file::{self, RecordFile};
use super::{Recording, RunState, kickstart};
use crate::error::{Error, Result};

/// A submit directory and what has been read of it.
#[derive(Debug)]
pub struct SubmitDirectory {
    path: PathBuf,
    log: LogFollower,
    is_started: bool,
    name: String,
    dag: Dag,
    /// Where the records of each job are.
    record_directories: HashMap<String, PathBuf>,
    /// Places of attempts whose records have been read: standard output, standard error.
    read_records: [HashSet<usize>; 2],
    /// Sub-workflows whose log exists, by node, with one entry for each time that they were planned.
    nested: Vec<Nested>,
    depth: usize,
    limits: Limits,
}

#[derive(Debug)]
struct Nested {
    /// The place of its node among the sub-workflows of the graph.
    place: usize,
    node: String,
    directory: SubmitDirectory,
}

/// The log and the graph of a submit directory; those of sub-workflows are in directories below.
struct Layout {
    log: PathBuf,
    dag: Option<PathBuf>,
    /// Whether DAGMan has begun to write its own log. The monitor writes `jobstate.log` later.
    is_started: bool,
}

impl Layout {
    fn of(path: &Path, limits: &Limits) -> Result<Self> {
        let mut files: Vec<PathBuf> = fs::read_dir(path)
            .map_err(Error::io(path))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()
            .map_err(Error::io(path))?;
        files.sort();
        let ends = |end: &str| files.iter().find(|file| file.to_string_lossy().ends_with(end)).cloned();
        let dagman = ends(".dagman.out");
        let is_started =
            dagman.as_ref().and_then(|log| log.metadata().ok()).is_some_and(|found| found.len() > 0);
        let log = Some(path.join("jobstate.log")).filter(|log| log.is_file()).or(dagman);
        let log = log.ok_or_else(|| {
            Error::file(
                path,
                "not a submit directory of Pegasus: it has neither jobstate.log nor *.dagman.out",
            )
        })?;
        // `braindump.yml` names the graph; without it, the graph is the only one.
        let braindump = Some(path.join("braindump.yml")).filter(|file| file.is_file());
        let named = braindump.map(|file| files::read(&file, limits)).transpose()?.and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes);
            let value = text.lines().find_map(|line| line.strip_prefix("dag:"))?;
            record_file::inside(path, value.trim().trim_matches('"')).filter(|file| file.is_file())
        });
        Ok(Self { log, dag: named.or_else(|| ends(".dag")), is_started })
    }
}

impl SubmitDirectory {
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        Self::open_at(path, 0, limits)
    }

    fn open_at(path: &Path, depth: usize, limits: &Limits) -> Result<Self> {
        let layout = Layout::of(path, limits)?;
        let mut log = LogFollower::open(&layout.log, limits)?;
        let mut dag = match &layout.dag {
            Some(file) => dag::parse(&String::from_utf8_lossy(&files::read(file, limits)?)),
            None => Dag::default(),
        };
        *log.builder_mut().graph_mut() = std::mem::take(&mut dag.graph);
        let named_after = layout.dag.as_deref().unwrap_or(path).file_stem();
        let name = named_after.map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned());
        let record_directories =
            dag.jobs.iter().map(|(job, directory)| (job.clone(), path.join(directory))).collect();
        Ok(Self {
            path: path.to_owned(),
            log,
            is_started: layout.is_started,
            name,
            dag,
            record_directories,
            read_records: Default::default(),
            nested: Vec::new(),
            depth,
            limits: *limits,
        })
    }

    /// Reads what has been appended to the logs. Returns whether there was anything.
    pub fn catch_up(&mut self) -> Result<bool> {
        let mut is_longer = self.log.catch_up()?;
        self.open_nested()?;
        for nested in &mut self.nested {
            is_longer |= nested.directory.catch_up()?;
        }
        Ok(is_longer)
    }

    /// Opens the sub-workflows whose logs have appeared.
    fn open_nested(&mut self) -> Result<()> {
        if self.depth >= MAX_DEPTH {
            return Ok(());
        }
        let mut listings = Listings::default();
        let mut is_known: HashSet<PathBuf> =
            self.nested.iter().map(|nested| nested.directory.path.clone()).collect();
        let parent = self.path.canonicalize().map_err(Error::io(&self.path))?;
        // Links could lead back to the parent, and from there to itself any number of times.
        let is_below =
            |path: &Path| path.canonicalize().is_ok_and(|path| path != parent && path.starts_with(&parent));
        for (place, subworkflow) in self.dag.subworkflows.iter().enumerate() {
            for path in subworkflow.directories(&self.path, &mut listings) {
                let is_new = is_known.insert(path.clone()) && is_below(&path);
                if !is_new || Layout::of(&path, &self.limits).is_err() {
                    continue;
                }
                let directory = Self::open_at(&path, self.depth + 1, &self.limits)?;
                self.nested.push(Nested { place, node: subworkflow.node.clone(), directory });
            }
        }
        // The order does not depend on when a sub-workflow was planned.
        self.nested.sort_by(|a, b| (a.place, &a.directory.path).cmp(&(b.place, &b.directory.path)));
        Ok(())
    }

    /// Whether the workflow has ended.
    pub fn is_over(&self) -> bool {
        self.log.builder().is_over()
    }

    /// The run as known now.
    pub fn recording(&mut self) -> Result<Recording> {
        self.add_records()?;
        let mut recording = self.log.builder().recording(&self.name);
        if self.is_started {
            recording.state = recording.state.max(RunState::Running);
        }
        let is_over = self.is_over();
        let nodes: HashSet<&str> = self.dag.subworkflows.iter().map(|one| one.node.as_str()).collect();
        nested::mark_nodes(&mut recording.run, &nodes);
        let mut runs = Vec::with_capacity(self.nested.len());
        for Nested { node, directory, .. } in &mut self.nested {
            if is_over {
                directory.log.builder_mut().finish();
            }
            let nested = directory.recording()?;
            for warning in nested.warnings {
                recording.warn(format!("{node}: {warning}"));
            }
            runs.push((node.clone(), nested.run));
        }
        nested::merge(&mut recording.run, runs).map_err(|reason| Error::file(&self.path, reason))?;
        Ok(recording)
    }

    /// Adds what kickstart and PegasusLite recorded of attempts that are over: `<task>.out.000` belongs to the
    /// first attempt, `<task>.out.001` to the second. Pegasus names these files when the post-script has run, so a file
    /// may appear later than the end of the execution.
    fn add_records(&mut self) -> Result<()> {
        let builder = self.log.builder_mut();
        for place in 0..builder.attempts().len() {
            let attempt = &builder.attempts()[place];
            if attempt.execution.is_none() {
                continue;
            }
            let directory = self.record_directories.get(&attempt.task.0).unwrap_or(&self.path);
            let stem = attempt.task.0.clone();
            let number = attempt.attempt - 1;
            for (stream, is_read) in ["out", "err"].into_iter().zip(&mut self.read_records) {
                if is_read.contains(&place) {
                    continue;
                }
                let name = format!("{stem}.{stream}.{number:03}");
                let Some(path) = record_file::inside(directory, &name) else { continue };
                let Some(RecordFile { text, is_whole }) = record_file::read(&path)? else { continue };
                is_read.insert(place);
                if !is_whole {
                    builder.warn(format!("{name} is long: only its beginning and its end are read"));
                }
                let Some(attempt) = builder.attempt_mut(place) else { continue };
                if stream == "err" {
                    kickstart::add_transfers(&text, attempt);
                } else if let Err(reason) = kickstart::add_records(&text, attempt) {
                    builder.warn(format!("{name} is skipped: {reason}"));
                }
            }
        }
        Ok(())
    }
}

/// Reads a submit directory once.
pub fn read(path: &Path, limits: &Limits) -> Result<Recording> {
    let mut directory = SubmitDirectory::open(path, limits)?;
    directory.catch_up()?;
    directory.log.end();
    if !directory.is_started && !directory.log.is_begun() {
        return Err(Error::file(path, "its log contains no submitted task"));
    }
    directory.recording()
}
