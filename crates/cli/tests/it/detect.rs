//! Detectors on the command line: train, score, explain, watch, evaluate, and bad input.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{fixture, import_small, json_of, refused, stdout_of, tracewise};

/// The recording has ten readings per second.
const SMALL: &str = "[detector]\ninterval = \"1s\"\nwindow = 40\nmax_windows = 600\n\
    [detector.net]\nwidths = [8, 8]\nn_hidden = 16\nn_latent = 4\n\
    [detector.train]\nn_epochs = 15\nlearning_rate = 0.005\n";

fn settings(folder: &Path, text: &str) -> std::path::PathBuf {
    let file = folder.join("detector.toml");
    std::fs::write(&file, text).unwrap();
    file
}

fn train(folder: &Path, detector: &str, data: &Path) -> Command {
    let mut command = tracewise();
    command.args(["detect", "train", "--detector", detector, "--data"]).arg(data);
    command.arg("--out").arg(folder.join(detector)).arg("--config").arg(settings(folder, SMALL));
    command
}

fn recorded() -> std::path::PathBuf {
    fixture("campaign/recorded")
}

/// The jobs of a kind in the recording.
fn jobs_of(kind: &str) -> Vec<String> {
    let labels = json_of(tracewise().args(["campaign", "label", "list", "--json", "--data"]).arg(recorded()));
    let of_kind = labels.as_array().unwrap().iter().filter(|label| label["kind"] == kind);
    of_kind.map(|label| label["job"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn bad_io_is_found_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let trained = json_of(train(folder.path(), "best", &recorded()).arg("--json"));
    assert_eq!(trained["detector"], "hierarchy");
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("best/manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["kind"], "detect/hierarchy");
    assert!(manifest["created"].as_f64().unwrap() > 1.7e9);
    assert_eq!(manifest["data"]["sha256"].as_str().unwrap().len(), 64);
    assert!(manifest["data"]["from"].as_f64().unwrap() < manifest["data"]["to"].as_f64().unwrap());
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
        "node,cpu,job,window_start,window_seconds,score,strength,user_error,system_error,iowait_error,other_error"
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
    let bad = jobs_of("bad-io");
    let text = stdout_of(look("explain").args(["--job", &bad[0]]));
    assert!(text.contains("iowait") && text.contains("times the threshold"), "{text}");
    let events = json_of(look("events").arg("--json"));
    let events = events.as_array().unwrap();
    let of_bad =
        |event: &&Value| event["jobs"][0].as_str().is_some_and(|job| bad.iter().any(|one| one == job));
    let event = events.iter().find(of_bad).unwrap_or_else(|| panic!("{events:?}"));
    let keys = [
        "id",
        "subject",
        "node",
        "jobs",
        "threads",
        "start",
        "end",
        "opened",
        "strength",
        "level",
        "channels",
        "kinds",
        "certainty",
        "why",
    ];
    assert!(keys.iter().all(|key| event.get(key).is_some()), "{event}");
    assert_eq!(event["subject"], "job");
    assert!(
        event["strength"].as_f64().unwrap() > 1.0 && event["start"].as_f64() < event["opened"].as_f64(),
        "{event}"
    );
    assert!(event["why"].as_str().unwrap().contains("iowait"), "{event}");
    let text = stdout_of(&mut look("events"));
    assert!(text.contains(&format!("job {}", event["jobs"][0].as_str().unwrap())), "{text}");
    assert!(text.contains("the budget is 1 false events per day"), "{text}");
    let explained = json_of(look("explain").args(["--json", "--top", "2"]));
    for window in explained.as_array().unwrap() {
        assert_eq!(window["level"], window["explanation"]["level"], "{window}");
        let from = window["explanation"]["from"].as_f64().unwrap();
        assert!((1.7e9..2e9).contains(&from), "epoch seconds: {from}");
    }
}

#[test]
fn explain_compares_a_job_with_other_jobs_only() {
    let folder = tempfile::tempdir().unwrap();
    stdout_of(&mut train(folder.path(), "pca", &recorded()));
    let mut explain = tracewise();
    explain.args(["detect", "explain", "--json", "--set", "test", "--top", "3", "--data"]).arg(recorded());
    let explained = json_of(explain.arg("--model").arg(folder.path().join("pca")));
    for window in explained.as_array().unwrap() {
        // A kind with one labelled job in the archive is unknown without that job.
        let labels =
            json_of(tracewise().args(["campaign", "label", "list", "--json", "--data"]).arg(recorded()));
        let labels = labels.as_array().unwrap();
        let own = labels.iter().find(|label| label["job"] == window["job"]).unwrap();
        let n_jobs = labels.iter().filter(|label| label["kind"] == own["kind"]).count();
        let is_known = window["kinds"].as_array().unwrap().iter().any(|kind| kind["kind"] == own["kind"]);
        assert!(!is_known || n_jobs > 1, "{} of {own}", window["job"]);
    }
}

#[test]
fn watch_reports_an_event_once_and_events_finds_the_same() {
    let folder = tempfile::tempdir().unwrap();
    stdout_of(&mut train(folder.path(), "pca", &recorded()));
    let model = folder.path().join("pca");
    // A job that waits for I/O all the time, unlike any in the training data.
    let archive = steady(folder.path(), "waiting", [5.0, 0.0, 0.0, 5.0, 90.0]);
    let watch = |more: &[&str]| {
        let mut watch = tracewise();
        watch.args(["detect", "watch", "--duration", "300ms", "--every", "50ms", "--data"]).arg(&archive);
        stdout_of(watch.arg("--model").arg(&model).args(more))
    };
    let lines = watch(&["--json"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "an event is reported once: {lines:?}");
    assert_eq!(lines[0]["change"], "opened");
    let event = &lines[0]["event"];
    assert_eq!((event["jobs"][0].as_str(), event["threads"].as_array().unwrap().len()), (Some("1"), 4));
    assert!(event["strength"].as_f64().unwrap() > 1.0 && event["end"].is_null(), "{event}");
    assert!(event["why"].as_str().unwrap().contains("iowait was 90 %"), "{event}");
    let text = watch(&[]);
    assert!(text.contains("job 1 on node5, 4 threads") && text.contains("still open"), "{text}");
    assert!(text.contains("4 threads scored, 1 events open"), "{text}");
    // The whole archive has the same event, from its beginning on.
    let mut events = tracewise();
    events.args(["detect", "events", "--json", "--data"]).arg(&archive).arg("--model").arg(&model);
    let events = json_of(&mut events);
    assert_eq!(events.as_array().unwrap().len(), 1, "{events}");
    for key in ["subject", "node", "jobs", "threads", "level", "channels", "why"] {
        assert_eq!(events[0][key], event[key], "{key}");
    }
    // The job on its own archive raises no event with a model of itself.
    let busy = steady(folder.path(), "busy", [60.0, 0.0, 0.0, 40.0, 0.0]);
    stdout_of(&mut train(folder.path(), "nearest", &busy));
    let mut again = tracewise();
    again.args(["detect", "watch", "--duration", "100ms", "--data"]).arg(&busy).arg("--model");
    let quiet = stdout_of(again.arg(folder.path().join("nearest")));
    assert!(quiet.contains("0 events open"), "{quiet}");
}

#[test]
fn detectors_are_compared_with_each_other_and_with_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = tracewise();
    command
        .args(["detect", "evaluate", "--detectors", "ae,pca", "--ensemble", "1", "--json", "--data"])
        .arg(recorded());
    command
        .arg("--config")
        .arg(settings(folder.path(), SMALL))
        .arg("--out")
        .arg(folder.path().join("report"));
    let report = json_of(&mut command);
    assert!((report["baselines"]["random_auc"].as_f64().unwrap() - 0.5).abs() < 0.1);
    for model in ["ae", "pca"] {
        let evaluation = &report["detectors"][model][0]["evaluation"];
        let bad_io =
            evaluation["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "bad-io").unwrap();
        assert!(bad_io["detection"]["roc_auc"].as_f64().unwrap() > 0.95, "{model}: {bad_io}");
        let mean = report["baselines"]["mean_window_error"].as_f64().unwrap();
        assert!(evaluation["normal_error"].as_f64().unwrap() < 0.3 * mean);
        assert_eq!(evaluation["cases"].as_array().unwrap().len(), 30);
    }
    for file in ["detectors.html", "detectors.md", "ae-errors.svg", "ae-neighbours.png", "strength.svg"] {
        assert!(folder.path().join("report").join(file).exists(), "{file}");
    }
}

#[test]
fn an_archive_without_labels_is_split_by_the_amount_of_data() {
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
fn faults_are_injected_into_a_copy_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("faulty");
    let inject = |into: &Path| {
        let mut inject = tracewise();
        inject.args([
            "campaign",
            "inject",
            "--fault",
            "slow-storage",
            "--strength",
            "0.5",
            "--probability",
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
        label.args(["campaign", "label", "add", "--json", "--data"]).arg(&archive).arg("--labels").arg(file);
        label
    };
    assert!(refused(&mut label("job,kind,set\n9,spark,test\n")).contains("has no job 9"));
    assert!(refused(&mut label("job,kind,sat\n4711,spark,test\n")).contains("known.csv"));
    assert_eq!(json_of(&mut label("job,kind,set\n4711,spark,test\n"))[0]["kind"], "spark");
}

#[test]
fn unusable_data_settings_and_models_give_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let small = folder.path().join("small");
    import_small(&small);
    assert!(refused(&mut train(folder.path(), "pca", &small)).contains("but 100 are needed (a window is"));
    let missing = refused(&mut train(folder.path(), "pca", &folder.path().join("nothing")));
    assert!(missing.contains("nothing"), "{missing}");

    let with = |text: &str| {
        let mut command = tracewise();
        command.args(["detect", "train", "--detector", "pca", "--data"]).arg(recorded());
        command.arg("--out").arg(folder.path().join("x")).arg("--config").arg(settings(folder.path(), text));
        command
    };
    assert!(refused(&mut with("[detector]\ninterval = \"1s\"\nwindow = 400\n")).contains("windows of 400 s"));
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
        refused(&mut score(&folder.path().join("small"), &recorded(), "s.csv")).contains("is not a model")
    );
    stdout_of(&mut with("[detector]\ninterval = \"1s\"\nwindow = 100\n"));
    let long = folder.path().join("x");
    assert!(refused(&mut score(&long, &small, "s.csv")).contains("there is no window of 100 s"));
    assert!(!folder.path().join("s.csv").exists(), "what was refused leaves nothing");
    let manifest = model.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"version\": 2", "\"version\": 99")).unwrap();
    assert!(refused(&mut score(&model, &recorded(), "s.csv")).contains("has format version 99"));
    std::fs::write(&manifest, text.replace("\"other\"", "\"otter\"")).unwrap();
    assert!(refused(&mut score(&model, &recorded(), "s.csv")).contains("channels"));
}

/// Ten minutes of four threads of one job with constant percentages: idle, steal, system, user, iowait.
fn steady(folder: &Path, name: &str, percent: [f64; 5]) -> std::path::PathBuf {
    use std::fmt::Write;
    let modes = ["Idle", "Steal", "Sys", "User", "Wait"];
    let mut text = "t".to_owned();
    for cpu in 1..=4 {
        modes.iter().for_each(|mode| write!(text, ",node5_CPU00{cpu}_{mode}%").unwrap());
    }
    for second in 0..600 {
        write!(text, "\n{}", 1_525_400_000 + second).unwrap();
        for percent in percent.repeat(4) {
            write!(text, ",{percent}").unwrap();
        }
    }
    let (csv, archive) = (folder.join(format!("{name}.csv")), folder.join(name));
    std::fs::write(&csv, text + "\n").unwrap();
    let mut import = tracewise();
    import.args(["archive", "import", "--preset", "exathlon", "--job", "1", "--into"]).arg(&archive).arg(csv);
    stdout_of(&mut import);
    archive
}

#[test]
fn idle_threads_and_missing_channels_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let idle = steady(folder.path(), "idle", [100.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(refused(&mut train(folder.path(), "pca", &idle)).contains("its threads are idle"));
    let busy = steady(folder.path(), "busy", [60.0, 0.0, 0.0, 40.0, 0.0]);
    stdout_of(&mut train(folder.path(), "pca", &busy));
    let mut command = tracewise();
    command
        .args(["detect", "train", "--detector", "pca", "--data"])
        .arg(&busy)
        .arg("--out")
        .arg(folder.path().join("x"));
    command.arg("--config").arg(settings(folder.path(), "[detector]\nchannels = [\"io-pressure\"]\n"));
    assert!(refused(&mut command).contains("no window has the channel io_pressure"));
}

/// The scores of a model are those that were stored when the model was.
#[test]
fn the_first_version_of_an_artifact_gives_the_scores_it_gave() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("scores.csv");
    let mut score = tracewise();
    score.args(["detect", "score", "--json", "--model"]).arg(fixture("artifact/threads-v1")).arg("--data");
    score
        .arg(fixture("artifact/threads-v1-archive"))
        .args(["--set", "test", "--stride", "100", "--out"])
        .arg(&out);
    let summary = json_of(&mut score);
    assert!(summary["windows"].as_u64().unwrap() > 20, "{summary}");
    let rows = |file: &Path| -> Vec<csv::StringRecord> {
        csv::Reader::from_path(file).unwrap().records().map(Result::unwrap).collect()
    };
    let expected = fixture("artifact/threads-v1-scores.csv");
    let (found, expected) = (rows(&out), rows(&expected));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        // Thresholds of windows have been replaced by those of events.
        for (found, expected) in
            found.iter().zip(expected).enumerate().filter(|(at, _)| *at != 6).map(|(_, both)| both)
        {
            match (found.parse::<f64>(), expected.parse::<f64>()) {
                (Ok(found), Ok(expected)) => {
                    assert!(
                        (found - expected).abs() <= 1e-3 * expected.abs().max(1e-3),
                        "{found} {expected}"
                    );
                }
                _ => assert_eq!(found, expected),
            }
        }
    }
}
