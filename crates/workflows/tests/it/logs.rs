//! Readers of logs: complete, growing and damaged files.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use files::Limits;
use workflows::read::follow::LogFollower;
use workflows::read::{RunState, read, read_one};
use workflows::workflow::{Span, TaskAttempt, TaskRole, WorkflowRun};

fn fixture(name: &str) -> PathBuf {
    testbed::workspace().join("fixtures/workflows").join(name)
}

fn attempt<'a>(run: &'a WorkflowRun, task: &str, number: u32) -> &'a TaskAttempt {
    run.attempts.iter().find(|one| one.task.0 == task && one.attempt == number).unwrap()
}

#[test]
fn a_submit_directory_and_its_database_give_the_same_run() {
    let directory = read_one(&fixture("submit"), &Limits::default()).unwrap();
    let database = read_one(&fixture("submit/blackdiamond-0.stampede.db"), &Limits::default()).unwrap();
    assert_eq!([directory.state, database.state], [RunState::Ended; 2]);
    let (directory, database) = (directory.run, database.run);
    assert_eq!(directory.attempts.len(), database.attempts.len());
    for one in &directory.attempts {
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
    assert_eq!(attempt(&directory, "findrange_ID0000002", 1).exit_code, Some(1));
    let second = attempt(&directory, "findrange_ID0000002", 2);
    assert_eq!((second.exit_code, second.n_interruptions), (Some(0), 1));
    assert_eq!(second.execution, Span::new(1_700_000_180.0, 1_700_000_240.0).ok());
    let first = attempt(&directory, "preprocess_ID0000001", 1);
    assert_eq!(first.stage_in.map(Span::seconds), Some(8.0));
    assert_eq!(attempt(&directory, "stage_in_local_local_0_0", 1).role, TaskRole::Transfer);
    let delays = directory.delays();
    assert!(delays.iter().all(|delays| delays.wms_delay >= 0.0 && delays.finish > 0.0));
}

#[test]
fn dagman_and_jobstate_agree_on_what_both_know() {
    let by_monitor = read_one(&fixture("submit/jobstate.log"), &Limits::default()).unwrap().run;
    let by_dagman =
        read_one(&fixture("submit/blackdiamond-0.dag.dagman.out"), &Limits::default()).unwrap().run;
    for one in &by_monitor.attempts {
        let other = attempt(&by_dagman, &one.task.0, one.attempt);
        assert_eq!((one.submitted, one.execution), (other.submitted, other.execution), "{}", one.task.0);
    }
}

#[test]
fn event_logs_are_read_as_htcondor_reads_them() {
    let run = read_one(&fixture("events.log"), &Limits::default()).unwrap().run;
    // `fixtures/workflows/events.py` wrote the expected values with HTCondor's own reader.
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
fn a_growing_log_is_read_from_where_the_last_read_ended() {
    let folder = tempfile::tempdir().unwrap();
    for (name, file) in [("submit/jobstate.log", "jobstate.log"), ("events.log", "events.log")] {
        let whole = fs::read(fixture(name)).unwrap();
        let path = folder.path().join(file);
        fs::write(&path, b"").unwrap();
        let mut follower = LogFollower::open(&path, &Limits::default()).unwrap();
        assert!(!follower.catch_up().unwrap(), "nothing is there yet");
        for piece in whole.chunks(97) {
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(piece).unwrap();
            assert!(follower.catch_up().unwrap());
        }
        assert_eq!(
            follower.recording("x").run.attempts,
            read_one(&fixture(name), &Limits::default()).unwrap().run.attempts
        );
        fs::write(&path, b"short").unwrap();
        assert!(follower.catch_up().unwrap_err().to_string().contains("became shorter"));
    }
}

#[test]
fn instances_of_wfcommons_and_traces_of_nextflow_are_read() {
    let run = read_one(&fixture("instance-1.5.json"), &Limits::default()).unwrap().run;
    assert_eq!(run.attempts.len(), 3);
    let last = attempt(&run, "merge_3", 1);
    assert_eq!(
        (last.kind.as_str(), last.ready, last.execution.map(Span::seconds)),
        ("merge", Some(1_700_000_050.0), Some(10.0))
    );
    assert_eq!(last.cpu_seconds, Some(9.0));
    let cyclic = read_one(&fixture("cyclic.json"), &Limits::default()).unwrap();
    assert!(
        cyclic.warnings.iter().any(|warning| warning.contains("depends on itself")),
        "{:?}",
        cyclic.warnings
    );
    let trace = read_one(&fixture("trace.txt"), &Limits::default()).unwrap().run;
    let one = attempt(&trace, "FASTQC (sample1)", 1);
    assert_eq!(
        (one.kind.as_str(), one.exit_code, one.execution.map(Span::seconds)),
        ("FASTQC", Some(0), Some(58.5))
    );
    assert_eq!(one.delays(one.ready.unwrap()).queue, 1.5);
}

#[test]
fn tasks_of_an_instance_are_identified_by_their_ids_and_cycles_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("instance.json");
    let task =
        |id: &str, parents: &[&str]| serde_json::json!({ "id": id, "name": "work", "parents": parents });
    let ran = |id: &str, seconds: f64, at: Option<&str>| serde_json::json!({ "id": id, "runtimeInSeconds": seconds, "executedAt": at });
    let write = |tasks: [serde_json::Value; 3], ran: [serde_json::Value; 3]| {
        let instance = serde_json::json!({ "name": "same", "schemaVersion": "1.5", "workflow": {
            "specification": { "tasks": tasks }, "execution": { "executedAt": "2024-05-01T10:00:00", "tasks": ran },
        } });
        fs::write(&path, instance.to_string()).unwrap();
        read_one(&path, &Limits::default()).unwrap()
    };
    let begun = 1_714_557_600.0;
    // Times without a zone; the last task has none at all.
    let found = write(
        [task("a", &[]), task("b", &["a"]), task("c", &["b"])],
        [
            ran("a", 10.0, Some("2024-05-01T10:00:05")),
            ran("b", 4.0, Some("2024-05-01T10:00:20")),
            ran("c", 1.0, None),
        ],
    );
    assert_eq!(attempt(&found.run, "c", 1).execution, Span::new(begun + 24.0, begun + 25.0).ok());
    assert_eq!(
        (attempt(&found.run, "b", 1).ready, found.run.graph.dependencies().len()),
        (Some(begun + 15.0), 2)
    );
    assert!(found.warnings[0].starts_with("1 tasks have no start time"), "{:?}", found.warnings);
    // An edge that closes a cycle has no effect; an impossible task is skipped.
    let found = write(
        [task("a", &["b"]), task("b", &["a"]), task("c", &[])],
        [ran("a", 10.0, None), ran("b", 10.0, None), ran("c", -3.0, None)],
    );
    assert!(found.warnings.iter().any(|warning| warning.contains("a runtime of -3 s is impossible")));
    let ready: Vec<f64> = found.run.attempts.iter().filter_map(|one| one.ready).collect();
    assert!(ready.contains(&begun) && ready.contains(&(begun + 10.0)), "{ready:?}");
}

#[test]
fn event_logs_have_transfers_and_may_begin_late() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.log");
    let log = "001 (007.000.000) 2024-05-01 10:00:41 Job executing on host: <10.0.0.8:9618>\n...\n\
        000 (007.000.000) 2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618>\n    DAG Node: late\n...\n\
        005 (007.000.000) 2024-05-01 10:01:00 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n\
        000 (008.000.000) 2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618>\n    DAG Node: moved\n...\n\
        040 (008.000.000) 2024-05-01 10:00:10 Started transferring input files\n...\n\
        040 (008.000.000) 2024-05-01 10:00:40 Finished transferring input files\n...\n\
        001 (008.000.000) 2024-05-01 10:00:41 Job executing on host: <10.0.0.8:9618>\n...\n\
        040 (008.000.000) 2024-05-01 10:02:00 Started transferring output files\n...\n\
        040 (008.000.000) 2024-05-01 10:02:20 Finished transferring output files\n...\n\
        005 (008.000.000) 2024-05-01 10:02:21 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n\
        000 (009.000.000) 2024-05-01 12:00:00 Job submitted from host: <10.0.0.1:9618>\n    DAG Node: moved\n...\n\
        001 (009.000.000) 2024-05-01 12:00:30 Job executing on host: <10.0.0.8:9618>\n...\n";
    fs::write(&path, log).unwrap();
    let found = read_one(&path, &Limits::default()).unwrap();
    assert_eq!(found.run.attempts.len(), 3, "no task without a name stays");
    let late = attempt(&found.run, "late", 1);
    assert_eq!(
        (late.kind.as_str(), late.execution.map(Span::seconds), late.exit_code),
        ("late", Some(19.0), Some(0))
    );
    let delays = attempt(&found.run, "moved", 1).delays(0.0);
    assert_eq!((delays.queue, delays.stage_in, delays.runtime, delays.stage_out), (10.0, 30.0, 81.0, 20.0));
    // A task that is submitted again after it succeeded belongs to another run.
    assert!(found.warnings.iter().any(|warning| warning.starts_with("1 tasks were submitted again")));
    let running = attempt(&found.run, "moved", 2);
    assert_eq!(running.running_since.zip(found.run.end()).map(|(since, end)| end - since), Some(0.0));
}

