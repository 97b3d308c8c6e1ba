//! Workflows as users have them: recorded, troubled, read, drawn, learnt from, judged, followed.

use std::path::{Path, PathBuf};

use crate::{json_of, refused, stdout_of, tracewise};

/// Labelled runs: one healthy run for each that is made here, and what inject makes of them.
fn runs(folder: &Path) -> PathBuf {
    let runs = folder.join("runs");
    let normal = runs.join("normal");
    std::fs::create_dir_all(&normal).unwrap();
    for at in 0..8u32 {
        let header = ",type,ready,submit,execute_start,execute_end,runtime,stage_in_delay,stage_in_bytes,stage_out_delay,\
            stage_out_bytes,kickstart_hostname,kickstart_executables_cpu_time\n";
        let row = |task: u32| {
            let ran = 60 + (at * 7 + task * 3) % 9;
            format!(
                "count_ID{task:07},compute,1700000000,1700000002,1700000004,{},{},20,200000000,4,1000000,w{},{}\n",
                1_700_000_004 + ran,
                ran,
                task % 2,
                (ran - 24) * 9 / 10
            )
        };
        let text: String = (0..6).map(row).collect();
        let batch = if at < 4 { "20260101T000000Z" } else { "20260201T000000Z" };
        std::fs::write(normal.join(format!("made-{batch}-run{at:04}.csv")), header.to_owned() + &text)
            .unwrap();
    }
    let mut inject = tracewise();
    inject.args([
        "workflows",
        "inject",
        "--trouble",
        "cpu_3",
        "--trouble",
        "hdd_20",
        "--trouble",
        "loss_3",
        "--out",
    ]);
    inject.arg(&runs);
    let mut files: Vec<_> = std::fs::read_dir(&normal).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    stdout_of(inject.args(&files));
    // What is made of a run has its name; a dataset wants one label a run.
    for (at, trouble) in ["cpu_3", "hdd_20", "loss_3"].into_iter().enumerate() {
        for entry in std::fs::read_dir(runs.join(trouble)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().replace("Z-run", &format!("{at}Z-run"));
            std::fs::rename(&path, path.with_file_name(name)).unwrap();
        }
    }
    runs
}

fn first(folder: &Path) -> PathBuf {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.remove(0)
}

#[test]
fn runs_are_learnt_from_and_judged_with_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let runs = runs(folder.path());
    let model = folder.path().join("model");
    let mut train = tracewise();
    train
        .args(["workflows", "train", "--model", "best", "--seed", "1", "--json", "--runs"])
        .arg(&runs)
        .arg("--out")
        .arg(&model);
    assert_eq!(json_of(&mut train)["model"], "slowdown");
    let lossy = first(&runs.join("loss_3"));
    let mut classify = tracewise();
    classify.args(["workflows", "classify", "--json", "--model"]).arg(&model).arg(&lossy);
    let verdicts = json_of(&mut classify);
    let verdict = &verdicts[0];
    assert_eq!(verdict["class"], "loss", "{verdict}");
    assert!(verdict["because"].as_str().unwrap().ends_with(": network"), "{verdict}");
    assert!(verdict["reasons"][0]["ratio"].as_f64().unwrap() > 1.5, "{verdict}");
    for protocol in ["random", "leave-batch-out"] {
        let mut evaluate = tracewise();
        evaluate
            .args(["workflows", "evaluate", "--model", "best", "--protocol", protocol, "--json", "--runs"])
            .arg(&runs);
        let figures = json_of(&mut evaluate);
        for key in
            ["accuracy", "macro_f1", "macro_precision", "macro_recall", "binary_balanced_accuracy", "seconds"]
        {
            assert!(figures[key].as_f64().is_some_and(|value| value >= 0.0), "{key}: {figures}");
        }
        assert_eq!(figures["classes"], serde_json::json!(["normal", "cpu", "hdd", "loss"]));
        assert!(figures["accuracy"].as_f64().unwrap() > 0.6, "{figures}");
    }
    // A run that was labelled since is learnt from too.
    let mut again = tracewise();
    again.args(["workflows", "train", "--json", "--runs"]).arg(&runs).arg("--out").arg(&model);
    again.arg("--add").arg(format!("loss_3={}", first(&runs.join("normal")).display()));
    assert_eq!(json_of(&mut again)["by_class"]["loss"], 9);
    // With healthy runs alone, what is unusual is said.
    let healthy = folder.path().join("healthy");
    std::fs::create_dir_all(&healthy).unwrap();
    std::fs::rename(runs.join("normal"), healthy.join("normal")).unwrap();
    let mut usual = tracewise();
    usual
        .args(["workflows", "train", "--json", "--runs"])
        .arg(&healthy)
        .arg("--out")
        .arg(folder.path().join("usual"));
    assert_eq!(json_of(&mut usual)["model"], "usual");
    let mut classify = tracewise();
    classify
        .args(["workflows", "classify", "--json", "--model"])
        .arg(folder.path().join("usual"))
        .arg(&lossy);
    assert_eq!(json_of(&mut classify)[0]["class"], "unusual");
}

