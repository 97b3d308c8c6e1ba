//! Input that somebody wrote to do harm: each gives one clear error or warning, soon and without much memory.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use files::Limits;
use workflows::Dataset;
use workflows::draw::{Gantt, Style, html, svg};
use workflows::read::follow::LogParser;
use workflows::read::{read, read_one};

use crate::stopwatch::Stopwatch;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn refused(path: &Path, limits: &Limits) -> String {
    let watch = Stopwatch::start();
    let error = read(path, limits).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(watch.seconds() < 10.0, "{error}");
    error
}

#[test]
fn impossible_times_are_named_with_their_line_and_draw_a_bounded_chart() {
    let folder = Folder::new();
    let jobstate = "1700000000 a SUBMIT 1.0 local - 1\ninf b SUBMIT 2.0 local - 2\nnan b SUBMIT 2.0 local - 2\n\
        1e300 b SUBMIT 2.0 local - 2\n-5 b SUBMIT 2.0 local - 2\n";
    let nextflow = "name\tsubmit\tcomplete\tduration\trealtime\tstart\n\
        A (1)\t1700000000000\tinf\t10s\t9s\t1700000000000\nB (1)\tinf\t1\t1\t1\t1\nC (1)\t1700000000000\t-\t1e300\tnan\t-\n";
    let table = ",type,ready,submit,execute_start,execute_end,runtime,stage_in_bytes\n\
        x_1,compute,inf,1,2,,3,inf\nx_2,compute,1,1e300,2,,3,4\n";
    let instance = r#"{"name":"x","workflow":{"tasks":[
        {"name":"a","runtime":5,"executedAt":1e300,"avgCPU":1e308},{"name":"b","runtime":5,"executedAt":-7}]}}"#;
    for (name, text, expected) in [
        ("jobstate.log", jobstate, "line 2 is skipped: \"inf\" is not a time"),
        ("trace.txt", nextflow, "line 2: complete is inf, which is not a time"),
        ("run.csv", table, "line 2: ready is inf, which is not a time"),
        ("instance.json", instance, "a: executedAt is 1e+300, which is not a time"),
    ] {
        let found = read_one(&folder.file(name, text), &Limits::default()).unwrap();
        assert!(found.warnings.iter().any(|warning| warning == expected), "{name}: {:?}", found.warnings);
        assert!(found.run.makespan() < 1e9, "{name}: {}", found.run.makespan());
        for attempt in &found.run.attempts {
            let numbers = [attempt.cpu_seconds, attempt.stage_in_bytes, attempt.ready, attempt.submitted];
            assert!(numbers.into_iter().flatten().all(f64::is_finite), "{name}: {attempt:?}");
        }
        svg(&Gantt::new(&found.run), Style::Named, 800.0);
    }
    for seconds in [f64::INFINITY, f64::NAN, 1e300, 0.0] {
        let gantt = Gantt { name: "x".into(), rows: Vec::new(), seconds };
        assert!(svg(&gantt, Style::Named, 800.0).len() < 10_000, "{seconds}");
    }
}

#[test]
fn names_cannot_break_out_of_a_chart_or_a_page() {
    let folder = Folder::new();
    let name = "<!--<script>alert(1)</script>\u{1b}[31m\u{1}&\u{2028}";
    let instance =
        serde_json::json!({ "name": name, "workflow": { "tasks": [{ "name": name, "runtime": 5 }] } });
    let path = folder.file("instance.json", instance.to_string());
    let gantt = Gantt::new(&read_one(&path, &Limits::default()).unwrap().run);
    report::png(&svg(&gantt, Style::Named, 800.0), 1.0).unwrap();
    let page = html(&gantt);
    assert_eq!(page.matches("<script").count(), 2, "the data and the script of the page");
    assert!(!page.contains("<!--") && !page.contains('\u{1b}'));
}

fn stampede(path: &Path, workflow: &str) {
    let database = rusqlite::Connection::open(path).unwrap();
    let tables = "CREATE TABLE workflowstate (wf_id, state, timestamp); CREATE TABLE job (job_id, wf_id, exec_job_id);
        CREATE TABLE job_edge (wf_id, parent_exec_job_id, child_exec_job_id); CREATE TABLE host (host_id, hostname);
        CREATE TABLE job_instance (job_instance_id, job_id, host_id, job_submit_seq, exitcode);
        CREATE TABLE jobstate (job_instance_id, state, timestamp, jobstate_submit_seq);
        CREATE TABLE invocation (job_instance_id, task_submit_seq, remote_cpu_time);";
    database.execute_batch(&format!("{workflow}; {tables}")).unwrap();
}

