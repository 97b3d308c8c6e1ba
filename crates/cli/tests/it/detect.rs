//! Detectors as users have them: trained, scoring, explaining, refusing.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{fixture, import_small, json_of, refused, stdout_of, tracewise};

const SMALL: &str = "[detector]\nwindow = 40\nmost_windows = 600\n\
    [detector.net]\nwidths = [8, 8]\nn_hidden = 16\nn_latent = 4\n\
    [detector.train]\nn_epochs = 15\nrate = 0.005\n";

fn settings(folder: &Path, text: &str) -> std::path::PathBuf {
    let file = folder.join("detector.toml");
    std::fs::write(&file, text).unwrap();
    file
}

fn train(folder: &Path, model: &str, data: &Path) -> Command {
    let mut command = tracewise();
    command.args(["detect", "train", "--model", model, "--data"]).arg(data);
    command.arg("--out").arg(folder.join(model)).arg("--config").arg(settings(folder, SMALL));
    command
}

fn recorded() -> std::path::PathBuf {
    fixture("campaign/recorded")
}

#[test]
fn bad_io_is_found_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let trained = json_of(train(folder.path(), "best", &recorded()).arg("--json"));
    assert_eq!(trained["model"], "hierarchy");
    assert!(!folder.path().join("best.checkpoint").exists());
    let model = folder.path().join("best");
    let look = |command: &str| {
        let mut look = tracewise();
        look.args(["detect", command, "--set", "test", "--model"]).arg(&model).arg("--data").arg(recorded());
        look
    };
    let scores = folder.path().join("scores.csv");
    let summary = json_of(look("score").arg("--json").arg("--out").arg(&scores));
    let strange: Vec<&Value> = summary["jobs"].as_array().unwrap().iter().map(|job| &job["kind"]).collect();
    assert!(strange.iter().any(|kind| *kind == "bad-io"), "{summary}");
    let mut reader = csv::Reader::from_path(&scores).unwrap();
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(
        header.join(","),
        "node,cpu,job,window_start,window_seconds,score,threshold,user_error,system_error,iowait_error,other_error"
    );
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len() as u64, summary["windows"].as_u64().unwrap());
    assert!(rows.iter().all(|row| row.iter().skip(3).all(|cell| cell.parse::<f64>().unwrap().is_finite())));
    let parquet = folder.path().join("scores.parquet");
    stdout_of(look("score").arg("--out").arg(&parquet));
    assert_eq!(&std::fs::read(&parquet).unwrap()[..4], b"PAR1");
    let embedded = json_of(look("embed").arg("--json").arg("--out").arg(folder.path().join("z.csv")));
    assert_eq!(
        (embedded["dimensions"].as_u64(), embedded["windows"].as_u64()),
        (Some(4), summary["windows"].as_u64())
    );
    let words = stdout_of(look("explain").args(["--job", "third-10"]));
    assert!(words.contains("iowait was") && words.contains("times the threshold"), "{words}");
}

#[test]
fn detectors_are_compared_with_each_other_and_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tracewise();
    command
        .args(["detect", "evaluate", "--models", "ae,pca", "--ensemble", "1", "--json", "--data"])
        .arg(recorded());
    command
        .arg("--config")
        .arg(settings(folder.path(), SMALL))
        .arg("--out")
        .arg(folder.path().join("report"));
    let report = json_of(&mut command);
    assert!((report["floor"]["random_auc"].as_f64().unwrap() - 0.5).abs() < 0.1);
    for model in ["ae", "pca"] {
        let evaluation = &report["detectors"][model][0]["evaluation"];
        let bad_io =
            evaluation["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "bad-io").unwrap();
        assert!(bad_io["detection"]["roc_auc"].as_f64().unwrap() > 0.95, "{model}: {bad_io}");
        let mean = report["floor"]["mean_window_error"].as_f64().unwrap();
        assert!(evaluation["normal_error"].as_f64().unwrap() < 0.3 * mean);
        assert_eq!(evaluation["cases"].as_array().unwrap().len(), 30);
    }
    for file in ["detectors.html", "detectors.md", "ae-errors.svg", "ae-neighbours.png", "strength.svg"] {
        assert!(folder.path().join("report").join(file).exists(), "{file}");
    }
}

