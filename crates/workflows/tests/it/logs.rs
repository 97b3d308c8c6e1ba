//! Logs of every kind, whole, growing and broken.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use workflows::read::follow::Follower;
use workflows::read::{read, read_one};
use workload::workflow::{Span, TaskAttempt, TaskRole, WorkflowRun};

fn fixture(name: &str) -> PathBuf {
    testbed::workspace().join("fixtures/workflows").join(name)
}

fn attempt<'a>(run: &'a WorkflowRun, task: &str, number: u32) -> &'a TaskAttempt {
    run.attempts.iter().find(|one| one.task.0 == task && one.attempt == number).unwrap()
}

#[test]
fn a_submit_folder_and_its_database_tell_the_same_story() {
    let folder = read_one(&fixture("submit")).unwrap().run;
    let database = read_one(&fixture("submit/blackdiamond-0.stampede.db")).unwrap().run;
    assert_eq!(folder.attempts.len(), database.attempts.len());
    for one in &folder.attempts {
        let other = attempt(&database, &one.task.0, one.attempt);
        assert_eq!(
            (one.ready, one.submitted, one.execution),
            (other.ready, other.submitted, other.execution)
        );
        assert_eq!((one.post_script, one.exit_code), (other.post_script, other.exit_code), "{}", one.task.0);
        assert_eq!(one.cpu_seconds, other.cpu_seconds, "{}", one.task.0);
        assert_eq!(one.host, other.host, "{}", one.task.0);
    }
    // The first attempt of `findrange` failed, the second was held and released.
    assert_eq!(attempt(&folder, "findrange_ID0000002", 1).exit_code, Some(1));
    let second = attempt(&folder, "findrange_ID0000002", 2);
    assert_eq!((second.exit_code, second.n_interruptions), (Some(0), 1));
    assert_eq!(second.execution, Span::new(1_700_000_180.0, 1_700_000_240.0).ok());
    let first = attempt(&folder, "preprocess_ID0000001", 1);
    assert_eq!(first.stage_in.map(Span::seconds), Some(8.0));
    assert_eq!(attempt(&folder, "stage_in_local_local_0_0", 1).role, TaskRole::Transfer);
    let delays = folder.delays();
    assert!(delays.iter().all(|delays| delays.workflow_system >= 0.0 && delays.finish > 0.0));
}

#[test]
fn dagman_and_jobstate_agree_on_what_both_know() {
    let by_monitor = read_one(&fixture("submit/jobstate.log")).unwrap().run;
    let by_dagman = read_one(&fixture("submit/blackdiamond-0.dag.dagman.out")).unwrap().run;
    for one in &by_monitor.attempts {
        let other = attempt(&by_dagman, &one.task.0, one.attempt);
        assert_eq!((one.submitted, one.execution), (other.submitted, other.execution), "{}", one.task.0);
    }
}

#[test]
fn event_logs_are_those_of_htcondor() {
    let run = read_one(&fixture("events.log")).unwrap().run;
    // What `fixtures/workflows/events.py` was told by HTCondor's own reader.
    let recorded: serde_json::Value =
        serde_json::from_slice(&fs::read(fixture("events.json")).unwrap()).unwrap();
    for one in recorded.as_array().unwrap() {
        let found = attempt(&run, one["task"].as_str().unwrap(), one["attempt"].as_u64().unwrap() as u32);
        assert_eq!(found.submitted, one["submitted"].as_f64());
        assert_eq!(found.execution.map(Span::start), one["start"].as_f64());
        assert_eq!(found.execution.map(Span::end), one["end"].as_f64());
        assert_eq!(found.exit_code.map(i64::from), one["exit_code"].as_i64());
        assert_eq!(u64::from(found.n_interruptions), one["interruptions"].as_u64().unwrap());
    }
    assert_eq!(recorded.as_array().unwrap().len(), run.attempts.len());
}

#[test]
fn a_growing_log_is_read_on_from_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    for (name, file) in [("submit/jobstate.log", "jobstate.log"), ("events.log", "events.log")] {
        let whole = fs::read(fixture(name)).unwrap();
        let path = folder.path().join(file);
        fs::write(&path, b"").unwrap();
        let mut follower = Follower::new(&path).unwrap();
        assert!(!follower.catch_up().unwrap(), "nothing is there yet");
        for piece in whole.chunks(97) {
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(piece).unwrap();
            assert!(follower.catch_up().unwrap());
        }
        assert_eq!(follower.recording("x").run.attempts, read_one(&fixture(name)).unwrap().run.attempts);
        fs::write(&path, b"short").unwrap();
        assert!(follower.catch_up().unwrap_err().to_string().contains("become shorter"));
    }
}