#[test]
fn a_database_with_a_view_instead_of_a_table_is_refused() {
    let folder = Folder::new();
    let endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS wf_id, 'x' AS dax_label, \
        'x' AS wf_uuid FROM r";
    for (file, schema, found) in [
        ("view.db", format!("CREATE VIEW workflow AS {endless}"), "workflow is a view"),
        ("upper.db", format!("CREATE VIEW WorkFlow AS {endless}"), "workflow is a view"),
        (
            "virtual.db",
            "CREATE VIRTUAL TABLE workflow USING fts5(wf_id, dax_label, wf_uuid)".into(),
            "a virtual table",
        ),
        ("none.db", "CREATE TABLE other (a)".into(), "workflow is missing"),
    ] {
        let path = folder.0.path().join(file);
        stampede(&path, &schema);
        let error = refused(&path, &Limits::default());
        assert!(error.contains(found), "{error}");
    }
}

#[test]
fn a_database_whose_tables_multiply_is_refused() {
    let folder = Folder::new();
    let path = folder.0.path().join("product.db");
    // Every state belongs to every instance, and every instance to every job.
    let rows = |from: &str| {
        format!("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3000) {from}")
    };
    stampede(
        &path,
        "CREATE TABLE workflow (wf_id, dax_label, wf_uuid); INSERT INTO workflow VALUES (1, 'x', 'x')",
    );
    let database = rusqlite::Connection::open(&path).unwrap();
    database.execute_batch(&rows("INSERT INTO job SELECT 1, 1, 'a' FROM r")).unwrap();
    database.execute_batch(&rows("INSERT INTO job_instance SELECT 1, 1, 1, 1, 0 FROM r")).unwrap();
    database.execute_batch(&rows("INSERT INTO jobstate SELECT 1, 'SUBMIT', 5, 1 FROM r")).unwrap();
    drop(database);
    let error = refused(&path, &Limits { rows: 100_000, ..Limits::default() });
    assert!(error.contains("limits.rows") || error.contains("too many steps"), "{error}");
}

#[test]
fn records_of_tasks_are_read_only_from_their_directory_and_only_at_both_ends() {
    let folder = Folder::new();
    let record = |host: &str| format!("- invocation: True\n  hostname: {host}\n");
    folder.file("secret.out.000", record("secret"));
    folder.file("runs/link.dag", "JOB ../secret ../secret.sub\n");
    let tasks = ["../secret", "long", "plain"];
    let log: String = tasks
        .iter()
        .enumerate()
        .flat_map(|(at, task)| {
            ["SUBMIT", "EXECUTE", "JOB_TERMINATED"]
                .map(|event| format!("1700000000 {task} {event} {at}.0 local - {at}\n"))
        })
        .collect();
    folder.file("runs/jobstate.log", log);
    folder.file("runs/plain.out.000", record("plain"));
    let long = fs::File::create(folder.0.path().join("runs/long.out.000")).unwrap();
    (&long).write_all(record("long").as_bytes()).unwrap();
    // A terabyte without costing disk space.
    long.set_len(1 << 40).unwrap();
    let found = read_one(&folder.0.path().join("runs"), &Limits::default()).unwrap();
    let hosts: Vec<Option<&str>> = found.run.attempts.iter().map(|one| one.host.as_deref()).collect();
    assert_eq!(hosts, [None, Some("long"), Some("plain")]);
    assert!(found.warnings.iter().any(|warning| warning.starts_with("long.out.000 is long")));
}

#[test]
fn a_sub_workflow_that_contains_itself_is_not_followed() {
    let folder = Folder::new();
    let graph: String = (0..10).map(|at| format!("SUBDAG EXTERNAL n{at} loop{at}/x.dag\n")).collect();
    folder.file("x.dag", graph);
    folder.file("jobstate.log", "1700000000 a SUBMIT 1.0 local - 1\n");
    for at in 0..10 {
        symlink(".", folder.0.path().join(format!("loop{at}"))).unwrap();
    }
    assert_eq!(read_one(folder.0.path(), &Limits::default()).unwrap().run.attempts.len(), 1);
}

