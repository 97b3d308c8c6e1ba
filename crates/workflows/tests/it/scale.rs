//! A hundred thousand tasks in seconds, however their names, attempts, machines and dependencies are distributed.
//! Code that is quadratic in any of them needs minutes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use files::Limits;
use workflows::anomalous_tasks::rank;
use workflows::classify::baseline::Baseline;
use workflows::classify::{ClassifierKind, ClassifierSettings, TrainedClassifier, TrainingPlan};
use workflows::compare::compare;
use workflows::draw::{Gantt, Style, html, svg};
use workflows::features::RunSummary;
use workflows::graph::{Dependency, Graph};
use workflows::inject::{Fault, Machine, inject};
use workflows::read::{dag, read, read_one};
use workflows::unfinished::first_fraction;
use workflows::workflow::{Span, TaskAttempt, TaskRole, WorkflowRun};
use workflows::{Dataset, LabelledRun, Recording};
use workload::Stop;

use crate::stopwatch::Stopwatch;

const N_TASKS: usize = 100_000;
/// Generous for a machine without optimisation.
const MAX_SECONDS: f64 = 10.0;

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let watch = Stopwatch::start();
    let result = work();
    let seconds = watch.seconds();
    assert!(seconds < MAX_SECONDS, "{what} took {seconds:.1} s");
    result
}

fn task(name: String, kind: &str, at: f64) -> TaskAttempt {
    TaskAttempt {
        host: Some("one".into()),
        ready: Some(at),
        submitted: Some(at),
        execution: Span::new(at + 1.0, at + 9.0).ok(),
        stage_in: Span::new(at + 1.0, at + 2.0).ok(),
        cpu_seconds: Some(5.0),
        exit_code: Some(0),
        ..TaskAttempt::new(name, TaskRole::Compute, kind, 1)
    }
}

/// A name without a number, so that it is a kind of its own.
fn word(mut number: usize) -> String {
    let mut word = String::from("t");
    for _ in 0..5 {
        word.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
    }
    word
}

/// Everything that can be done with a run, apart from reading it.
fn use_everywhere(run: &WorkflowRun) {
    let gantt = timed("a chart", || Gantt::new(run));
    timed("SVG", || svg(&gantt, Style::Named, 1_000.0));
    timed("HTML", || html(&gantt));
    let fault = Fault::parse("cpu_2").unwrap();
    let faulty = timed("injecting", || inject(run, fault, &Machine::default(), 1).unwrap());
    assert_eq!(faulty.attempts.len(), run.attempts.len());
    timed("comparing", || compare(run, &faulty));
    timed("unfinished", || first_fraction(run, 0.5));
}

#[test]
fn a_chain_of_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let (mut log, mut graph) = (String::new(), String::new());
    for at in 0..N_TASKS {
        let time = 1_700_000_000 + 10 * at;
        for (event, later) in [("SUBMIT", 0), ("EXECUTE", 1), ("JOB_TERMINATED", 9)] {
            writeln!(log, "{} t_{at} {event} {at}.0 local - {at}", time + later).unwrap();
        }
        writeln!(graph, "JOB t_{at} 00/t_{at}.sub\nPARENT t_{at} CHILD t_{}", at + 1).unwrap();
    }
    fs::write(folder.path().join("jobstate.log"), log).unwrap();
    fs::write(folder.path().join("chain.dag"), graph).unwrap();
    let run = timed("reading", || read_one(folder.path(), &Limits::default()).unwrap().run);
    assert_eq!(run.attempts.len(), N_TASKS);
    assert!(Gantt::new(&run).rows.iter().all(|row| row.is_critical));
    use_everywhere(&run);
    let faulty = inject(&run, Fault::parse("hdd_50").unwrap(), &Machine::default(), 1).unwrap();
    assert!(faulty.makespan() > run.makespan(), "every task waits for the one before it");
}

#[test]
fn a_chain_without_a_graph() {
    let attempts = (0..N_TASKS).map(|at| task(format!("t_{at}"), "t", 10.0 * at as f64)).collect();
    let run = WorkflowRun { name: "chain".into(), attempts, ..WorkflowRun::default() };
    assert!(Gantt::new(&run).rows.iter().all(|row| row.is_critical));
    use_everywhere(&run);
}

#[test]
fn tasks_that_run_at_the_same_time_on_few_or_many_machines() {
    for n_machines in [1, 300, N_TASKS] {
        let attempt = |at: usize| {
            // Thousands run at any time.
            let start = 1.7e9 + 0.01 * at as f64;
            TaskAttempt {
                host: Some(format!("machine-{}", at % n_machines)),
                execution: Span::new(start, start + 60.0 + (at % 97) as f64).ok(),
                stage_in: None,
                ..task(format!("t_{at}"), "t", start)
            }
        };
        let attempts = (0..N_TASKS).map(attempt).collect();
        let run = WorkflowRun { name: "crowd".into(), attempts, ..WorkflowRun::default() };
        use_everywhere(&run);
    }
}