#[test]
fn retries_of_nextflow_are_counted_and_duplicate_rows_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    let row =
        |status: &str, exit: &str| format!("A (1)\t{status}\t{exit}\t2024-05-01 10:00:00.000\t10s\t9s\n");
    fs::write(
        &path,
        format!(
            "name\tstatus\texit\tsubmit\tduration\trealtime\n{}{}",
            row("FAILED", "-"),
            row("COMPLETED", "0")
        ),
    )
    .unwrap();
    let run = read_one(&path, &Limits::default()).unwrap().run;
    assert_eq!(
        (attempt(&run, "A (1)", 1).exit_code, attempt(&run, "A (1)", 2).exit_code),
        (Some(-1), Some(0))
    );
    let path = folder.path().join("run.csv");
    let row = "x_1,compute,0,1700000000,1700000002,3\n";
    fs::write(&path, format!(",type,ready,submit,execute_start,runtime\n{row}{row}x_2,compute,,1,2,1e300\n"))
        .unwrap();
    let found = read_one(&path, &Limits::default()).unwrap();
    assert_eq!(found.run.attempts.len(), 1);
    assert_eq!(found.run.attempts[0].ready, None, "zero stands for an unknown time");
    let said = found.warnings.join("; ");
    assert!(said.contains("1 duplicate rows") && said.contains("the runtime of x_2 is impossible"), "{said}");
}

