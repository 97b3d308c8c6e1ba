//! Traces of Nextflow and stampede databases while they grow.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use files::Limits;
use rusqlite::Connection;
use workflows::read::follow::RunFollower;
use workflows::read::{RunState, read, read_one};
use workflows::workflow::{TaskAttempt, TaskName, TaskRole};

const TRACE: &str = "task_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\n\
    1\tALIGN (s1)\tCOMPLETED\t0\t2024-05-01 10:00:00.000\t20s\t18s\t90.0%\n\
    2\tALIGN (s2)\tABORTED\t-\t2024-05-01 10:00:00.000\t30s\t20s\t-\n\
    3\tMERGE\tCOMPLETED\t0\t2024-05-01 10:00:40.000\t10s\t9s\t80.0%\n";

#[test]
fn a_trace_of_nextflow_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.txt");
    fs::write(&whole, TRACE).unwrap();
    let expected = read_one(&whole, &Limits::default()).unwrap();
    assert_eq!((expected.run.attempts.len(), expected.state), (3, RunState::Unknown));
    assert!(expected.run.attempts[1].removed.is_some(), "Nextflow stopped it");
    let path = folder.path().join("trace.txt");
    fs::write(&path, "").unwrap();
    let mut follower = RunFollower::open(&path, &Limits::default()).unwrap();
    assert!(follower.poll().unwrap().is_none());
    let mut n_attempts = Vec::new();
    for piece in TRACE.as_bytes().chunks(23) {
        OpenOptions::new().append(true).open(&path).unwrap().write_all(piece).unwrap();
        let update = follower.poll().unwrap().unwrap();
        assert!(!update.is_over, "a trace does not say when the workflow is over");
        n_attempts.push(update.recording.run.attempts.len());
        if n_attempts.last() == Some(&3) {
            assert_eq!(update.recording.run.attempts, expected.run.attempts);
        }
    }
    assert!(
        n_attempts.is_sorted() && n_attempts.contains(&1) && n_attempts.ends_with(&[3]),
        "{n_attempts:?}"
    );
    // A last row without its end is used if it has all cells, and reported if it has not.
    fs::write(&path, TRACE.trim_end()).unwrap();
    assert_eq!(read_one(&path, &Limits::default()).unwrap().run.attempts.len(), 3);
    fs::write(&path, &TRACE[..TRACE.len() - 12]).unwrap();
    let cut = read_one(&path, &Limits::default()).unwrap();
    assert_eq!((cut.run.attempts.len(), cut.warnings.len()), (2, 1));
    assert!(cut.warnings[0].contains("cut off"), "{:?}", cut.warnings);
    // Nothing has ended yet.
    fs::write(&path, TRACE.split_inclusive('\n').next().unwrap()).unwrap();
    assert!(read_one(&path, &Limits::default()).unwrap().run.attempts.is_empty());
}

/// A database of Pegasus with the tables and columns that matter.
fn database(path: &Path) -> Connection {
    let database = Connection::open(path).unwrap();
    let tables = "CREATE TABLE workflow (wf_id INTEGER PRIMARY KEY, wf_uuid, dax_label);
        CREATE TABLE workflowstate (wf_id, state, timestamp);
        CREATE TABLE job (job_id INTEGER PRIMARY KEY, wf_id, exec_job_id);
        CREATE TABLE job_edge (wf_id, parent_exec_job_id, child_exec_job_id);
        CREATE TABLE host (host_id INTEGER PRIMARY KEY, hostname);
        CREATE TABLE job_instance (job_instance_id INTEGER PRIMARY KEY, job_id, host_id, job_submit_seq, exitcode, subwf_id);
        CREATE TABLE jobstate (job_instance_id, state, timestamp, jobstate_submit_seq);
        CREATE TABLE invocation (job_instance_id, task_submit_seq, remote_cpu_time);
        INSERT INTO workflow VALUES (1, 'u1', 'outer');
        INSERT INTO workflowstate VALUES (1, 'WORKFLOW_STARTED', 1700000000);
        INSERT INTO job VALUES (1, 1, 'fetch'), (2, 1, 'plan_ID2');
        INSERT INTO job_edge VALUES (1, 'fetch', 'plan_ID2');";
    database.execute_batch(tables).unwrap();
    database
}

const FETCH: &str = "INSERT INTO job_instance VALUES (1, 1, NULL, 1, NULL, NULL);
    INSERT INTO jobstate VALUES (1, 'SUBMIT', 1700000005, 1), (1, 'EXECUTE', 1700000010, 2);";
const FETCH_ENDS: &str =
    "INSERT INTO jobstate VALUES (1, 'JOB_TERMINATED', 1700000030, 3), (1, 'JOB_SUCCESS', 1700000030, 4);
    INSERT INTO host VALUES (1, 'worker-1'); UPDATE job_instance SET host_id = 1, exitcode = 0;";
