//! Campaigns: run for real, stopped, killed; simulated; analysed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::{export, json_of, run, stdout_of, tracewise};

const PLAN: &str = r#"
    seed = 5
    pause = "1s"
    quota = "20MB"
    [[normal]]
    kind = "np"
    length = ["3s", "3s"]
    [[normal]]
    kind = "good-io"
    length = ["3s", "3s"]
    [[normal]]
    kind = "idle"
    length = ["3s", "3s"]
    [[anomalous]]
    kind = "bad-io"
    length = ["3s", "3s"]
    [[anomalous]]
    kind = "throttled"
    length = ["3s", "3s"]
    [[campaign]]
    name = "one"
    set = "train"
    [[campaign]]
    name = "two"
    set = "test"
"#;

fn write_plan(folder: &Path, text: &str) -> std::path::PathBuf {
    let plan = folder.join("plan.toml");
    std::fs::write(&plan, text).unwrap();
    plan
}

/// Tests share the machine, which is therefore busy.
fn campaign_run(folder: &Path, plan: &str) -> Command {
    let mut command = tracewise();
    command
        .args(["campaign", "run", "--even-if-busy", "--node", "n1"])
        .arg(write_plan(folder, plan))
        .arg("--into")
        .arg(folder.join("a"))
        .arg("--scratch")
        .arg(folder.join("scratch"));
    command
}

/// Writers need a disk, which the folder for temporary files may not be on.
fn folder_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn labels(archive: &Path) -> Vec<Value> {
    json_of(tracewise().args(["campaign", "labels", "--json", "--data"]).arg(archive))
        .as_array()
        .unwrap()
        .clone()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_campaign_is_recorded_with_its_labels() {
    let folder = folder_on_disk();
    let told = json_of(campaign_run(folder.path(), PLAN).arg("--json"));
    let archive = folder.path().join("a");
    let labels = labels(&archive);
    assert_eq!(told, Value::Array(labels.clone()));
    let kinds = |campaign: &str| -> BTreeSet<&str> {
        let of_campaign = labels.iter().filter(|label| label["campaign"] == campaign);
        of_campaign.map(|label| label["kind"].as_str().unwrap()).collect()
    };
    assert_eq!(kinds("one"), BTreeSet::from(["np", "good-io", "idle"]));
    assert_eq!(kinds("two"), BTreeSet::from(["np", "good-io", "idle", "bad-io", "throttled"]));
    let rows = export(archive.to_str().unwrap(), |command| command);
    for label in &labels {
        let job = label["job"].as_str().unwrap();
        let [start, end] = ["start", "end"].map(|key| label[key].as_f64().unwrap());
        assert!(end - start >= 1.0, "{label}");
        let times: Vec<f64> = rows
            .lines()
            .filter(|row| row.split(',').nth(3) == Some(job))
            .map(|row| row.split(',').next().unwrap().parse().unwrap())
            .collect();
        assert!(!times.is_empty(), "{label}");
        assert!(times.iter().all(|time| *time > start - 1.5 && *time <= end + 0.5), "{label} {times:?}");
    }
    assert!(is_empty(&folder.path().join("scratch")));
    let again = run(&mut campaign_run(folder.path(), PLAN));
    assert!(String::from_utf8_lossy(&again.stderr).contains("campaign one is in the archive already"));
}

/// A run that has started its first job, which would go on for an hour.
fn start_long_job(folder: &Path, kind: &str) -> (Child, u32) {
    let plan = format!(
        "pause = \"0s\"\nquota = \"20MB\"\n[[normal]]\nkind = \"{kind}\"\nlength = [\"1h\", \"1h\"]\n\
         [[campaign]]\nname = \"long\"\nset = \"train\"\n"
    );
    let mut child = campaign_run(folder, &plan).stderr(Stdio::piped()).spawn().unwrap();
    let started = BufReader::new(child.stderr.as_mut().unwrap())
        .lines()
        .map(|line| line.unwrap())
        .find(|line| line.contains("long-01"));
    assert!(started.is_some());
    let job = testbed::eventually("the job's process", || {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        std::fs::read_to_string(children).ok()?.split_whitespace().next()?.parse().ok()
    });
    (child, job)
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

#[test]
fn a_campaign_that_is_killed_leaves_no_job_no_label_and_no_file() {
    let folder = folder_on_disk();
    let (mut child, job) = start_long_job(folder.path(), "good-io");
    child.kill().unwrap();
    child.wait().unwrap();
    testbed::eventually("a job that ends with its runner", || (!is_running(job)).then_some(()));
    assert!(labels(&folder.path().join("a")).is_empty());
    // The next run clears away what the first could not.
    stdout_of(&mut campaign_run(folder.path(), PLAN));
    assert!(is_empty(&folder.path().join("scratch")));
}

#[test]
fn a_campaign_that_is_stopped_says_so_and_has_no_labels() {
    let folder = tempfile::tempdir().unwrap();
    let (child, job) = start_long_job(folder.path(), "np");
    testbed::interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("error: stopped: campaign long is not complete"), "{said}");
    assert!(!is_running(job) && is_empty(&folder.path().join("scratch")));
    assert!(labels(&folder.path().join("a")).is_empty());
}

#[test]
fn jobs_that_slurm_runs_are_labelled_with_its_numbers_and_threads() {
    let n_cpus = std::thread::available_parallelism().unwrap().get().min(2);
    let Some(slurm) = testbed::slurm::Slurm::start(n_cpus) else { return };
    let folder = tempfile::tempdir().unwrap();
    let plan = "pause = \"0s\"\n[[normal]]\nkind = \"np\"\nlength = [\"4s\", \"4s\"]\n\
                [[campaign]]\nname = \"a\"\nset = \"train\"\n";
    let mut command = campaign_run(folder.path(), plan);
    slurm.configure(command.args(["--submit", "slurm", "--json"]));
    let labels = json_of(&mut command);
    let label = &labels.as_array().unwrap()[0];
    assert!(label["job"].as_str().unwrap().parse::<u32>().is_ok(), "{label}");
    assert_eq!(label["threads"].as_array().unwrap().len(), 1);
    let job = label["job"].as_str().unwrap().to_owned();
    let rows = export(folder.path().join("a").to_str().unwrap(), |command| command.args(["--job", &job]));
    assert!(rows.lines().count() > 2, "{rows}");
}

#[test]
fn ranks_are_those_of_a_real_mpi_where_there_is_one_and_threads_elsewhere() {
    let Some(launcher) = testbed::program("mpich/bin/mpiexec.mpich") else { return };
    let plan = "pause = \"0s\"\n[[normal]]\nkind = \"mpi-1\"\nlength = [\"3s\", \"3s\"]\n\
                [[campaign]]\nname = \"a\"\nset = \"train\"\n";
    let made_by = |path: &str| {
        let folder = tempfile::tempdir().unwrap();
        let labels = json_of(campaign_run(folder.path(), plan).arg("--json").env("PATH", path));
        labels[0]["made_by"].as_str().unwrap().to_owned()
    };
    let path = std::env::var("PATH").unwrap();
    assert_eq!(made_by(&format!("{}:{path}", launcher.parent().unwrap().display())), "mpich");
    assert_eq!(made_by(""), "threads and a barrier");
}

fn simulate(archive: &Path, seed: &str) -> Value {
    json_of(
        tracewise()
            .args(["campaign", "simulate", "--nodes", "2", "--threads", "4", "--hours", "1"])
            .args(["--campaigns", "train=1,validation=1,test=1", "--seed", seed, "--json", "--into"])
            .arg(archive),
    )
}

#[test]
fn one_seed_is_one_simulated_cluster_and_its_sets_keep_apart() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
    simulate(&a, "7");
    simulate(&b, "7");
    simulate(&c, "8");
    let exported = |archive: &Path| export(archive.to_str().unwrap(), |command| command);
    assert!(exported(&a) == exported(&b) && labels(&a) == labels(&b));
    assert!(exported(&a) != exported(&c));
    let labels = labels(&a);
    let mut spans: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for label in &labels {
        let [start, end] = ["start", "end"].map(|key| label[key].as_f64().unwrap());
        let span = spans.entry(label["set"].as_str().unwrap()).or_insert((start, end));
        *span = (span.0.min(start), span.1.max(end));
        assert!(label["kind"] != "bad-io" || label["set"] == "test");
    }
    assert!(spans["train"].1 <= spans["validation"].0 && spans["validation"].1 <= spans["test"].0);
    let jobs: BTreeSet<&str> = labels.iter().map(|label| label["job"].as_str().unwrap()).collect();
    assert_eq!(jobs.len(), labels.len());
    stdout_of(tracewise().args(["archive", "verify", "--data"]).arg(&a));
}

