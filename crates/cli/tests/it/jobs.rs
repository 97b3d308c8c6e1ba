//! Job traces as users have them: looked at, learnt from, made, judged, replayed.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::{json_of, refused, stdout_of, tracewise};

/// A small trace in the layout of DIR-LAB.
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
fn a_trace_is_learnt_from_made_judged_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let real = trace(folder.path());
    let inspected =
        json_of(tracewise().args(["jobs", "inspect", "--preset", "dirlab", "--json", "--input"]).arg(&real));
    assert_eq!(inspected["jobs"], 300);
    let model = folder.path().join("model");
    let fit = |model: &Path, seed: &str| {
        let mut fit = tracewise();
        fit.args([
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
        fit.arg(&real).arg("--out").arg(model);
        fit
    };
    assert_eq!(json_of(&mut fit(&model, "1"))["generator"], "sessions");
    let sample = |name: &str, seed: &str| {
        let out = folder.path().join(name);
        let mut sample = tracewise();
        sample.args(["jobs", "sample", "--jobs", "300", "--seed", seed, "--model"]).arg(&model);
        stdout_of(sample.arg("--out").arg(&out));
        std::fs::read(&out).unwrap()
    };
    assert_eq!(sample("made.csv", "1"), sample("again.csv", "1"), "one seed, one trace");
    assert_ne!(sample("made.csv", "1"), sample("other.csv", "2"));
    for name in ["made.swf", "made.parquet", "made.json"] {
        assert!(!sample(name, "1").is_empty());
    }
    let report = folder.path().join("report");
    let mut score = tracewise();
    score.args(["jobs", "compare", "--preset", "dirlab", "--json", "--real"]).arg(&real);
    score.arg("--synthetic").arg(folder.path().join("made.csv")).arg("--out").arg(&report);
    let found = json_of(&mut score);
    assert!(found["column_score"].as_f64().unwrap() > 0.85, "{found}");
    assert_eq!(found["utility"]["policies"].as_array().unwrap().len(), 3);
    assert!(found["ceiling_random"]["column_score"].as_f64().unwrap() > 0.85);
    for name in ["fidelity.html", "fidelity.json", "fidelity.md", "cdf-run-time.svg"] {
        assert!(report.join(name).is_file(), "{name}");
    }
    let mut simulate = tracewise();
    simulate.args(["jobs", "replay", "--preset", "dirlab", "--policy", "easy,fcfs", "--json", "--input"]);
    let outcome = json_of(simulate.arg(&real));
    let waits = |at: usize| outcome["policies"][at]["outcome"]["mean_wait_seconds"].as_f64().unwrap();
    assert!(waits(1) <= waits(0), "backfilling helps: {outcome}");
}

#[test]
fn bad_input_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let real = trace(folder.path());
    let empty = folder.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let fit = |input: &Path| {
        let mut fit = tracewise();
        fit.args(["jobs", "train", "--preset", "dirlab", "--input"])
            .arg(input)
            .arg("--out")
            .arg(folder.path().join("model"));
        fit
    };
    assert!(refused(&mut fit(&empty)).ends_with("the file is empty"));
    assert!(!folder.path().join("model").exists(), "nothing was written");
    stdout_of(&mut fit(&real));
    let mut sample = tracewise();
    sample.args(["jobs", "sample", "--condition", "colour=red", "--model"]).arg(folder.path().join("model"));
    let complaint = refused(sample.arg("--out").arg(folder.path().join("made.csv")));
    assert!(complaint.contains("there is no column colour; there are interval, user"), "{complaint}");
    let detector = crate::fixture("artifact/threads-v1");
    let mut foreign = tracewise();
    foreign
        .args(["jobs", "sample", "--model"])
        .arg(detector)
        .arg("--out")
        .arg(folder.path().join("made.csv"));
    assert!(refused(&mut foreign).contains("jobs"), "a detector is no generator");
}
