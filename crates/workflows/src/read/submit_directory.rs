//! A submit directory of Pegasus: `jobstate.log` (or DAGMan's log), the graph in `*.dag`, the records of kickstart
//! and PegasusLite for every attempt, and the submit directories of sub-workflows.
//!
//! A node of the graph may run a workflow of its own (`SUBDAG EXTERNAL`, or a job whose pre-script is
//! `pegasus-plan`). Its submit directory lies below that of its parent. Its tasks become part of the parent's run,
//! under the name `<node>/<task>`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::workflow::{TaskAttempt, TaskName, TaskRole, WorkflowRun};

use super::dag::{self, Dag};
use super::follow::LogFollower;
use super::{Recording, kickstart};
use crate::error::{Error, Result};

/// Sub-workflows may contain sub-workflows, up to this depth.
const MAX_DEPTH: usize = 8;
/// The kind of a node that runs a sub-workflow.
pub const SUBWORKFLOW: &str = "sub-workflow";

/// A submit directory and what has been read of it.
#[derive(Debug)]
pub struct SubmitDirectory {
    path: PathBuf,
    log: LogFollower,
    name: String,
    dag: Dag,
    /// Where the records of each job are.
    record_directories: HashMap<String, PathBuf>,
    /// Places of attempts whose records have been read: standard output, standard error.
    read_records: [HashSet<usize>; 2],
    /// Sub-workflows whose log exists, by node, with one entry for each time that they were planned.
    nested: Vec<Nested>,
    depth: usize,
}

#[derive(Debug)]
struct Nested {
    node: String,
    directory: SubmitDirectory,
}

/// The log and the graph of a submit directory; those of sub-workflows are in directories below.
struct Layout {
    log: PathBuf,
    dag: Option<PathBuf>,
}

impl Layout {
    fn of(path: &Path) -> Result<Self> {
        let mut files: Vec<PathBuf> = fs::read_dir(path)
            .map_err(Error::io(path))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()
            .map_err(Error::io(path))?;
        files.sort();
        let ends = |end: &str| files.iter().find(|file| file.to_string_lossy().ends_with(end)).cloned();
        let log = Some(path.join("jobstate.log")).filter(|log| log.is_file()).or_else(|| ends(".dagman.out"));
        let log = log.ok_or_else(|| {
            Error::file(
                path,
                "not a submit directory of Pegasus: it has neither jobstate.log nor *.dagman.out",
            )
        })?;
        // `braindump.yml` names the graph; without it, the graph is the only one.
        let named = fs::read_to_string(path.join("braindump.yml")).ok().and_then(|text| {
            let value = text.lines().find_map(|line| line.strip_prefix("dag:"))?;
            let file = path.join(value.trim().trim_matches('"'));
            file.is_file().then_some(file)
        });
        Ok(Self { log, dag: named.or_else(|| ends(".dag")) })
    }
}