fn refused(path: &Path) -> String {
    let error = read(path, &Limits::default()).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn damaged_files_give_one_line_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    assert!(refused(&file("empty", b"")).contains("the file is empty"));
    assert!(refused(&file("noise", &[0, 159, 146, 150])).contains("unknown format"));
    assert!(refused(&file("half.json", b"{\"workflow\": ")).contains("not valid JSON"));
    assert!(refused(folder.path()).contains("not a submit directory of Pegasus"));
    assert!(refused(&file("bad.db", b"SQLite format 3\0 and then nothing")).contains("stampede"));
    assert!(refused(&file("head.csv", b",submit,runtime\n")).contains("the table contains no job"));
    // A log that is cut off, with a job that never ends and a clock that goes back.
    let log = b"1700000000 INTERNAL *** DAGMAN_STARTED 1.0 ***\n1700000010 a SUBMIT 2.0 local - 1\n1700000020 a EXECUTE 2.0 local - 1\n\
        1700000005 a JOB_TERMINATED 2.0 local - 1\nthis is no line\n1700000030 b SUBMIT 3.0 local - 2\n1700000031 b EXEC";
    let recording = read_one(&file("jobstate.log", log), &Limits::default()).unwrap();
    let (a, b) = (attempt(&recording.run, "a", 1), attempt(&recording.run, "b", 1));
    assert_eq!((a.execution.map(Span::seconds), b.execution), (Some(0.0), None));
    let said = recording.warnings.join("; ");
    for word in ["ended before they started", "line 5 is skipped", "cut off"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    // Rows that are short or make no sense are left out of a table.
    let table = b",type,ready,submit,execute_start,runtime\nx_1,compute,0,1,2,3\nx_2,compute,0\nx_3,compute,0,1,2,-5\n";
    let recording = read_one(&file("run.csv", table), &Limits::default()).unwrap();
    assert_eq!((recording.run.attempts.len(), recording.warnings.len()), (1, 3));
    assert!(
        recording.warnings[0].starts_with("the table has no column stage_in_delay"),
        "{:?}",
        recording.warnings
    );
    // When a task began is told from when it ended, and cells that are no numbers are named.
    let table = b",type,submit,execute_end,runtime,ready\nx_1,compute,1,7,5,banana\n";
    let recording = read_one(&file("ends.csv", table), &Limits::default()).unwrap();
    assert_eq!(recording.run.attempts[0].execution.map(Span::start), Some(2.0));
    assert!(
        recording.warnings.iter().any(|warning| warning == "line 2: ready is banana, which is not a time")
    );
    // Two workflows in one file.
    let two = [&log[..47], b"1700000050 c SUBMIT 4.0 local - 3\n", &log[..47]].concat();
    let recording = read_one(&file("two.log", &two), &Limits::default()).unwrap();
    assert!(
        recording.warnings.iter().any(|warning| warning.contains("started 2 times")),
        "{:?}",
        recording.warnings
    );
}

/// A tar archive of files, by their names in it.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        // Names that the library would refuse to write.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip_of(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz_of(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(6)).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_submit_directory_in_an_archive_is_read_as_it_is_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run0001.tar");
    let mut builder = tar::Builder::new(File::create(&path).unwrap());
    builder.append_dir_all("submit/run0001", fixture("submit")).unwrap();
    builder.into_inner().unwrap();
    let expected = read_one(&fixture("submit"), &Limits::default()).unwrap();
    assert!(read_one(&path, &Limits::default()).unwrap() == expected);
    let plain = fs::read(&path).unwrap();
    for (end, bytes) in
        [("gz", gzip_of(&plain)), ("xz", xz_of(&plain)), ("zst", zstd::encode_all(&*plain, 0).unwrap())]
    {
        let compressed = folder.path().join(format!("run0001.tar.{end}"));
        fs::write(&compressed, &bytes).unwrap();
        assert!(read_one(&compressed, &Limits::default()).unwrap() == expected, "{end}");
        let cut_off = folder.path().join(format!("cut.tar.{end}"));
        fs::write(&cut_off, &bytes[..bytes.len() / 2]).unwrap();
        assert!(refused(&cut_off).contains("the archive is damaged"), "{end}");
        let small = Limits { file_bytes: 10_000, ..Limits::default() };
        let error = read_one(&compressed, &small).unwrap_err().to_string();
        assert!(error.contains("limits.file_bytes") && !error.contains('\n'), "{end}: {error}");
    }
}

#[test]
fn an_archive_without_a_run_or_with_paths_that_lead_out_of_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.tar");
    let log = fs::read(fixture("submit/jobstate.log")).unwrap();
    for (files, complaint) in [
        (vec![("readme.txt", &b"nothing"[..])], "no submit directory in the archive"),
        (vec![("../jobstate.log", &log[..])], "leads out of it"),
        (vec![("/jobstate.log", &log[..])], "leads out of it"),
        (vec![("run/jobstate.log", &b""[..])], "no submitted task"),
    ] {
        fs::write(&path, archive(&files)).unwrap();
        let error = read_one(&path, &Limits::default()).unwrap_err().to_string();
        assert!(error.contains(complaint) && !error.contains('\n'), "{error}");
    }
    assert!(!folder.path().parent().unwrap().join("jobstate.log").exists());
}