#[test]
fn instances_of_wfcommons_and_traces_of_nextflow_are_read() {
    let run = read_one(&fixture("instance-1.5.json")).unwrap().run;
    assert_eq!(run.attempts.len(), 3);
    let last = attempt(&run, "merge_3", 1);
    assert_eq!(
        (last.kind.as_str(), last.ready, last.execution.map(Span::seconds)),
        ("merge", Some(1_700_000_050.0), Some(10.0))
    );
    assert_eq!(last.cpu_seconds, Some(9.0));
    let cyclic = read_one(&fixture("cyclic.json")).unwrap();
    assert!(
        cyclic.warnings.iter().any(|warning| warning.contains("waits for itself")),
        "{:?}",
        cyclic.warnings
    );
    let trace = read_one(&fixture("trace.txt")).unwrap().run;
    let one = attempt(&trace, "FASTQC (sample1)", 1);
    assert_eq!(
        (one.kind.as_str(), one.exit_code, one.execution.map(Span::seconds)),
        ("FASTQC", Some(0), Some(58.5))
    );
    assert_eq!(one.delays(one.ready.unwrap()).queue, 1.5);
}

fn refused(path: &Path) -> String {
    let error = read(path).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn what_is_broken_is_said_in_a_line_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    assert!(refused(&file("empty", b"")).contains("it is empty"));
    assert!(refused(&file("noise", &[0, 159, 146, 150])).contains("it is none of"));
    assert!(refused(&file("half.json", b"{\"workflow\": ")).contains("it is no JSON"));
    assert!(refused(folder.path()).contains("no submit folder of Pegasus"));
    assert!(refused(&file("bad.db", b"SQLite format 3\0 and then nothing")).contains("stampede"));
    assert!(refused(&file("head.csv", b",submit,runtime\n")).contains("there is no job in it"));
    // A log that is cut off, with a job that never ends and a clock that goes back.
    let log = b"1700000000 INTERNAL *** DAGMAN_STARTED 1.0 ***\n1700000010 a SUBMIT 2.0 local - 1\n1700000020 a EXECUTE 2.0 local - 1\n\
        1700000005 a JOB_TERMINATED 2.0 local - 1\nthis is no line\n1700000030 b SUBMIT 3.0 local - 2\n1700000031 b EXEC";
    let recording = read_one(&file("jobstate.log", log)).unwrap();
    let (a, b) = (attempt(&recording.run, "a", 1), attempt(&recording.run, "b", 1));
    assert_eq!((a.execution.map(Span::seconds), b.execution), (Some(0.0), None));
    let said = recording.warnings.join("; ");
    for word in ["ended before they started", "line 5 is left out", "cut off"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    // Rows that are short or make no sense are left out of a table.
    let table = b",type,ready,submit,execute_start,runtime\nx_1,compute,0,1,2,3\nx_2,compute,0\nx_3,compute,0,1,2,-5\n";
    let recording = read_one(&file("run.csv", table)).unwrap();
    assert_eq!((recording.run.attempts.len(), recording.warnings.len()), (1, 3));
    assert!(
        recording.warnings[0].starts_with("there is no column stage_in_delay"),
        "{:?}",
        recording.warnings
    );
    // When a task began is told from when it ended, and cells that are no numbers are named.
    let table = b",type,submit,execute_end,runtime,ready\nx_1,compute,1,7,5,banana\n";
    let recording = read_one(&file("ends.csv", table)).unwrap();
    assert_eq!(recording.run.attempts[0].execution.map(Span::start), Some(2.0));
    assert!(
        recording.warnings.iter().any(|warning| warning == "line 2: ready is banana, which is no number")
    );
    // Two workflows in one file.
    let two = [&log[..47], b"1700000050 c SUBMIT 4.0 local - 3\n", &log[..47]].concat();
    let recording = read_one(&file("two.log", &two)).unwrap();
    assert!(
        recording.warnings.iter().any(|warning| warning.contains("started 2 times")),
        "{:?}",
        recording.warnings
    );
}
