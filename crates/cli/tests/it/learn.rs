//! `tracewise learn tonight`: competitions through interruptions, and what MLflow's own client reads of them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use detect::EventChange;
use lifecycle::{Registry, Store};
use serde_json::Value;
use testbed::small_disk::SmallDisk;
use workload::Timestamp;

use crate::{json_of, refused, run, stdout_of, tracewise};

/// How often commands are killed.
const N_KILLS: u64 = 20;

/// A service with 135 minutes of data, with which two small detectors compete.
struct Night {
    _folder: Option<tempfile::TempDir>,
    config: PathBuf,
    data: PathBuf,
}

impl Night {
    /// The data begins so many seconds ago.
    fn new(ago: u64, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let night = Self::below(folder.path(), ago, more);
        Self { _folder: Some(folder), ..night }
    }

    /// The same below a folder.
    fn below(folder: &Path, ago: u64, more: &str) -> Self {
        let data = folder.join("data");
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() - ago;
        stdout_of(
            tracewise()
                .args(["campaign", "simulate", "--campaigns", "train=3", "--hours", "0.75"])
                .args(["--nodes", "2", "--threads", "16", "--seed", "5", "--start", &start.to_string()])
                .arg("--into")
                .arg(data.join("archive")),
        );
        let config = folder.join("tracewise.toml");
        let text = format!(
            "[detector.train]\nn_epochs = 2\n[serve]\ndata = {data:?}\n\
             [serve.learning]\ncandidates = [\"ae\", \"pca\"]\nwarm_start = false\nhistory = \"3h\"\n{more}"
        );
        std::fs::write(&config, text).unwrap();
        Self { _folder: None, config, data }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tracewise();
        command.arg("--config").arg(&self.config).args(arguments);
        command
    }

    fn history(&self) -> Vec<Value> {
        json_of(&mut self.command(&["learn", "history", "--json"])).as_array().unwrap().clone()
    }

    /// Models that are complete or not.
    fn n_models(&self) -> usize {
        std::fs::read_dir(self.data.join("models")).map_or(0, Iterator::count)
    }
}

#[test]
fn a_night_that_is_killed_or_held_twice_leaves_nothing_behind() {
    let night = Night::new(9_000, "");
    let mut first = night.command(&["learn", "tonight"]);
    let mut first = first.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    // It is training.
    assert!(lines.any(|line| line.unwrap().contains("epoch 1 of 2")));
    let second = refused(&mut night.command(&["learn", "tonight"]));
    assert!(second.contains("another competition is under way"), "{second}");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!((night.history().len(), night.n_models()), (0, 0));

    let held = json_of(&mut night.command(&["learn", "tonight", "--json"]));
    let winner = held["winner"].as_str().unwrap();
    let champion = json_of(&mut night.command(&["models", "show", "--json"]));
    assert_eq!(champion["model"]["version"], winner);
    assert_eq!(night.history(), std::slice::from_ref(&held));
    let cadence = json_of(&mut night.command(&["learn", "cadence", "--json"]));
    assert_eq!((&cadence["n_threads"], &cadence["is_measured"]), (&32.into(), &false.into()), "{cadence}");
    assert!(cadence["sizes"][0]["shortest_seconds"].as_f64() > Some(0.0), "{cadence}");
    // The same data and seed: no candidate is better than the champion.
    let again = json_of(&mut night.command(&["learn", "tonight", "--json"]));
    assert_eq!((&again["winner"], &again["champion_before"]), (&Value::Null, &held["winner"]));
    assert_eq!(night.n_models(), 1);
}