const INNER: &str = "INSERT INTO workflow VALUES (2, 'u2', 'inner');
    INSERT INTO workflowstate VALUES (2, 'WORKFLOW_STARTED', 1700000040);
    INSERT INTO job VALUES (3, 2, 'count1'), (4, 2, 'count2'), (5, 2, 'count3');
    INSERT INTO job_instance VALUES (2, 2, NULL, 2, NULL, 2), (3, 3, NULL, 1, NULL, NULL);
    INSERT INTO jobstate VALUES (2, 'SUBMIT', 1700000035, 1), (2, 'EXECUTE', 1700000038, 2),
        (3, 'SUBMIT', 1700000045, 1), (3, 'JOB_HELD', 1700000050, 2);";
const INNER_GOES_ON: &str =
    "INSERT INTO jobstate VALUES (3, 'JOB_RELEASED', 1700000070, 3), (3, 'EXECUTE', 1700000075, 4);
    INSERT INTO job_instance VALUES (4, 4, NULL, 2, NULL, NULL), (5, 5, NULL, 3, NULL, NULL);
    INSERT INTO jobstate VALUES (4, 'SUBMIT', 1700000076, 1), (5, 'SUBMIT', 1700000077, 1);";
const END: &str = "INSERT INTO workflowstate VALUES (1, 'WORKFLOW_TERMINATED', 1700000099);";

#[test]
fn a_stampede_database_is_followed_and_its_subworkflows_are_part_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for journal in ["delete", "wal"] {
        let path = folder.path().join(format!("{journal}.stampede.db"));
        let writer = database(&path);
        writer.pragma_update(None, "journal_mode", journal).unwrap();
        let mut follower = RunFollower::open(&path, &Limits::default()).unwrap();
        let started = follower.poll().unwrap().unwrap().recording;
        assert_eq!((started.state, started.run.attempts.len()), (RunState::Running, 0));
        let names = |attempts: &[TaskAttempt]| -> Vec<String> {
            attempts.iter().map(|one| one.task.0.clone()).collect()
        };
        let mut step = |sql: &str| {
            writer.execute_batch(sql).unwrap();
            let update = follower.poll().unwrap().unwrap();
            assert!(follower.poll().unwrap().is_none(), "nothing was written");
            assert_eq!(update.recording, read_one(&path, &Limits::default()).unwrap());
            update
        };
        let update = step(FETCH);
        assert_eq!(update.recording.run.attempts[0].running_since, Some(1_700_000_010.0));
        let update = step(FETCH_ENDS);
        assert_eq!(update.recording.run.attempts[0].host.as_deref(), Some("worker-1"));
        let update = step(INNER);
        let run = &update.recording.run;
        assert_eq!(names(&run.attempts), ["fetch", "plan_ID2", "plan_ID2/count1"]);
        assert_eq!(
            (run.attempts[1].role, run.attempts[1].kind.as_str()),
            (TaskRole::Auxiliary, "sub-workflow")
        );
        assert_eq!(run.attempts[2].held_since, Some(1_700_000_050.0));
        let first = TaskName("plan_ID2/count1".into());
        let waits_for_fetch = run
            .graph
            .dependencies()
            .iter()
            .any(|one| one.parents[0].0 == "fetch" && one.children.contains(&first));
        assert!(waits_for_fetch, "{:?}", run.graph);
        let update = step(INNER_GOES_ON);
        let kinds: Vec<&str> =
            update.recording.run.attempts[2..].iter().map(|one| one.kind.as_str()).collect();
        assert_eq!(kinds, ["count"; 3], "numbered tasks of the sub-workflow");
        assert_eq!((update.recording.run.attempts[2].held_seconds(), update.is_over), (20.0, false));
        let update = step(END);
        assert!(update.is_over && update.recording.state == RunState::Ended);
        assert!(update.recording.run.attempts.iter().all(|one| one.running_since.is_none()));
        // A workflow that is started again runs again.
        assert!(!step("INSERT INTO workflowstate VALUES (1, 'WORKFLOW_STARTED', 1700000200)").is_over);
    }
}

#[test]
fn a_database_whose_workflows_contain_each_other_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.stampede.db");
    let writer = database(&path);
    writer.execute_batch(&[FETCH, INNER].concat()).unwrap();
    // The inner workflow runs the outer one, and itself.
    writer
        .execute_batch(
            "INSERT INTO job VALUES (6, 2, 'again'), (7, 2, 'itself');
             INSERT INTO job_instance VALUES (6, 6, NULL, 6, NULL, 1), (7, 7, NULL, 7, NULL, 2);
             INSERT INTO jobstate VALUES (6, 'SUBMIT', 1700000090, 1), (7, 'SUBMIT', 1700000091, 1);",
        )
        .unwrap();
    let runs = read(&path, &Limits::default()).unwrap();
    let n_attempts: usize = runs.iter().map(|one| one.run.attempts.len()).sum();
    assert_eq!((runs.len(), n_attempts), (1, 5), "every attempt once");
}
