//! The stampede database, in which Pegasus keeps its runs: SQLite, one run for each workflow.
//!
//! A database file can contain views that never end and trees that share pages, so it is read with the defences that
//! SQLite documents for files of strangers, only tables are read, and queries have a bound on steps, time and rows.
//! Every table is read once for all workflows.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use files::{LimitExceeded, Limits};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags, Row};

use super::events::TaskEvent;
use super::run_builder::RunBuilder;
use super::{Recording, jobstate, values};
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

/// Reads every workflow of the database. A sub-workflow is a run of its own.
pub fn read(path: &Path, limits: &Limits) -> Result<Vec<Recording>> {
    let failed = |error: Failure| Error::file(path, error.to_string());
    let database = open(path, limits).map_err(|error| failed(error.into()))?;
    check_schema(&database).map_err(failed)?;
    let reader = Reader { database: &database, n_rows: Cell::new(0), limits };
    let mut workflows = reader.workflows().map_err(failed)?;
    if workflows.builders.is_empty() {
        return Err(Error::file(path, "the database contains no workflow"));
    }
    reader.read_starts(&mut workflows).map_err(failed)?;
    reader.read_edges(&mut workflows).map_err(failed)?;
    reader.read_states(&mut workflows).map_err(failed)?;
    reader.read_instances(&mut workflows).map_err(failed)?;
    Ok(workflows.builders.into_iter().map(|(name, builder)| builder.recording(&name)).collect())
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
    let begun = Instant::now();
    let mut steps_left = MIN_STEPS.saturating_add(stored_bytes(path).saturating_mul(STEPS_PER_BYTE));
    let is_too_long = move || {
        steps_left = steps_left.saturating_sub(STEPS_PER_LOOK as u64);
        steps_left == 0 || begun.elapsed() > MAX_DURATION
    };
    database.progress_handler(STEPS_PER_LOOK, Some(is_too_long))?;
    Ok(database)
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
}

impl Workflows {
    /// Rows of workflows that are not listed are ignored.
    fn get(&mut self, id: i64) -> Option<&mut RunBuilder> {
        self.places.get(&id).map(|place| &mut self.builders[*place].1)
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
        let mut found = Workflows { builders: Vec::new(), places: HashMap::new() };
        self.each("SELECT wf_id, dax_label, wf_uuid FROM workflow ORDER BY wf_id", |row| {
            let (label, uuid): (Option<String>, String) = (row.get(1)?, row.get(2)?);
            found.places.insert(row.get(0)?, found.builders.len());
            found.builders.push((label.unwrap_or(uuid), RunBuilder::default()));
            Ok(())
        })?;
        Ok(found)
    }

    fn read_starts(&self, workflows: &mut Workflows) -> Outcome<()> {
        let sql =
            "SELECT wf_id, MIN(timestamp) FROM workflowstate WHERE state = 'WORKFLOW_STARTED' GROUP BY wf_id";
        self.each(sql, |row| {
            let started = row.get::<_, Option<f64>>(1)?.and_then(values::time);
            if let (Some(builder), Some(started)) = (workflows.get(row.get(0)?), started) {
                builder.start(started);
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