#[test]
fn runs_are_read_drawn_compared_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let submit = testbed::workspace().join("fixtures/workflows/submit");
    let read = json_of(tracewise().args(["workflows", "read", "--json"]).arg(&submit));
    assert_eq!(read["attempts"].as_array().unwrap().len(), 7);
    assert_eq!(read["attempts"][2]["delays"]["queue"], 14.0);
    for (name, style, start) in [
        ("chart.png", "seed", &b"\x89PNG"[..]),
        ("chart.svg", "seed", b"<svg"),
        ("named.png", "named", b"\x89PNG"),
        ("named.svg", "named", b"<svg"),
        ("walk.html", "named", b"<!doctype html>"),
    ] {
        let out = folder.path().join(name);
        let mut draw = tracewise();
        draw.args(["workflows", "draw", "--size", "224", "--style", style, "--out"]).arg(&out).arg(&submit);
        stdout_of(&mut draw);
        assert!(std::fs::read(&out).unwrap().starts_with(start), "{name}");
    }
    let followed = stdout_of(tracewise().args(["workflows", "follow"]).arg(submit.join("jobstate.log")));
    assert!(followed.contains("over, 7 of 7 attempts over, 1 failed"), "{followed}");
    let mut compare = tracewise();
    let database = submit.join("blackdiamond-0.stampede.db");
    let compared = json_of(compare.args(["workflows", "compare", "--json"]).arg(&submit).arg(database));
    assert!(compared["only_before"].as_array().unwrap().is_empty(), "{compared}");
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let runs = runs(folder.path());
    let out = folder.path().join("out");
    let weights = testbed::workspace().join("fixtures/torch/new.pth");
    let empty = folder.path().join("empty.csv");
    std::fs::write(&empty, "").unwrap();
    let train = |more: &[&str]| {
        let mut train = tracewise();
        train.args(["workflows", "train", "--runs"]).arg(&runs).arg("--out").arg(&out).args(more);
        train
    };
    let mut other_weights = train(&["--model", "resnet18", "--weights"]);
    other_weights.arg(&weights);
    let mut cases = vec![
        (other_weights, "weights of another network"),
        (train(&["--model", "trees", "--augment"]), "looks at no pictures"),
        (train(&["--split", "/nowhere.csv"]), "nowhere.csv"),
    ];
    let mut read = tracewise();
    read.args(["workflows", "read"]).arg(&empty);
    cases.push((read, "it is empty"));
    let mut draw = tracewise();
    draw.args(["workflows", "draw", "--out", "chart.gif"]).arg(first(&runs.join("normal")));
    cases.push((draw, "a chart is a .png"));
    let mut inject = tracewise();
    inject
        .args(["workflows", "inject", "--trouble", "fan_2", "--out"])
        .arg(&out)
        .arg(first(&runs.join("normal")));
    cases.push((inject, "fan_2 is no trouble"));
    let mut authors = tracewise();
    authors.args(["workflows", "evaluate", "--protocol", "authors", "--runs"]).arg(&runs);
    cases.push((authors, "--split"));
    let mut per_job = tracewise();
    per_job.args(["workflows", "evaluate", "--per-job", "--runs"]).arg(&runs);
    cases.push((per_job, "anomaly_type"));
    for (mut command, words) in cases {
        let said = refused(&mut command);
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!out.exists(), "nothing was written");
}