/// Runs a command that is killed at some moment, which differs from call to call.
fn killed(command: &mut Command, attempt: u64) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(attempt * 7 % 60));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_promotion_or_a_verdict_that_is_killed_happens_wholly_or_not_at_all() {
    let night = Night::new(9_000, "");
    let held = json_of(&mut night.command(&["learn", "tonight", "--json"]));
    let champion = night.data.join("models").join(held["winner"].as_str().unwrap());
    stdout_of(night.command(&["models", "add"]).arg(&champion).args(["--name", "other"]));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let path = night.data.join("metadata.db");
    let id = |attempt: u64| format!("event-{attempt}");
    runtime.block_on(async {
        let store = Store::open_file(&path).await.unwrap();
        for attempt in 0..N_KILLS {
            let event = serde_json::json!({
                "id": id(attempt), "subject": "job", "node": "n1", "nodes": ["n1"], "jobs": ["1"], "threads": [0], "start": 1,
                "end": 3, "opened": 2, "strength": 1.5, "level": "job", "channels": [], "kinds": [], "certainty": 0.9, "why": "",
            });
            let opened = EventChange::Opened(serde_json::from_value(event).unwrap());
            store.record(&opened, "other", Timestamp(0)).await.unwrap();
        }
        store.close().await;
    });
    for attempt in 0..N_KILLS {
        let version = if attempt % 2 == 0 { "other" } else { held["winner"].as_str().unwrap() };
        killed(&mut night.command(&["models", "promote", version, "--reason", "a test"]), attempt);
        killed(&mut night.command(&["review", &id(attempt), "--answer", "unsure"]), attempt);
    }
    // The champion can be loaded, and every promotion and verdict in the store has its entry in the audit log.
    json_of(&mut night.command(&["models", "show", "--json"]));
    let (n_promotions, n_verdicts, n_audited) = runtime.block_on(async {
        let store = Store::open_file(&path).await.unwrap();
        assert!(store.verify_audit().await.unwrap().is_ok());
        let registry = Registry::new(store.clone(), &night.data);
        let n_promotions = registry.promotions_after(0, 1_000).await.unwrap().len();
        let mut n_verdicts = 0;
        for attempt in 0..N_KILLS {
            let verdicts = store.verdicts_of(&id(attempt)).await.unwrap().len();
            assert!(verdicts <= 1);
            n_verdicts += verdicts;
        }
        let audited = store.audit_log(1_000).await.unwrap();
        let n_audited = |action: &str| audited.iter().filter(|entry| entry.action == action).count();
        (n_promotions, n_verdicts, [n_audited("promoted"), n_audited("verdict")])
    });
    assert_eq!([n_promotions, n_verdicts], n_audited);
}

#[test]
fn a_candidate_that_diverges_does_not_win() {
    let night = Night::new(9_000, "");
    let text = std::fs::read_to_string(&night.config).unwrap();
    let text = text.replace("n_epochs = 2", "n_epochs = 2\nlearning_rate = 1e30\nmax_gradient_norm = 1e30");
    std::fs::write(&night.config, text).unwrap();
    let held = json_of(&mut night.command(&["learn", "tonight", "--json"]));
    assert!(held["candidates"][0]["objection"].is_string(), "{held}");
    assert_eq!((&held["winning_candidate"], night.n_models()), (&"pca".into(), 1), "{held}");
}

#[test]
fn a_full_disk_leaves_the_champion_as_it_was() {
    let Some(disk) = SmallDisk::mount(65_536) else { return };
    let night = Night::below(disk.path(), 9_000, "");
    // The store exists, and has no room for a model.
    assert!(night.history().is_empty());
    let filler = disk.fill(16);
    let complaint = refused(&mut night.command(&["learn", "tonight"]));
    // Either the model or the metadata store has no room.
    let is_named = ["space", "full", "metadata store"].iter().any(|reason| complaint.contains(reason));
    assert!(is_named, "{complaint}");
    // Looking into the store needs some room as well.
    std::fs::remove_file(filler).unwrap();
    assert!(night.history().is_empty());
    let held = json_of(&mut night.command(&["learn", "tonight", "--json"]));
    let champion = json_of(&mut night.command(&["models", "show", "--json"]));
    assert_eq!((&champion["model"]["version"], night.n_models()), (&held["winner"], 1));
}

#[test]
fn the_same_rehearsal_gives_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tracewise.toml");
    let text = "[detector.train]\nn_epochs = 2\n[serve.learning]\ncandidates = [\"ae\"]\n";
    std::fs::write(&config, text).unwrap();
    let report = |name: &str| {
        let out = folder.path().join(name);
        let options = [
            "--days",
            "2",
            "--hours",
            "1.5",
            "--nodes",
            "2",
            "--threads",
            "16",
            "--seed",
            "3",
            "--error-rate",
            "0.2",
        ];
        stdout_of(
            tracewise().arg("--config").arg(&config).arg("rehearse").args(options).arg("--out").arg(&out),
        );
        let mut report: Value =
            serde_json::from_slice(&std::fs::read(out.join("rehearsal.json")).unwrap()).unwrap();
        for day in report["days"].as_array_mut().unwrap() {
            day.as_object_mut().unwrap().retain(|name, _| !name.ends_with("_seconds"));
        }
        report
    };
    let first = report("first");
    assert_eq!(first, report("second"));
    let days = first["days"].as_array().unwrap();
    assert_eq!((days.len(), &days[0]["champion"]), (2, &Value::Null));
    assert!(days[1]["champion"].is_string() && days[1]["anomalous_jobs"].as_u64() > Some(0), "{first}");
}