#[test]
fn an_archive_without_labels_is_split_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("traces");
    let mut simulate = tracewise();
    simulate.args([
        "campaign",
        "simulate",
        "--nodes",
        "1",
        "--threads",
        "4",
        "--hours",
        "1",
        "--campaigns",
        "train=1",
    ]);
    stdout_of(simulate.arg("--into").arg(&archive));
    std::fs::remove_dir_all(archive.join("labels")).unwrap();
    let trained = json_of(train(folder.path(), "pca", &archive).arg("--json"));
    assert!(trained["origin"]["n_windows"].as_u64().unwrap() >= 100, "{trained}");
    let mut score = tracewise();
    score.args(["detect", "score", "--json", "--set", "test", "--model"]).arg(folder.path().join("pca"));
    let summary = json_of(score.arg("--data").arg(&archive).arg("--out").arg(folder.path().join("s.csv")));
    assert!(summary["windows"].as_u64().unwrap() > 0);
}

#[test]
fn trouble_is_put_into_a_copy_and_the_truth_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("troubled");
    let inject = |into: &Path| {
        let mut inject = tracewise();
        inject.args([
            "campaign",
            "inject",
            "--trouble",
            "slow-storage",
            "--strength",
            "0.5",
            "--chance",
            "1",
        ]);
        inject.args(["--length", "60s", "--json", "--data"]).arg(recorded()).arg("--into").arg(into);
        inject
    };
    let truth = json_of(&mut inject(&into));
    let truth = truth.as_array().unwrap();
    assert!(!truth.is_empty());
    let waited = |archive: &Path, one: &Value| -> f64 {
        let mut export = tracewise();
        export.args([
            "archive",
            "export",
            "--format",
            "csv",
            "--out",
            "-",
            "--job",
            one["job"].as_str().unwrap(),
        ]);
        export.args(["--from", &one["start"].to_string(), "--to", &one["end"].to_string()]);
        let text = stdout_of(export.arg("--data").arg(archive));
        let rows: Vec<f64> =
            text.lines().skip(1).map(|line| line.split(',').nth(6).unwrap().parse().unwrap()).collect();
        rows.iter().sum::<f64>() / rows.len() as f64
    };
    for one in truth {
        assert!(waited(&into, one) > waited(&recorded(), one) + 0.1, "{one}");
    }
    stdout_of(tracewise().args(["archive", "verify", "--data"]).arg(&into));
    assert!(refused(&mut inject(&into)).contains("is not empty"));
}

#[test]
fn jobs_can_be_labelled_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("traces");
    let csv = fixture("csv/exathlon-small.csv");
    let mut import = tracewise();
    import
        .args(["archive", "import", "--preset", "exathlon", "--job", "4711", "--into"])
        .arg(&archive)
        .arg(csv);
    stdout_of(&mut import);
    let label = |text: &str| {
        let file = folder.path().join("known.csv");
        std::fs::write(&file, text).unwrap();
        let mut label = tracewise();
        label.args(["campaign", "label", "--json", "--data"]).arg(&archive).arg("--known").arg(file);
        label
    };
    assert!(refused(&mut label("job,kind,set\n9,spark,test\n")).contains("has no job 9"));
    assert!(refused(&mut label("job,kind,sat\n4711,spark,test\n")).contains("known.csv"));
    assert_eq!(json_of(&mut label("job,kind,set\n4711,spark,test\n"))[0]["kind"], "spark");
}