#[test]
fn an_archive_says_how_long_and_how_often_to_look() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("a"), folder.path().join("report"));
    simulate(&archive, "3");
    let analyze = |what: &str| {
        json_of(tracewise().args(["analyze", what, "--json", "--out"]).arg(&out).arg("--data").arg(&archive))
    };
    let spectrum = analyze("spectrum");
    assert!(spectrum["advice"]["window_seconds"].as_u64().unwrap() >= 10);
    assert!(spectrum["advice"]["reason"].as_str().unwrap().contains("window of"));
    let kinds: BTreeSet<&str> =
        spectrum["kinds"].as_array().unwrap().iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains("np") && !kinds.contains("bad-io"), "nothing of the test set decides: {kinds:?}");
    let sampling = analyze("sampling");
    let intervals: Vec<u64> =
        sampling["intervals"].as_array().unwrap().iter().map(|at| at["seconds"].as_u64().unwrap()).collect();
    assert_eq!(intervals, [1, 2, 5, 10, 15, 30, 60]);
    assert!(intervals.contains(&sampling["advice"]["interval_seconds"].as_u64().unwrap()));
    for file in ["spectrum.html", "spectrum.json", "spectrum-user.svg", "spectrum-user.png"] {
        assert!(out.join(file).metadata().unwrap().len() > 1_000, "{file}");
    }
    for file in ["sampling.html", "silhouette.svg", "silhouette.png", "pca-1s.png"] {
        assert!(out.join(file).metadata().unwrap().len() > 1_000, "{file}");
    }
    assert_eq!(analyze("sampling"), sampling, "the same seed draws the same subsets");
}

#[test]
fn the_recording_in_the_repository_gives_the_model_that_comes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.json");
    let recorded = crate::fixture("campaign/recorded");
    stdout_of(tracewise().args(["campaign", "fit", "--out"]).arg(&model).arg("--data").arg(&recorded));
    let read = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let built_in = testbed::workspace().join("crates/campaign/src/simulate/recorded.json");
    assert_eq!(read(&model), read(&built_in));
}

#[test]
fn a_live_cluster_is_recorded_as_time_passes() {
    let folder = tempfile::tempdir().unwrap();
    let lines = stdout_of(
        tracewise()
            .args(["campaign", "simulate", "--nodes", "3", "--threads", "8", "--live", "--speed", "20"])
            .args(["--duration", "2s", "--json", "--into"])
            .arg(folder.path()),
    );
    let n_lines = lines.lines().count();
    assert!((10..=45).contains(&n_lines), "{n_lines}");
    let listed = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(folder.path()));
    assert_eq!(listed["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(listed["nodes"][0]["readings"].as_u64().unwrap(), n_lines as u64 * 8);
}