#[test]
fn a_night_without_data_is_one_clear_line() {
    let night = Night::new(30_000, "");
    let complaint = refused(&mut night.command(&["learn", "tonight"]));
    assert!(complaint.contains("the train set has 0 windows"), "{complaint}");
    assert!(night.history().is_empty() && night.n_models() == 0);
}

#[test]
fn candidates_are_trained_by_slurm_one_that_is_killed_is_out_and_one_that_is_requeued_is_not() {
    let n_cpus = std::thread::available_parallelism().unwrap().get().min(2);
    let Some(slurm) = testbed::slurm::Slurm::start(n_cpus) else { return };
    let night = Night::new(9_000, "");
    let arguments = ["learn", "tonight", "--on", "slurm", "--deadline", "5m", "--json"];
    let mut command = night.command(&arguments);
    slurm.configure(&mut command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The first candidate is ae.
    let cancelled = testbed::eventually("a task that is cancelled", || {
        let tasks = slurm.run("squeue", &["--noheader", "--array", "--format=%i"]);
        let task = tasks.lines().find(|task| task.trim().ends_with("_0"))?.trim().to_owned();
        slurm.run("scancel", &[&task]);
        Some(task)
    });
    // The other one is pca. Slurm lets a requeued task wait for two minutes, unless it is told to start now.
    let requeued = cancelled.replace("_0", "_1");
    testbed::eventually("a task that is requeued", || {
        let has_begun = !slurm.run("scontrol", &["show", "job", &requeued]).contains("JobState=PENDING");
        has_begun.then(|| slurm.run("scontrol", &["requeue", &requeued]))
    });
    testbed::eventually("the task that was requeued", || {
        slurm.run("scontrol", &["update", &format!("JobId={requeued}"), "StartTime=now"]);
        slurm.run("scontrol", &["show", "job", &requeued]).contains("Restarts=1").then_some(())
    });
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let held: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(held["candidates"][0]["objection"], "it has no result", "{held}");
    assert_eq!((&held["winning_candidate"], night.n_models()), (&"pca".into(), 1), "{held}");
    // Nothing is left for late results.
    assert_eq!(std::fs::read_dir(night.data.join("nights")).unwrap().count(), 0);

    // Without Slurm, nothing happens.
    let complaint = refused(night.command(&arguments).env("PATH", ""));
    assert!(complaint.contains("sbatch cannot be run"), "{complaint}");
    assert_eq!((night.history().len(), night.n_models()), (1, 1));
}

const READ: &str = r#"
import json, pathlib, sys, tempfile, mlflow
from mlflow import MlflowClient
mlflow.set_tracking_uri(sys.argv[1])
client = MlflowClient()
experiment = client.get_experiment_by_name("tracewise")
runs = client.search_runs([experiment.experiment_id])
def run(one):
    return {
        "name": one.info.run_name, "status": one.info.status, "metrics": one.data.metrics,
        "parent": one.data.tags.get("mlflow.parentRunId"), "id": one.info.run_id,
        "datasets": [given.dataset.digest for given in one.inputs.dataset_inputs],
        "curve": [point.step for point in client.get_metric_history(one.info.run_id, "validation_loss")],
        "outputs": [model.model_id for model in one.outputs.model_outputs] if one.outputs else [],
    }
champion = client.get_model_version_by_alias("tracewise", "champion")
with tempfile.TemporaryDirectory() as folder:
    path = mlflow.artifacts.download_artifacts("models:/tracewise@champion", dst_path=folder)
    files = sorted(file.name for file in pathlib.Path(path).iterdir())
versions = client.search_model_versions("name='tracewise'")
print(json.dumps({
    "runs": [run(one) for one in runs], "files": files, "n_versions": len(versions),
    "champion": {"version": champion.tags["tracewise.version"], "run": champion.run_id, "source": champion.source},
    "models": [{"id": one.model_id, "status": str(one.status), "metrics": sorted(m.key for m in one.metrics or [])}
               for one in client.search_logged_models([experiment.experiment_id])],
}))
"#;

const MOVE: &str = r#"
import sys, mlflow
from mlflow import MlflowClient
mlflow.set_tracking_uri(sys.argv[1])
client = MlflowClient()
for version in client.search_model_versions("name='tracewise'"):
    if version.tags["tracewise.version"] == sys.argv[2]:
        client.set_registered_model_alias("tracewise", "champion", version.version)
"#;

fn python(python: &Path, script: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(python);
    command.args(["-c", script]).args(arguments).env("MLFLOW_DISABLE_TELEMETRY", "true");
    stdout_of(&mut command)
}

#[test]
fn mlflow_shows_nights_models_and_aliases_also_after_an_outage() {
    let Some(interpreter) = testbed::python() else { return };
    let Some(mut server) = testbed::mlflow() else { return };
    let url = server.url();
    let night = Night::new(9_000, &format!("[serve.mlflow]\nurl = {url:?}\n"));
    // It is away during the first night.
    server.kill();
    let output = run(&mut night.command(&["learn", "tonight", "--json"]));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("MLflow is told later"));
    let held: Value = serde_json::from_slice(&output.stdout).unwrap();
    let winner = held["winner"].as_str().unwrap();
    server.start_again();
    // A second night tells it of both; the champion stays.
    json_of(&mut night.command(&["learn", "tonight", "--json"]));

    let read = || serde_json::from_str::<Value>(&python(&interpreter, READ, &[&url])).unwrap();
    let seen = read();
    let runs = seen["runs"].as_array().unwrap();
    let names = |wanted: &str| runs.iter().filter(|run| run["name"] == wanted).collect::<Vec<_>>();
    let (first, ae) = (names("night-1"), names("ae"));
    assert_eq!((first.len(), names("night-2").len(), ae.len()), (1, 1, 2), "{seen}");
    let of_first: Vec<_> = runs.iter().filter(|run| run["parent"] == first[0]["id"]).collect();
    assert_eq!(of_first.len(), held["candidates"].as_array().unwrap().len());
    let hash = held["data"]["sha256"].as_str().unwrap();
    for run in of_first {
        assert_eq!((&run["status"], &run["datasets"][0]), (&"FINISHED".into(), &hash[..36].into()), "{run}");
        let of_candidate = |candidate: &&Value| candidate["name"] == run["name"];
        let candidate = held["candidates"].as_array().unwrap().iter().find(of_candidate).unwrap();
        assert_eq!(
            run["metrics"]["reconstruction_error"].as_f64(),
            candidate["figures"]["reconstruction_error"].as_f64()
        );
    }
    assert!(ae.iter().all(|run| run["curve"] == serde_json::json!([1, 2])), "{seen}");
    assert_eq!(seen["champion"]["version"], winner);
    let files = seen["files"].as_array().unwrap();
    for file in ["MLmodel", "manifest.json", "weights.safetensors"] {
        assert!(files.contains(&file.into()), "{file} is not among {files:?}");
    }
    assert_eq!(seen["models"][0]["status"], "READY", "{seen}");
    let metrics = ["false_events_per_day", "found", "injected_found", "reconstruction_error"];
    assert_eq!(seen["models"][0]["metrics"], serde_json::json!(metrics), "{seen}");
    let winning = runs.iter().find(|run| run["id"] == seen["champion"]["run"]).unwrap();
    assert_eq!(winning["name"], held["winning_candidate"]);
    let model = winning["outputs"][0].as_str().unwrap();
    assert!(seen["champion"]["source"].as_str().unwrap().contains(model), "{seen}");

    // Another model is added; somebody makes it champion in MLflow.
    stdout_of(
        night
            .command(&["models", "add"])
            .arg(night.data.join("models").join(winner))
            .args(["--name", "other"]),
    );
    json_of(&mut night.command(&["learn", "tonight", "--json"]));
    assert_eq!(read()["n_versions"], 2);
    python(&interpreter, MOVE, &[&url, "other"]);
    json_of(&mut night.command(&["learn", "tonight", "--json"]));
    let champion = json_of(&mut night.command(&["models", "show", "--json"]));
    assert_eq!(
        (&champion["model"]["version"], &read()["champion"]["version"]),
        (&"other".into(), &"other".into())
    );
}
