//! `tracewise jobs`, as users run it.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{json_of, refused, stdout_of, tracewise};

/// A small trace in the layout of preset dirlab.
fn trace(folder: &Path) -> PathBuf {
    let mut text = "u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status\n".to_owned();
    for job in 0u64..300 {
        let session = job / 5;
        let (user, nodes) = (session * 7 % 11, 1 + session * 5 % 4);
        let interval = if job % 5 == 0 { 300 + session * 97 % 2_000 } else { 2 + job % 9 };
        let run = 30 + job * 131 % 3_500;
        writeln!(text, "{job},{user},0,{},{nodes},{interval},{run}.25,3600,Pass", nodes * 32).unwrap();
    }
    let path = folder.join("trace.csv");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_generator_is_trained_sampled_compared_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let real = trace(folder.path());
    let inspected =
        json_of(tracewise().args(["jobs", "inspect", "--preset", "dirlab", "--json", "--input"]).arg(&real));
    assert_eq!(inspected["jobs"], 300);
    let model = folder.path().join("model");
    let train = |model: &Path, seed: &str| {
        let mut train = tracewise();
        train.args([
            "jobs",
            "train",
            "--generator",
            "best",
            "--preset",
            "dirlab",
            "--seed",
            seed,
            "--json",
            "--input",
        ]);
        train.arg(&real).arg("--out").arg(model);
        train
    };
    assert_eq!(json_of(&mut train(&model, "1"))["generator"], "sessions");
    let sample = |name: &str, seed: &str| {
        let out = folder.path().join(name);
        let mut sample = tracewise();
        sample.args(["jobs", "sample", "--jobs", "300", "--seed", seed, "--model"]).arg(&model);
        stdout_of(sample.arg("--out").arg(&out));
        std::fs::read(&out).unwrap()
    };
    assert_eq!(sample("made.csv", "1"), sample("again.csv", "1"), "a seed determines the trace");
    assert_ne!(sample("made.csv", "1"), sample("other.csv", "2"));
    for name in ["made.swf", "made.parquet", "made.json"] {
        assert!(!sample(name, "1").is_empty());
    }
    let report = folder.path().join("report");
    let mut compare = tracewise();
    compare.args(["jobs", "compare", "--preset", "dirlab", "--json", "--real"]).arg(&real);
    compare.arg("--synthetic").arg(folder.path().join("made.csv")).arg("--out").arg(&report);
    let found = json_of(&mut compare);
    assert!(found["column_score"].as_f64().unwrap() > 0.85, "{found}");
    assert_eq!(found["scheduling"]["policies"].as_array().unwrap().len(), 4);
    assert!(found["random_halves"]["column_score"].as_f64().unwrap() > 0.85);
    for name in ["fidelity.html", "fidelity.json", "fidelity.md", "cdf-run-time.svg"] {
        assert!(report.join(name).is_file(), "{name}");
    }
    let mut replay = tracewise();
    replay.args(["jobs", "replay", "--preset", "dirlab", "--policy", "easy,fcfs", "--json", "--input"]);
    let outcome = json_of(replay.arg(&real));
    let waits = |at: usize| outcome["policies"][at]["outcome"]["mean_wait_seconds"].as_f64().unwrap();
    assert!(waits(1) <= waits(0), "backfilling helps: {outcome}");
    let mut replay = tracewise();
    replay.args(["jobs", "replay", "--preset", "dirlab", "--policy", "fair-share", "--scale", "0.5x,1x"]);
    let outcome = json_of(replay.args(["--json", "--input"]).arg(&real));
    let [quiet, usual] = [0, 1].map(|at| outcome["policies"][at].clone());
    assert_eq!((&quiet["scale"], &usual["scale"]), (&0.5.into(), &1.0.into()));
    let wait = |one: &serde_json::Value| one["outcome"]["mean_wait_seconds"].as_f64().unwrap();
    assert!(wait(&quiet) < wait(&usual), "{outcome}");
}

