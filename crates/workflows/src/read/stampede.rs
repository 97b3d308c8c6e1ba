//! The stampede database, in which Pegasus keeps its runs: SQLite, one run for each workflow.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::Recording;
use super::jobstate;
use super::run_builder::RunBuilder;
use crate::error::{Error, Result};

pub fn is_database(first: &[u8]) -> bool {
    first.starts_with(b"SQLite format 3\0")
}

/// Reads every workflow of the database. A sub-workflow is a run of its own.
pub fn read(path: &Path) -> Result<Vec<Recording>> {
    let wrong =
        |error: rusqlite::Error| Error::file(path, format!("not a readable stampede database: {error}"));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).map_err(wrong)?;
    let mut workflows =
        database.prepare("SELECT wf_id, dax_label, wf_uuid FROM workflow ORDER BY wf_id").map_err(wrong)?;
    let known: Vec<(i64, Option<String>, String)> = workflows
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .and_then(Iterator::collect)
        .map_err(wrong)?;
    if known.is_empty() {
        return Err(Error::file(path, "the database contains no workflow"));
    }
    known
        .into_iter()
        .map(|(id, label, uuid)| {
            let name = label.unwrap_or(uuid);
            workflow(&database, id, &name).map_err(wrong)
        })
        .collect()
}

fn workflow(database: &Connection, id: i64, name: &str) -> rusqlite::Result<Recording> {
    let mut builder = RunBuilder::default();
    let started: Option<f64> = database.query_row(
        "SELECT MIN(timestamp) FROM workflowstate WHERE wf_id = ? AND state = 'WORKFLOW_STARTED'",
        [id],
        |row| row.get(0),
    )?;
    if let Some(started) = started {
        builder.start(started);
    }
    let mut edges = database.prepare(
        "SELECT parent_exec_job_id, child_exec_job_id FROM job_edge WHERE wf_id = ? ORDER BY 1, 2",
    )?;
    let mut rows = edges.query([id])?;
    while let Some(row) = rows.next()? {
        let (parent, child): (String, String) = (row.get(0)?, row.get(1)?);
        builder.add_edge(&parent, &child);
    }
    // A row has the fields of a line of jobstate.log.
    let mut states = database.prepare(
        "SELECT s.timestamp, j.exec_job_id, s.state, i.job_submit_seq, i.exitcode
         FROM jobstate s JOIN job_instance i USING (job_instance_id) JOIN job j USING (job_id)
         WHERE j.wf_id = ? ORDER BY i.job_instance_id, s.jobstate_submit_seq",
    )?;
    let mut rows = states.query([id])?;
    while let Some(row) = rows.next()? {
        let (at, task, state): (f64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let (sequence, exit): (i64, Option<i32>) = (row.get(3)?, row.get(4)?);
        let detail = if state.ends_with("FAILURE") || state.ends_with("FAILED") {
            exit.filter(|code| *code != 0).unwrap_or(1)
        } else {
            0
        };
        let line = format!("{} {task} {state} {detail} - - {sequence}", at as i64);
        if let Err(reason) = jobstate::apply(&line, &mut builder) {
            builder.warn(format!("a state of {task} is skipped: {reason}"));
        }
    }
    let mut more = database.prepare(
        "SELECT j.exec_job_id, i.job_submit_seq, h.hostname,
                (SELECT SUM(v.remote_cpu_time) FROM invocation v
                 WHERE v.job_instance_id = i.job_instance_id AND v.task_submit_seq > 0)
         FROM job_instance i JOIN job j USING (job_id) LEFT JOIN host h USING (host_id)
         WHERE j.wf_id = ? ORDER BY i.job_submit_seq",
    )?;
    let mut rows = more.query([id])?;
    let mut seen: std::collections::HashMap<String, u32> = std::collections::HashMap::new();
    while let Some(row) = rows.next()? {
        let (task, host, cpu): (String, Option<String>, Option<f64>) =
            (row.get(0)?, row.get(2)?, row.get(3)?);
        let number = seen.entry(task.clone()).or_default();
        *number += 1;
        if let Some(attempt) = builder.numbered(&task, *number) {
            attempt.host = host;
            attempt.cpu_seconds = cpu;
        }
    }
    Ok(builder.recording(name))
}
