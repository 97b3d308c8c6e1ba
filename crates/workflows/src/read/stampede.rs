//! The stampede database, in which Pegasus keeps its runs: SQLite, one run for each root workflow.
//!
//! A database file can contain views that never end and trees that share pages, so it is read with the defences that
//! SQLite documents for files of strangers, only tables are read, and queries have a bound on steps, time and rows.
//! Every table is read once for all workflows.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use files::{LimitExceeded, Limits};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Row};

use super::events::TaskEvent;
use super::run_builder::RunBuilder;
use super::{Recording, RunState, jobstate, nested, only, values};
use crate::error::{Error, Result};

/// The tables that are read.
const TABLES: [&str; 8] =
    ["workflow", "workflowstate", "job", "job_edge", "job_instance", "jobstate", "invocation", "host"];
/// Instructions of SQLite's virtual machine between two looks at the bounds.
const STEPS_PER_LOOK: i32 = 100_000;
/// Instructions that reading may take, at least and for each byte of the file. A row has tens of bytes and takes a few
/// hundred instructions.
const MIN_STEPS: u64 = 10_000_000;
const STEPS_PER_BYTE: u64 = 200;
/// How long reading a database may take.
const MAX_DURATION: Duration = Duration::from_secs(60);

pub fn is_database(first: &[u8]) -> bool {
    first.starts_with(b"SQLite format 3\0")
}

/// Reads the workflows of a database, each with its sub-workflows.
pub fn read(path: &Path, limits: &Limits) -> Result<Vec<Recording>> {
    StampedeFollower::open(path, limits)?.read()
}

/// Reads a database again when something was written to it.
#[derive(Debug)]
pub struct StampedeFollower {
    path: PathBuf,
    database: Connection,
    limits: Limits,
    /// SQLite's counter of changes by other processes, when the database was last read.
    version: Option<i64>,
}

impl StampedeFollower {
    pub fn open(path: &Path, limits: &Limits) -> Result<Self> {
        let database = open(path, limits).map_err(|error| failed(path, error.into()))?;
        Ok(Self { path: path.to_owned(), database, limits: *limits, version: None })
    }

    /// The only run of the database, if something was written since the last call.
    pub fn poll(&mut self) -> Result<Option<Recording>> {
        let version = self.database.pragma_query_value(None, "data_version", |row| row.get(0));
        let version: i64 = version.map_err(|error| failed(&self.path, error.into()))?;
        if self.version == Some(version) {
            return Ok(None);
        }
        let runs = self.read()?;
        self.version = Some(version);
        only(&self.path, runs).map(Some)
    }

    fn read(&self) -> Result<Vec<Recording>> {
        let workflows = || -> Outcome<Workflows> {
            set_bounds(&self.database, &self.path)?;
            // Everything is read as it was at one time.
            let database = self.database.unchecked_transaction()?;
            check_schema(&database)?;
            let reader = Reader { database: &database, n_rows: Cell::new(0), limits: &self.limits };
            let mut workflows = reader.workflows()?;
            reader.read_starts(&mut workflows)?;
            reader.read_edges(&mut workflows)?;
            reader.read_states(&mut workflows)?;
            reader.read_instances(&mut workflows)?;
            reader.read_subworkflows(&mut workflows)?;
            Ok(workflows)
        };
        let workflows = workflows().map_err(|error| failed(&self.path, error))?;
        if workflows.builders.is_empty() {
            return Err(Error::file(&self.path, "the database contains no workflow"));
        }
        workflows.recordings().map_err(|reason| Error::file(&self.path, reason))
    }
}

fn failed(path: &Path, failure: Failure) -> Error {
    Error::file(path, failure.to_string())
}

/// Why a database is not read.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("not a readable stampede database: {}", described(.0))]
    Sqlite(#[from] rusqlite::Error),
    #[error("not a stampede database: {name} is {found} instead of a table")]
    NotATable { name: String, found: String },
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

fn described(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::OperationInterrupted) => {
            format!("its queries take too many steps for its size, or more than {} s", MAX_DURATION.as_secs())
        }
        _ => error.to_string(),
    }
}

type Outcome<T> = std::result::Result<T, Failure>;

/// Opens a database without trusting it.
fn open(path: &Path, limits: &Limits) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    let record_bytes = i32::try_from(limits.record_bytes).unwrap_or(i32::MAX);
    database.set_limit(Limit::SQLITE_LIMIT_LENGTH, record_bytes)?;
    database.pragma_update(None, "cell_size_check", true)?;
    database.pragma_update(None, "mmap_size", 0)?;
    Ok(database)
}