#[test]
fn names_that_end_in_digits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    let mut table = String::from(",type,ready,submit,execute_start,runtime\n");
    for at in 0..N_TASKS {
        writeln!(table, "mProject{at},compute,{at},{at},{at},5").unwrap();
    }
    fs::write(&path, table).unwrap();
    let found = timed("reading", || read_one(&path, &Limits::default()).unwrap());
    assert!(found.run.attempts.iter().all(|one| one.kind == "mProject"));
}

#[test]
fn attempts_at_one_task() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.csv");
    let mut table = String::from(",type,ready,submit,execute_start,runtime\n");
    for at in 0..120_000 {
        writeln!(table, "same,compute,{at},{at},{at},5").unwrap();
        writeln!(table, "same,compute,{at},{at},{at},5").unwrap();
    }
    fs::write(&path, table).unwrap();
    let found = timed("reading", || read_one(&path, &Limits::default()).unwrap());
    assert_eq!(found.run.attempts.last().map(|one| one.attempt), Some(120_000));
    assert!(found.warnings.iter().any(|warning| warning == "120000 duplicate rows are skipped"));
    use_everywhere(&found.run);
}

#[test]
fn kinds_with_one_task_each() {
    let run = |name: &str, n_tasks: usize| {
        let attempts = (0..n_tasks).map(|at| task(word(at), &word(at), 0.1 * at as f64)).collect();
        WorkflowRun { name: name.into(), attempts, ..WorkflowRun::default() }
    };
    use_everywhere(&run("all", N_TASKS));
    let runs: Vec<LabelledRun> = (0..2)
        .map(|at| Recording { run: run(&format!("r{at}"), 40_000), ..Recording::default() })
        .map(|recording| LabelledRun::new(recording, "normal"))
        .collect();
    let plan = TrainingPlan::new(ClassifierKind::Baseline, ClassifierSettings::default()).unwrap();
    let all: Vec<&LabelledRun> = runs.iter().collect();
    let classifier =
        timed("training", || TrainedClassifier::train(&plan, &all, &[], &Stop::default(), |_| {}).unwrap());
    let slow =
        inject(&runs[0].recording.run, Fault::parse("loss_5").unwrap(), &Machine::default(), 1).unwrap();
    for run in [&runs[0].recording.run, &slow] {
        timed("judging", || classifier.judge(run).unwrap());
    }
    let chart = svg(&Gantt::new(&slow), Style::Named, 1_000.0);
    assert!(chart.matches("text-anchor=\"end\"").count() < 400, "kinds share rows");
}

#[test]
fn tasks_on_one_machine_are_ranked() {
    let attempts = (0..N_TASKS).map(|at| task(format!("t_{at}"), "t", 0.1 * at as f64)).collect();
    let run = WorkflowRun { name: "one".into(), attempts, ..WorkflowRun::default() };
    let summary = RunSummary::new(&run);
    let baseline = Baseline::of([&summary]);
    let ranked = timed("ranking", || rank(&[&summary], &baseline));
    assert_eq!(ranked.len(), N_TASKS);
    use_everywhere(&run);
}

#[test]
fn jobs_whose_names_come_late() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.log");
    let mut log = String::new();
    for at in 0..40_000 {
        writeln!(log, "001 ({at}.000.000) 2024-05-01 10:00:41 Job executing on host: <10.0.0.8:9618>\n...")
            .unwrap();
        let submitted = "2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618>";
        writeln!(log, "000 ({at}.000.000) {submitted}\n    DAG Node: node_{at}\n...").unwrap();
    }
    // Jobs that are given the name of a job without a name, and then another one, over and over.
    for at in 0..40_000 {
        let submitted = "2024-05-01 10:00:00 Job submitted from host: <10.0.0.1:9618>";
        writeln!(log, "000 ({}.000.000) {submitted}\n    DAG Node: job 1.000\n...", 50_000 + at).unwrap();
        let node = if at % 2 == 0 { "job 2.000" } else { "job 1.000" };
        writeln!(log, "000 ({}.000.000) {submitted}\n    DAG Node: {node}\n...", 1 + at % 2).unwrap();
    }
    fs::write(&path, log).unwrap();
    let run = timed("reading", || read_one(&path, &Limits::default()).unwrap().run);
    assert!(run.attempts.iter().filter(|one| one.task.0.starts_with("node_")).count() >= 39_998);
}

#[test]
fn tasks_with_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for at in 0..20_000 {
        for event in ["SUBMIT", "EXECUTE", "JOB_TERMINATED"] {
            writeln!(log, "1700000000 t_{at} {event} {at}.0 local - {at}").unwrap();
        }
        if at % 10 == 0 {
            fs::write(folder.path().join(format!("t_{at}.out.000")), "no record\n").unwrap();
        }
    }
    fs::write(folder.path().join("jobstate.log"), log).unwrap();
    // Sub-workflows that were never planned.
    let graph: String = (0..20_000).map(|at| format!("SUBDAG EXTERNAL t_{at} sub_{at}/x.dag\n")).collect();
    fs::write(folder.path().join("many.dag"), graph).unwrap();
    let run = timed("reading", || read_one(folder.path(), &Limits::default()).unwrap().run);
    assert!(run.attempts.iter().all(|one| one.kind == "sub-workflow"));
}