impl SubmitDirectory {
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_at(path, 0)
    }

    fn open_at(path: &Path, depth: usize) -> Result<Self> {
        let layout = Layout::of(path)?;
        let mut log = LogFollower::open(&layout.log)?;
        let dag = match &layout.dag {
            Some(file) => dag::parse(&String::from_utf8_lossy(&fs::read(file).map_err(Error::io(file))?)),
            None => Dag::default(),
        };
        for (parent, child) in &dag.edges {
            log.builder_mut().add_edge(parent, child);
        }
        let named_after = layout.dag.as_deref().unwrap_or(path).file_stem();
        let name = named_after.map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned());
        let record_directories =
            dag.jobs.iter().map(|(job, directory)| (job.clone(), path.join(directory))).collect();
        Ok(Self {
            path: path.to_owned(),
            log,
            name,
            dag,
            record_directories,
            read_records: Default::default(),
            nested: Vec::new(),
            depth,
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
        for subworkflow in &self.dag.subworkflows {
            for path in subworkflow.directories(&self.path) {
                let is_open = self.nested.iter().any(|nested| nested.directory.path == path);
                if is_open || path == self.path || Layout::of(&path).is_err() {
                    continue;
                }
                let directory = Self::open_at(&path, self.depth + 1)?;
                self.nested.push(Nested { node: subworkflow.node.clone(), directory });
            }
        }
        // The order does not depend on when a sub-workflow was planned.
        let order = |node: &str| self.dag.subworkflows.iter().position(|one| one.node == node);
        self.nested.sort_by_cached_key(|nested| (order(&nested.node), nested.directory.path.clone()));
        Ok(())
    }

    /// Whether the workflow has ended.
    pub fn is_over(&self) -> bool {
        self.log.builder().is_over()
    }

    /// The run as known now.
    pub fn recording(&mut self) -> Result<Recording> {
        self.add_records()?;
        let mut recording = self.log.recording(&self.name);
        let is_over = self.is_over();
        for subworkflow in &self.dag.subworkflows {
            for attempt in recording.run.attempts.iter_mut().filter(|one| one.task.0 == subworkflow.node) {
                (attempt.role, attempt.kind) = (TaskRole::Auxiliary, SUBWORKFLOW.to_owned());
            }
        }
        for Nested { node, directory } in &mut self.nested {
            if is_over {
                directory.log.builder_mut().finish();
            }
            let nested = directory.recording()?;
            for warning in nested.warnings {
                recording.warn(format!("{node}: {warning}"));
            }
            merge(&mut recording.run, node, nested.run);
        }
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
                let path = directory.join(&name);
                let bytes = match fs::read(&path) {
                    Ok(bytes) => bytes,
                    Err(error) if is_absent(&error) => continue,
                    Err(error) => return Err(Error::io(&path)(error)),
                };
                is_read.insert(place);
                let text = String::from_utf8_lossy(&bytes);
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

/// Whether a record cannot exist under its name. Task names come from a log and may not even be file names.
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidInput)
        || matches!(error.kind(), ErrorKind::InvalidFilename)
}

/// Adds the tasks of a sub-workflow to the run that contains its node. Tasks without parents wait for what the node
/// waits for; what waits for the node, and the node itself, wait for tasks without children.
fn merge(run: &mut WorkflowRun, node: &str, nested: WorkflowRun) {
    let inside = |task: &TaskName| TaskName(format!("{node}/{}", task.0));
    let mut n_attempts: HashMap<TaskName, u32> = HashMap::new();
    for attempt in &run.attempts {
        *n_attempts.entry(attempt.task.clone()).or_default() += 1;
    }
    let mut tasks: BTreeMap<TaskName, ()> = BTreeMap::new();
    for attempt in nested.attempts {
        let task = inside(&attempt.task);
        tasks.insert(task.clone(), ());
        // A sub-workflow that was planned again tries its tasks again.
        let number = n_attempts.entry(task.clone()).or_default();
        *number += 1;
        run.attempts.push(TaskAttempt { task, attempt: *number, ..attempt });
    }
    let edges: Vec<(TaskName, TaskName)> = nested
        .children
        .iter()
        .flat_map(|(parent, children)| children.iter().map(|child| (inside(parent), inside(child))))
        .collect();
    tasks.extend(edges.iter().flat_map(|(parent, child)| [(parent.clone(), ()), (child.clone(), ())]));
    let node = TaskName(node.to_owned());
    let above: Vec<TaskName> = run
        .children
        .iter()
        .filter(|(_, below)| below.contains(&node))
        .map(|(parent, _)| parent.clone())
        .collect();
    let mut below = run.children.get(&node).cloned().unwrap_or_default();
    below.push(node);
    let mut add = |parent: &TaskName, child: &TaskName| {
        let children = run.children.entry(parent.clone()).or_default();
        if !children.contains(child) {
            children.push(child.clone());
        }
    };
    let has_parent: HashSet<&TaskName> = edges.iter().map(|(_, child)| child).collect();
    let has_child: HashSet<&TaskName> = edges.iter().map(|(parent, _)| parent).collect();
    for task in tasks.keys() {
        if !has_parent.contains(task) {
            above.iter().for_each(|parent| add(parent, task));
        }
        if !has_child.contains(task) {
            below.iter().for_each(|child| add(task, child));
        }
    }
    for (parent, child) in &edges {
        add(parent, child);
    }
}

/// Reads a submit directory once.
pub fn read(path: &Path) -> Result<Recording> {
    let mut directory = SubmitDirectory::open(path)?;
    directory.catch_up()?;
    directory.log.end();
    if directory.log.builder().is_empty() {
        return Err(Error::file(path, "its log contains no submitted task"));
    }
    directory.recording()
}