/// Bounds the steps and the time of all queries until the next call.
fn set_bounds(database: &Connection, path: &Path) -> rusqlite::Result<()> {
    let begun = Instant::now();
    let mut steps_left = MIN_STEPS.saturating_add(stored_bytes(path).saturating_mul(STEPS_PER_BYTE));
    let is_too_long = move || {
        steps_left = steps_left.saturating_sub(STEPS_PER_LOOK as u64);
        steps_left == 0 || begun.elapsed() > MAX_DURATION
    };
    database.progress_handler(STEPS_PER_LOOK, Some(is_too_long))
}

/// Bytes of a database, with those that are not yet merged into its file.
fn stored_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let length = |path: &Path| path.metadata().map_or(0, |found| found.len());
    length(path) + length(Path::new(&log))
}

/// Checks that everything that is read is an ordinary table.
fn check_schema(database: &Connection) -> Outcome<()> {
    let mut query = database.prepare(
        "SELECT type, coalesce(sql, '') LIKE 'CREATE VIRTUAL%' FROM sqlite_schema
         WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view') LIMIT 2",
    )?;
    for name in TABLES {
        let found: Vec<(String, bool)> = query
            .query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let found = match &found[..] {
            [(kind, false)] if kind == "table" => continue,
            [(kind, false)] => format!("a {kind}"),
            [(_, true)] => "a virtual table".to_owned(),
            [] => "missing".to_owned(),
            _ => "there twice".to_owned(),
        };
        return Err(Failure::NotATable { name: name.to_owned(), found });
    }
    Ok(())
}

/// The runs of a database while they are read.
struct Workflows {
    /// In the order of their ids, with their names.
    builders: Vec<(String, RunBuilder)>,
    places: HashMap<i64, usize>,
    /// The sub-workflows of each workflow, by their places: the node and the workflow that it runs.
    nested: HashMap<usize, Vec<(String, usize)>>,
}

impl Workflows {
    /// Rows of workflows that are not listed are ignored.
    fn get(&mut self, id: i64) -> Option<&mut RunBuilder> {
        self.places.get(&id).map(|place| &mut self.builders[*place].1)
    }

    /// One run for each workflow that is not a sub-workflow of another one.
    fn recordings(&self) -> std::result::Result<Vec<Recording>, String> {
        let is_nested: HashSet<usize> = self.nested.values().flatten().map(|(_, place)| *place).collect();
        let mut is_read = HashSet::new();
        let mut recordings = Vec::new();
        let roots = (0..self.builders.len()).filter(|place| !is_nested.contains(place));
        // What is left is nested too deeply, or in itself.
        for root in roots.chain(0..self.builders.len()) {
            if !is_read.contains(&root) {
                recordings.push(self.recording(root, 0, &mut is_read)?);
            }
        }
        Ok(recordings)
    }

    fn recording(
        &self,
        place: usize,
        depth: usize,
        is_read: &mut HashSet<usize>,
    ) -> std::result::Result<Recording, String> {
        is_read.insert(place);
        let (name, builder) = &self.builders[place];
        let mut recording = builder.recording(name);
        let subworkflows = self.nested.get(&place).map_or(&[][..], Vec::as_slice);
        let nodes: HashSet<&str> = subworkflows.iter().map(|(node, _)| node.as_str()).collect();
        nested::mark_nodes(&mut recording.run, &nodes);
        let mut runs = Vec::new();
        for (node, inner) in subworkflows {
            if depth + 1 >= nested::MAX_DEPTH || is_read.contains(inner) {
                continue;
            }
            let mut found = self.recording(*inner, depth + 1, is_read)?;
            if recording.state == RunState::Ended {
                found.run.attempts.iter_mut().for_each(|attempt| attempt.running_since = None);
            }
            for warning in found.warnings {
                recording.warn(format!("{node}: {warning}"));
            }
            runs.push((node.clone(), found.run));
        }
        nested::merge(&mut recording.run, runs)?;
        Ok(recording)
    }
}

struct Reader<'a> {
    database: &'a Connection,
    n_rows: Cell<u64>,
    limits: &'a Limits,
}

