//! `tracewise workflows` as users run it.

use std::path::{Path, PathBuf};

use crate::{json_of, refused, stdout_of, tracewise};

/// Labelled runs: eight healthy runs, and the same runs with injected faults.
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
        "--fault",
        "cpu_3",
        "--fault",
        "hdd_20",
        "--fault",
        "loss_3",
        "--out",
    ]);
    inject.arg(&runs);
    let mut files: Vec<_> = std::fs::read_dir(&normal).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    stdout_of(inject.args(&files));
    // An injected run keeps its name; a dataset needs one label per run.
    for (at, fault) in ["cpu_3", "hdd_20", "loss_3"].into_iter().enumerate() {
        for entry in std::fs::read_dir(runs.join(fault)).unwrap() {
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
fn classifiers_are_trained_and_explain_their_verdicts() {
    let folder = tempfile::tempdir().unwrap();
    let runs = runs(folder.path());
    let model = folder.path().join("model");
    let mut train = tracewise();
    train
        .args(["workflows", "train", "--classifier", "best", "--seed", "1", "--json", "--runs"])
        .arg(&runs)
        .arg("--out")
        .arg(&model);
    assert_eq!(json_of(&mut train)["classifier"], "slowdown");
    let manifest = std::fs::read(model.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert!(
        manifest["data"]["from"].is_number() || manifest["provenance"]["data"]["from"].is_number(),
        "{manifest}"
    );
    let lossy = first(&runs.join("loss_3"));
    let mut classify = tracewise();
    classify.args(["workflows", "classify", "--json", "--model"]).arg(&model).arg(&lossy);
    let verdicts = json_of(&mut classify);
    let verdict = &verdicts[0];
    assert_eq!(verdict["class"], "loss", "{verdict}");
    assert!(verdict["summary"].as_str().unwrap().ends_with(": network"), "{verdict}");
    assert_eq!(verdict["missing_inputs"], serde_json::json!([]));
    assert!(verdict["reasons"][0]["start"].as_f64().unwrap() >= 1.7e9, "times are epoch seconds: {verdict}");
    assert!(verdict["reasons"][0]["ratio"].as_f64().unwrap() > 1.5, "{verdict}");
    assert!(verdict["is_certain"].is_boolean() && verdict["confidence"].is_number(), "{verdict}");
    let mut tasks = tracewise();
    tasks.args(["workflows", "tasks", "--json", "--top", "3", "--model"]).arg(&model).arg(&lossy);
    let ranked = json_of(tasks.arg(first(&runs.join("normal"))));
    assert_eq!(ranked.as_array().map(Vec::len), Some(3));
    assert_eq!(ranked[0]["run"], lossy.file_stem().unwrap().to_str().unwrap(), "{ranked}");
    assert!(ranked[0]["score"].as_f64() >= ranked[2]["score"].as_f64(), "{ranked}");
    assert!(ranked[0]["reason"].as_str().is_some_and(|reason| reason.contains('×')), "{ranked}");
    for protocol in ["random", "leave-batch-out"] {
        let mut evaluate = tracewise();
        evaluate
            .args([
                "workflows",
                "evaluate",
                "--classifier",
                "best",
                "--protocol",
                protocol,
                "--json",
                "--runs",
            ])
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
    // A run can be added, with a label that replaces the old one.
    let mut again = tracewise();
    again.args(["workflows", "train", "--json", "--runs"]).arg(&runs).arg("--out").arg(&model);
    again.arg("--add").arg(format!("loss_3={}", first(&runs.join("normal")).display()));
    assert_eq!(json_of(&mut again)["by_class"]["loss"], 9);
    // With healthy runs alone, `best` is a baseline.
    let healthy = folder.path().join("healthy");
    std::fs::create_dir_all(&healthy).unwrap();
    std::fs::rename(runs.join("normal"), healthy.join("normal")).unwrap();
    let mut baseline = tracewise();
    baseline
        .args(["workflows", "train", "--json", "--runs"])
        .arg(&healthy)
        .arg("--out")
        .arg(folder.path().join("baseline"));
    assert_eq!(json_of(&mut baseline)["classifier"], "baseline");
    let mut classify = tracewise();
    classify
        .args(["workflows", "classify", "--json", "--model"])
        .arg(folder.path().join("baseline"))
        .arg(&lossy);
    assert_eq!(json_of(&mut classify)[0]["class"], "anomalous");
}

#[test]
fn runs_are_read_drawn_compared_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let submit = testbed::workspace().join("fixtures/workflows/submit");
    let read = json_of(tracewise().args(["workflows", "read", "--json"]).arg(&submit));
    assert_eq!(read["attempts"].as_array().unwrap().len(), 7);
    let delays = &read["attempts"][2]["delays"];
    for (name, seconds) in [("queue", 14.0), ("stage_in", 8.0), ("runtime", 30.0), ("wms_delay", 3.0)] {
        assert_eq!(delays[name], seconds, "{name}: {delays}");
    }
    for (name, style, start) in [
        ("chart.png", "paper", &b"\x89PNG"[..]),
        ("chart.svg", "paper", b"<svg"),
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
fn invalid_requests_give_one_line() {
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
    let mut other_weights = train(&["--classifier", "resnet18", "--weights"]);
    other_weights.arg(&weights);
    let mut cases = vec![
        (other_weights, "weights of another network"),
        (train(&["--classifier", "trees", "--augment"]), "need a network as --classifier"),
        (train(&["--classifier", "cnn", "--epochs", "0"]), "--epochs must be at least 1"),
        (train(&["--split", "/nowhere.csv"]), "nowhere.csv"),
    ];
    let mut read = tracewise();
    read.args(["workflows", "read"]).arg(&empty);
    cases.push((read, "the file is empty"));
    let mut draw = tracewise();
    draw.args(["workflows", "draw", "--out", "chart.gif"]).arg(first(&runs.join("normal")));
    cases.push((draw, "ends in .png, .svg or .html"));
    let mut inject = tracewise();
    inject
        .args(["workflows", "inject", "--fault", "fan_2", "--out"])
        .arg(&out)
        .arg(first(&runs.join("normal")));
    cases.push((inject, "\"fan_2\" is not a fault"));
    let mut too_fast = tracewise();
    too_fast
        .args(["workflows", "inject", "--fault", "hdd_300", "--out"])
        .arg(&out)
        .arg(first(&runs.join("normal")));
    cases.push((too_fast, "--disk-write-rate"));
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

#[test]
fn subworkflows_are_read_drawn_and_followed_as_part_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let submit = testbed::workspace().join("fixtures/workflows/hierarchical");
    let read = json_of(tracewise().args(["workflows", "read", "--json"]).arg(&submit));
    assert_eq!((&read["run"], read["attempts"].as_array().unwrap().len()), (&"outer-0".into(), 10));
    let table = stdout_of(tracewise().args(["workflows", "read"]).arg(&submit));
    assert!(table.contains("WMS_DELAY") && table.contains("sub-workflow"), "{table}");
    assert!(!table.contains("never started"), "{table}");
    let chart = folder.path().join("chart.svg");
    stdout_of(tracewise().args(["workflows", "draw", "--out"]).arg(&chart).arg(&submit));
    let svg = std::fs::read_to_string(&chart).unwrap();
    assert!(svg.contains("subdag_report_ID0000003/plot"), "a task of a sub-workflow is in the chart");
    let followed = stdout_of(tracewise().args(["workflows", "follow"]).arg(&submit));
    assert!(followed.contains("263 s: over, 10 of 10 attempts over, 0 failed"), "{followed}");
}

#[test]
fn a_disk_cap_of_100_mb_per_second_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let runs = runs(folder.path());
    let mut inject = tracewise();
    inject.args(["workflows", "inject", "--fault", "hdd_100", "--out"]).arg(folder.path().join("made"));
    stdout_of(inject.arg(first(&runs.join("normal"))));
    assert!(first(&folder.path().join("made/hdd_100")).is_file());
}

#[test]
fn names_in_a_log_reach_neither_the_terminal_nor_other_directories() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let victim = folder.path().join("victim.csv");
    std::fs::write(&victim, "precious").unwrap();
    for name in [folder.path().join("victim").to_str().unwrap(), "../../victim", "a\u{1b}]0;owned\u{7}"] {
        let task = serde_json::json!({ "name": "b\u{1b}[2J\u{9b}31m\nc", "runtime": 5 });
        let instance = serde_json::json!({ "name": name, "workflow": { "tasks": [task] } });
        std::fs::write(&path, instance.to_string()).unwrap();
        let shown = stdout_of(tracewise().args(["workflows", "read"]).arg(&path));
        assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{shown}");
        assert!(shown.contains(r"b\u{1b}[2J\u{9b}31m\nc"), "{shown}");
        let json = json_of(tracewise().args(["workflows", "read", "--json"]).arg(&path));
        assert_eq!(json["attempts"][0]["task"], "b\u{1b}[2J\u{9b}31m\nc", "JSON has the name as it is");
        let out = folder.path().join("out");
        stdout_of(
            tracewise().args(["workflows", "inject", "--fault", "loss_1", "--out"]).arg(&out).arg(&path),
        );
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }
    assert_eq!(std::fs::read_dir(folder.path().join("out/loss_1")).unwrap().count(), 3);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn limits_of_the_configuration_apply_to_logs() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("jobstate.log");
    std::fs::write(&log, "1700000000 a SUBMIT 1.0 local - 1\n1700000000 b SUBMIT 2.0 local - 2\n").unwrap();
    let read = |rows: &str| {
        let mut command = tracewise();
        command.env("TRACEWISE_LIMITS_ROWS", rows).args(["workflows", "read"]).arg(&log);
        command
    };
    stdout_of(&mut read("2"));
    assert!(refused(&mut read("1")).contains("raise the setting limits.rows"));
}

#[test]
fn runs_that_are_held_up_or_have_only_started_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("jobstate.log");
    let started = "1700000000 INTERNAL *** DAGMAN_STARTED 1.0 ***\n";
    std::fs::write(&log, started).unwrap();
    let read = json_of(tracewise().args(["workflows", "read", "--json"]).arg(&log));
    assert_eq!((&read["state"], &read["attempts"]), (&"running".into(), &serde_json::json!([])));
    let table = stdout_of(tracewise().args(["workflows", "read"]).arg(&log));
    assert!(table.contains("still running, 0 attempts in 0 s"), "{table}");
    let events = "1700000010 a SUBMIT 2.0 local - 1\n1700000020 a JOB_HELD 2.0 local - 1\n\
        1700000080 a JOB_RELEASED 2.0 local - 1\n1700000090 a JOB_ABORTED 2.0 local - 1\n\
        1700000010 b SUBMIT 3.0 local - 2\n1700000030 b JOB_HELD 3.0 local - 2\n";
    std::fs::write(&log, started.to_owned() + events).unwrap();
    let read = json_of(tracewise().args(["workflows", "read", "--json"]).arg(&log));
    let [a, b] = [&read["attempts"][0], &read["attempts"][1]];
    assert_eq!((&a["held_seconds"], &a["removed"]), (&60.0.into(), &1_700_000_090.0.into()));
    assert_eq!((&b["held_since"], &b["removed"]), (&1_700_000_030.0.into(), &serde_json::Value::Null));
    let table = stdout_of(tracewise().args(["workflows", "read"]).arg(&log));
    assert!(table.contains("REMOVED") && table.contains("HELD") && table.contains("60.0"), "{table}");
    assert!(table.contains("still running, 2 attempts, 1 not over, 1 held now in 80 s"), "{table}");
    let followed = stdout_of(tracewise().args(["workflows", "follow", "--once"]).arg(&log));
    assert!(followed.contains("running, 1 of 2 attempts over, 1 failed, 1 held, 1 removed"), "{followed}");
}