#[test]
fn every_reader_has_limits_and_names_the_setting() {
    let folder = Folder::new();
    let limits =
        Limits { record_bytes: 1_000_000, document_bytes: 1_000_000, rows: 1_000, ..Limits::default() };
    let header = ",type,ready,submit,execute_start,runtime\n";
    let long = "x".repeat(4_000_000);
    let rows: String = (0..2_000).map(|at| format!("a_{at},compute,0,1,2,3\n")).collect();
    let submits: String =
        (0..2_000).map(|at| format!("1700000000 t_{at} SUBMIT 1.0 local - {at}\n")).collect();
    let event = "000 (1.000.000) 2024-05-01 10:00:00 Job submitted\n";
    for (name, text, setting) in [
        ("cell.csv", format!("{header}a,compute,0,1,2,\"{long}"), "limits.record_bytes"),
        (
            "header.csv",
            format!("submit,runtime\n{header}{long}").replacen(header, "", 1),
            "limits.record_bytes",
        ),
        ("rows.csv", format!("{header}{rows}"), "limits.rows"),
        ("line.log", format!("1700000000 t SUBMIT 1.0 local - 1\n{long}"), "limits.record_bytes"),
        ("tasks.log", submits, "limits.rows"),
        ("event.log", format!("{event}{}", "and so on\n".repeat(400_000)), "limits.record_bytes"),
        ("instance.json", format!("{{\"name\":\"{long}\"}}"), "limits.document_bytes"),
        ("trace.txt", format!("name\tsubmit\tduration\n{long}"), "limits.record_bytes"),
    ] {
        let error = refused(&folder.file(name, text), &limits);
        assert!(error.contains(setting), "{name}: {error}");
    }
    folder.file("run/jobstate.log", "1700000000 t SUBMIT 1.0 local - 1\n");
    folder.file("run/x.dag", &long);
    let error = refused(&folder.0.path().join("run"), &limits);
    assert!(error.contains("x.dag") && error.contains("limits.document_bytes"), "{error}");
    let mut parser = LogParser::new(&Limits { file_bytes: 100, ..Limits::default() });
    let error = parser.push("1700000000 t SUBMIT 1.0 local - 1\n".repeat(4).as_bytes()).unwrap_err();
    assert!(error.contains("limits.file_bytes"), "{error}");
}

fn packed(folder: &Folder, name: &str, members: &[(&str, &[u8])]) -> PathBuf {
    let path = folder.0.path().join(name);
    let encoder = zstd::Encoder::new(fs::File::create(&path).unwrap(), 3).unwrap();
    let mut archive = tar::Builder::new(encoder);
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, *bytes).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
    path
}

#[test]
fn an_archive_of_runs_cannot_expand_without_bounds() {
    let folder = Folder::new();
    let header = ",type,ready,submit,execute_start,runtime\n";
    let good = format!("{header}a_1,compute,0,1,2,3\n");
    let cell = format!("{header}\"{}", "x".repeat(80 << 20));
    let many = format!("{header}{}", "a,compute,0,1,2,3\n".repeat(5_000_000));
    for (name, text) in [("cell.tar.zst", &cell), ("rows.tar.zst", &many)] {
        let members: [(&str, &[u8]); 1] = [("normal/w-run0001.csv", text.as_bytes())];
        let path = packed(&folder, name, &members);
        let error = Dataset::read(&path, &Limits::default()).unwrap_err().to_string();
        assert!(error.contains("limits."), "{error}");
    }
    let members: [(&str, &[u8]); 2] =
        [("normal/w-run0001.csv", good.as_bytes()), ("normal/w-run0002.csv", &cell.as_bytes()[..5 << 20])];
    let path = packed(&folder, "mixed.tar.zst", &members);
    let limits = Limits { record_bytes: 1 << 20, ..Limits::default() };
    let error = Dataset::read(&path, &limits).unwrap_err().to_string();
    assert!(error.contains("normal/w-run0002.csv") && error.contains("limits.record_bytes"), "{error}");
}

#[test]
fn an_archive_that_is_cut_off_is_refused() {
    let folder = Folder::new();
    let rows: String = (0..5_000).map(|at| format!("a_{at},compute,0,{at},{},3\n", at * 7 % 1_000)).collect();
    let table = format!(",type,ready,submit,execute_start,runtime\n{rows}");
    let path = packed(&folder, "runs.tar.zst", &[("normal/w-run0001.csv", table.as_bytes())]);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = Dataset::read(&path, &Limits::default()).unwrap_err().to_string();
    assert!(error.contains("the archive is damaged"), "{error}");
}