impl Reader<'_> {
    /// Gives every row of a query to a function.
    fn each(&self, sql: &str, mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>) -> Outcome<()> {
        let mut query = self.database.prepare(sql)?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            self.n_rows.set(self.n_rows.get() + 1);
            self.limits.check_rows(self.n_rows.get())?;
            take(row)?;
        }
        Ok(())
    }

    fn workflows(&self) -> Outcome<Workflows> {
        let mut found = Workflows { builders: Vec::new(), places: HashMap::new(), nested: HashMap::new() };
        self.each("SELECT wf_id, dax_label, wf_uuid FROM workflow ORDER BY wf_id", |row| {
            let (label, uuid): (Option<String>, String) = (row.get(1)?, row.get(2)?);
            found.places.insert(row.get(0)?, found.builders.len());
            found.builders.push((label.unwrap_or(uuid), RunBuilder::default()));
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads when workflows started and whether they have ended since; a workflow may be started again.
    fn read_starts(&self, workflows: &mut Workflows) -> Outcome<()> {
        let sql = "SELECT wf_id, MIN(timestamp) FILTER (WHERE state = 'WORKFLOW_STARTED'),
                 MAX(timestamp) FILTER (WHERE state = 'WORKFLOW_STARTED')
                     <= MAX(timestamp) FILTER (WHERE state = 'WORKFLOW_TERMINATED')
             FROM workflowstate GROUP BY wf_id";
        self.each(sql, |row| {
            let started = row.get::<_, Option<f64>>(1)?.and_then(values::time);
            let is_over: Option<bool> = row.get(2)?;
            if let (Some(builder), Some(started)) = (workflows.get(row.get(0)?), started) {
                builder.start(started);
                if is_over == Some(true) {
                    builder.finish();
                }
            }
            Ok(())
        })
    }

    /// Reads which nodes run other workflows. Old databases do not have the column.
    fn read_subworkflows(&self, workflows: &mut Workflows) -> Outcome<()> {
        let sql = "SELECT COUNT(*) FROM pragma_table_info('job_instance') WHERE name = 'subwf_id'";
        let has_column: bool = self.database.query_row(sql, [], |row| row.get(0))?;
        if !has_column {
            return Ok(());
        }
        let sql = "SELECT j.wf_id, j.exec_job_id, i.subwf_id FROM job_instance i JOIN job j USING (job_id)
             WHERE i.subwf_id IS NOT NULL ORDER BY i.job_instance_id";
        self.each(sql, |row| {
            let places = &workflows.places;
            let (outer, inner) = (places.get(&row.get(0)?), places.get(&row.get(2)?));
            if let (Some(outer), Some(inner)) = (outer, inner) {
                workflows.nested.entry(*outer).or_default().push((row.get(1)?, *inner));
            }
            Ok(())
        })
    }

    fn read_edges(&self, workflows: &mut Workflows) -> Outcome<()> {
        let sql = "SELECT wf_id, parent_exec_job_id, child_exec_job_id FROM job_edge ORDER BY 1, 2, 3";
        self.each(sql, |row| {
            let (parent, child): (String, String) = (row.get(1)?, row.get(2)?);
            if let Some(builder) = workflows.get(row.get(0)?) {
                builder.graph_mut().add_edge(&parent, &child);
            }
            Ok(())
        })
    }

    fn read_states(&self, workflows: &mut Workflows) -> Outcome<()> {
        let sql = "SELECT j.wf_id, s.timestamp, j.exec_job_id, s.state, i.job_submit_seq, i.exitcode
             FROM jobstate s JOIN job_instance i USING (job_instance_id) JOIN job j USING (job_id)
             ORDER BY i.job_instance_id, s.jobstate_submit_seq";
        self.each(sql, |row| {
            let Some(builder) = workflows.get(row.get(0)?) else { return Ok(()) };
            let (at, task, state): (f64, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let (sequence, exit): (i64, Option<i32>) = (row.get(4)?, row.get(5)?);
            let has_failed = state.ends_with("FAILURE") || state.ends_with("FAILED");
            let code = || if has_failed { exit.filter(|code| *code != 0).unwrap_or(1) } else { 0 };
            let Some(kind) = jobstate::event_kind(&state, code) else { return Ok(()) };
            match values::time(at) {
                Some(at) => {
                    let attempt = Some(sequence.to_string());
                    builder.apply(TaskEvent { at: at.trunc(), task, attempt, kind });
                }
                None => builder.warn(format!("a state of {task} is skipped: {at} is not a time")),
            }
            Ok(())
        })
    }

    /// Adds hosts and CPU times.
    fn read_instances(&self, workflows: &mut Workflows) -> Outcome<()> {
        let sql = "SELECT j.wf_id, j.exec_job_id, h.hostname, v.cpu
             FROM job_instance i JOIN job j USING (job_id) LEFT JOIN host h USING (host_id)
             LEFT JOIN (SELECT job_instance_id, SUM(remote_cpu_time) AS cpu FROM invocation
                        WHERE task_submit_seq > 0 GROUP BY job_instance_id) v USING (job_instance_id)
             ORDER BY i.job_submit_seq";
        let mut n_seen: HashMap<(i64, String), u32> = HashMap::new();
        self.each(sql, |row| {
            let (id, task): (i64, String) = (row.get(0)?, row.get(1)?);
            let (host, cpu): (Option<String>, Option<f64>) = (row.get(2)?, row.get(3)?);
            let number = n_seen.entry((id, task.clone())).or_default();
            *number += 1;
            if let Some(attempt) = workflows.get(id).and_then(|builder| builder.numbered(&task, *number)) {
                attempt.host = host;
                attempt.cpu_seconds = cpu.and_then(values::cpu_time);
            }
            Ok(())
        })
    }
}