#[test]
fn invalid_input_gives_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let real = trace(folder.path());
    let empty = folder.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let train = |input: &Path| {
        let mut train = tracewise();
        train
            .args(["jobs", "train", "--preset", "dirlab", "--input"])
            .arg(input)
            .arg("--out")
            .arg(folder.path().join("model"));
        train
    };
    assert!(refused(&mut train(&empty)).ends_with("the file is empty"));
    assert!(!folder.path().join("model").exists(), "nothing was written");
    stdout_of(&mut train(&real));
    let mut sample = tracewise();
    sample.args(["jobs", "sample", "--condition", "colour=red", "--model"]).arg(folder.path().join("model"));
    let complaint = refused(sample.arg("--out").arg(folder.path().join("made.csv")));
    assert!(complaint.contains("there is no column colour; the columns are interval, user"), "{complaint}");
    let detector = crate::fixture("artifact/threads-v1");
    let mut foreign = tracewise();
    foreign
        .args(["jobs", "sample", "--model"])
        .arg(detector)
        .arg("--out")
        .arg(folder.path().join("made.csv"));
    assert!(refused(&mut foreign).contains("jobs"), "a detector is not a generator");
    let mut preset = tracewise();
    let error = refused(preset.args(["jobs", "inspect", "--preset", "lumos", "--input"]).arg(&real));
    assert!(
        error
            .contains("not a trace of preset lumos: there is no column submit_time; choose another --preset"),
        "{error}"
    );
    let mut recognised = tracewise();
    assert!(stdout_of(recognised.args(["jobs", "inspect", "--input"]).arg(&real)).contains("300 jobs"));
    let mut no_roles = tracewise();
    let error = refused(no_roles.args(["jobs", "inspect", "--preset", "csv", "--input"]).arg(&real));
    assert!(error.ends_with("name it with --columns submit=COLUMN or --columns interval=COLUMN"), "{error}");
}

#[test]
fn a_synthetic_trace_with_other_columns_is_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let real = trace(folder.path());
    let other = folder.path().join("other.csv");
    std::fs::write(&other, std::fs::read_to_string(&real).unwrap().replace("wall_time", "limit")).unwrap();
    let mut compare = tracewise();
    compare.args(["jobs", "compare", "--preset", "dirlab", "--real"]).arg(&real);
    let error = refused(compare.arg("--synthetic").arg(&other));
    assert!(error.contains("no column wall_time") && error.contains("preset dirlab"), "{error}");
}

#[test]
fn a_model_records_its_training_data_and_the_model_it_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let real = trace(folder.path());
    let model = folder.path().join("model");
    let train = || {
        let mut train = tracewise();
        train.args(["jobs", "train", "--preset", "dirlab", "--input"]).arg(&real);
        stdout_of(train.arg("--out").arg(&model));
        let text = std::fs::read(model.join("manifest.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()
    };
    let first = train();
    assert!(first["created"].as_f64().unwrap() > 1.7e9);
    assert_eq!(first["data"]["address"], real.to_str().unwrap());
    assert_eq!(first["data"]["sha256"].as_str().unwrap().len(), 64);
    assert!(first.get("parent").is_none());
    assert_eq!(train()["parent"], first["weights_sha256"]);
}

#[test]
fn training_ends_soon_after_an_interrupt_and_leaves_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let real = trace(folder.path());
    let model = folder.path().join("model");
    let mut train = tracewise();
    train.args([
        "jobs",
        "train",
        "--generator",
        "ctgan",
        "--epochs",
        "100000",
        "--preset",
        "dirlab",
        "--input",
    ]);
    let mut training = train.arg(&real).arg("--out").arg(&model).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(training.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("epoch"));
    let interrupted = Instant::now();
    let id = training.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(training.wait().unwrap().code(), Some(130));
    assert!(interrupted.elapsed() < Duration::from_secs(2), "{:?}", interrupted.elapsed());
    assert!(lines.last().unwrap().unwrap().contains("stopped"));
    assert!(!model.exists());
}