#[test]
fn what_cannot_be_learnt_from_or_scored_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    import_small(&small);
    assert!(refused(&mut train(folder.path(), "pca", &small)).contains("are needed; record for longer"));
    let missing = refused(&mut train(folder.path(), "pca", &folder.path().join("nothing")));
    assert!(missing.contains("nothing"), "{missing}");

    let with = |text: &str| {
        let mut command = tracewise();
        command.args(["detect", "train", "--model", "pca", "--data"]).arg(recorded());
        command.arg("--out").arg(folder.path().join("x")).arg("--config").arg(settings(folder.path(), text));
        command
    };
    assert!(refused(&mut with("[detector]\nwindow = 400\n")).contains("windows of 400 s"));
    assert!(refused(&mut with("[detector]\nwindow = 2\n")).contains("[detector]: window: 2 steps"));
    assert!(refused(&mut with("[detector]\nwindw = 60\n")).contains("windw"));

    stdout_of(&mut train(folder.path(), "pca", &recorded()));
    let model = folder.path().join("pca");
    let score = |model: &Path, data: &Path, out: &str| {
        let mut command = tracewise();
        command.args(["detect", "score", "--model"]).arg(model).arg("--data").arg(data);
        command.arg("--out").arg(folder.path().join(out));
        command
    };
    assert!(refused(&mut score(&model, &recorded(), "s.txt")).contains(".parquet or .csv"));
    assert!(
        refused(&mut score(&folder.path().join("small"), &recorded(), "s.csv")).contains("is no artifact")
    );
    stdout_of(&mut with("[detector]\nwindow = 120\n"));
    let long = folder.path().join("x");
    assert!(refused(&mut score(&long, &small, "s.csv")).contains("there is no window of 120 s"));
    assert!(!folder.path().join("s.csv").exists(), "what was refused leaves nothing");
    let manifest = model.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"version\": 1", "\"version\": 99")).unwrap();
    assert!(refused(&mut score(&model, &recorded(), "s.csv")).contains("has version 99"));
    std::fs::write(&manifest, text.replace("\"other\"", "\"otter\"")).unwrap();
    assert!(refused(&mut score(&model, &recorded(), "s.csv")).contains("channels"));
}

/// Ten minutes of four threads of one job, all of them as busy.
fn steady(folder: &Path, name: &str, user: f64) -> std::path::PathBuf {
    use std::fmt::Write;
    let modes = ["Idle", "Steal", "Sys", "User", "Wait"];
    let mut text = "t".to_owned();
    for cpu in 1..=4 {
        modes.iter().for_each(|mode| write!(text, ",node5_CPU00{cpu}_{mode}%").unwrap());
    }
    for second in 0..600 {
        write!(text, "\n{}", 1_525_400_000 + second).unwrap();
        (0..4).for_each(|_| write!(text, ",{},0,0,{user},0", 100.0 - user).unwrap());
    }
    let (csv, archive) = (folder.join(format!("{name}.csv")), folder.join(name));
    std::fs::write(&csv, text + "\n").unwrap();
    let mut import = tracewise();
    import.args(["archive", "import", "--preset", "exathlon", "--job", "1", "--into"]).arg(&archive).arg(csv);
    stdout_of(&mut import);
    archive
}

#[test]
fn what_does_nothing_or_was_not_read_teaches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let idle = steady(folder.path(), "idle", 0.0);
    assert!(refused(&mut train(folder.path(), "pca", &idle)).contains("its threads do nothing"));
    let busy = steady(folder.path(), "busy", 40.0);
    stdout_of(&mut train(folder.path(), "pca", &busy));
    let mut command = tracewise();
    command
        .args(["detect", "train", "--model", "pca", "--data"])
        .arg(&busy)
        .arg("--out")
        .arg(folder.path().join("x"));
    command.arg("--config").arg(settings(folder.path(), "[detector]\nchannels = [\"io-pressure\"]\n"));
    assert!(refused(&mut command).contains("no window has the channel io_pressure"));
}

#[test]
fn the_first_version_of_an_artifact_is_still_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut score = tracewise();
    score.args(["detect", "score", "--json", "--model"]).arg(fixture("artifact/threads-v1")).arg("--data");
    let summary = json_of(score.arg(recorded()).arg("--out").arg(folder.path().join("s.csv")));
    let bad_io = summary["jobs"].as_array().unwrap().iter().find(|job| job["kind"] == "bad-io");
    assert!(bad_io.is_some(), "{summary}");
}