#[test]
fn every_parent_with_every_child() {
    let names = |prefix: &str| (0..20_000).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>();
    let text = format!("PARENT {} CHILD {}\n", names("a").join(" "), names("b").join(" "));
    let found = timed("parsing", || dag::parse(&text));
    assert_eq!(found.graph.tasks().count(), 40_000);
    let folder = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for (at, name) in names("a").iter().chain(&names("b")).enumerate() {
        for (event, later) in [("SUBMIT", 0), ("EXECUTE", 1), ("JOB_TERMINATED", 9)] {
            writeln!(log, "{} {name} {event} {at}.0 local - {at}", 1_700_000_000 + at + later).unwrap();
        }
    }
    fs::write(folder.path().join("jobstate.log"), log).unwrap();
    fs::write(folder.path().join("x.dag"), text).unwrap();
    let run = timed("reading", || read_one(folder.path(), &Limits::default()).unwrap().run);
    use_everywhere(&run);
}

#[test]
fn a_cycle_in_a_large_graph() {
    let mut graph = Graph::default();
    let all = || (0..20_000).map(|at| format!("t{at}"));
    graph.add(Dependency::new(all(), all()));
    graph.add(Dependency::new(all(), ["end"]));
    assert!(timed("finding a cycle", || graph.find_cycle().is_some()));
}

#[test]
fn tasks_of_the_workflow_system() {
    let attempts = (0..N_TASKS).map(|at| TaskAttempt {
        role: TaskRole::Transfer,
        ..task(format!("stage_in_{at}"), "stage_in", 1.0)
    });
    let run = WorkflowRun { name: "moves".into(), attempts: attempts.collect(), ..WorkflowRun::default() };
    let found = timed("compare", || compare(&run, &run));
    assert_eq!(found.tasks.len(), N_TASKS);
}

#[test]
fn equal_runs_under_many_labels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.tar");
    let mut archive = tar::Builder::new(fs::File::create(&path).unwrap());
    let rows: String = (0..20).map(|at| format!("a_{at},compute,0,1,2,3\n")).collect();
    let table = format!(",type,ready,submit,execute_start,runtime\n{rows}");
    for label in 0..8_000 {
        let mut header = tar::Header::new_gnu();
        header.set_size(table.len() as u64);
        let name = format!("fault_{label}/w-run0001.csv");
        archive.append_data(&mut header, name, table.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap();
    let error = timed("reading", || Dataset::read(&path, &Limits::default()).unwrap_err().to_string());
    assert!(error.contains("no runs found"), "{error}");
}

/// A database of Pegasus without any index.
fn database(path: &Path, n_workflows: usize) {
    let database = rusqlite::Connection::open(path).unwrap();
    database
        .execute_batch(
            "BEGIN; CREATE TABLE workflow (wf_id, wf_uuid, dax_label); CREATE TABLE workflowstate (wf_id, state, timestamp);
             CREATE TABLE job (job_id, wf_id, exec_job_id); CREATE TABLE host (host_id, hostname);
             CREATE TABLE job_edge (wf_id, parent_exec_job_id, child_exec_job_id);
             CREATE TABLE job_instance (job_instance_id, job_id, host_id, job_submit_seq, exitcode);
             CREATE TABLE jobstate (job_instance_id, state, timestamp, jobstate_submit_seq);
             CREATE TABLE invocation (job_instance_id, task_submit_seq, remote_cpu_time);",
        )
        .unwrap();
    for at in 0..n_workflows {
        let rows = [
            "INSERT INTO workflow VALUES (?1, 'u', 'w')",
            "INSERT INTO workflowstate VALUES (?1, 'WORKFLOW_STARTED', 5)",
            "INSERT INTO job VALUES (?1, ?1, 'a')",
            "INSERT INTO host VALUES (?1, 'h')",
            "INSERT INTO job_edge VALUES (?1, 'a', 'b')",
            "INSERT INTO job_instance VALUES (?1, ?1, ?1, 1, 0)",
            "INSERT INTO jobstate VALUES (?1, 'SUBMIT', 6, 1)",
            "INSERT INTO invocation VALUES (?1, 1, 2.5)",
        ];
        for sql in rows {
            database.prepare_cached(sql).unwrap().execute([at as i64]).unwrap();
        }
    }
    database.execute_batch("COMMIT").unwrap();
}

#[test]
fn a_database_of_many_workflows_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.stampede.db");
    database(&path, 20_000);
    let runs = timed("reading", || read(&path, &Limits::default()).unwrap());
    assert_eq!(runs.len(), 20_000);
    let one = &runs[7].run.attempts[0];
    assert_eq!((one.submitted, one.host.as_deref(), one.cpu_seconds), (Some(6.0), Some("h"), Some(2.5)));
}
