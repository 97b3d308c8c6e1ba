//! Campaigns that are run, stopped and killed; simulations; analyses.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use archive::Archive;
use serde_json::Value;
use workload::{
    Cpu, JobId, Measure, Millis, Mode, ModeSet, NodeName, NodeReading, Owner, Source, ThreadReading, Ticks,
    Timestamp,
};

use crate::{export, json_of, refused, run, stdout_of, tracewise};

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
    json_of(tracewise().args(["campaign", "label", "list", "--json", "--data"]).arg(archive))
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
        let is_anomalous = ["bad-io", "throttled"].contains(&label["kind"].as_str().unwrap());
        assert_eq!(label["anomalous"], is_anomalous, "{label}");
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
    assert_eq!(output.status.code(), Some(130));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("stopped: campaign long is not complete"), "{stderr}");
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

/// An archive of one node sampled every `period`: the user rate of job `wave` repeats every `steps_per_wave`
/// steps; that of job `steady` hardly varies, so that it does not decide.
fn record_wave(directory: &Path, period: Millis, steps_per_wave: u64) {
    let archive =
        Archive::open_or_create(directory.to_str().unwrap(), &archive::Settings::default()).unwrap();
    let ticks_per_step = period.0 as u64;
    let source = Source {
        origin: "a wave".into(),
        measure: Measure::Counter,
        ticks_per_second: 1_000,
        modes: ModeSet::ALL,
        period,
    };
    let mut loader = archive.loader(source).unwrap();
    let mut ticks = [Ticks::default(); 2];
    // A linear congruential generator is noise enough.
    let mut noise = 1u64;
    for step in 0..4_000 {
        let is_high = step % steps_per_wave < steps_per_wave / 2;
        let lowest_and_range = [(if is_high { 60 } else { 20 }, 20), (48, 4)];
        for (ticks, (lowest, range)) in ticks.iter_mut().zip(lowest_and_range) {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let user = ticks_per_step * (lowest + (noise >> 33) % range) / 100;
            ticks[Mode::User] += user;
            ticks[Mode::Idle] += ticks_per_step - user;
        }
        let thread = |cpu: usize, job: &str| ThreadReading {
            cpu: Cpu(cpu as u16),
            ticks: ticks[cpu],
            owner: Owner::Job(JobId::new(job).unwrap()),
        };
        let time = Timestamp::from_seconds(1_767_571_200) + Millis(step as i64 * period.0);
        let node = NodeName::new("n1").unwrap();
        let threads = vec![thread(0, "wave"), thread(1, "steady")];
        loader.push_node(&NodeReading { node, time, threads, jobs: Vec::new() }).unwrap();
    }
    loader.finish().unwrap();
}

fn analyze(what: &str, archive: &Path, out: &Path, options: &[&str]) -> Value {
    let mut command = tracewise();
    command.args(["analyze", what, "--json", "--out"]).arg(out).arg("--data").arg(archive).args(options);
    json_of(&mut command)
}

#[test]
fn the_window_contains_a_wave_of_known_period_and_the_interval_resolves_it() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("a"), folder.path().join("report"));
    record_wave(&archive, Millis::SECOND, 16);
    let spectrum = analyze("spectrum", &archive, &out, &[]);
    assert_eq!(spectrum["advice"]["window_seconds"], 20.0);
    assert_eq!(spectrum["advice"]["frequency_hz"], 0.0625);
    assert_eq!(spectrum["advice"]["kind"], "wave");
    // Means over a whole wave are nearly those of the steady job.
    let options = ["--window", "128", "--intervals", "1,2,4,16,32"];
    let sampling = analyze("sampling", &archive, &out, &options);
    let silhouettes: Vec<f64> = sampling["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|interval| interval["silhouette"].as_f64().unwrap())
        .collect();
    assert!(silhouettes[..3].iter().all(|silhouette| *silhouette > 0.35), "{silhouettes:?}");
    assert!(silhouettes[3..].iter().all(|silhouette| *silhouette < 0.25), "{silhouettes:?}");
    assert_eq!(sampling["advice"]["interval_seconds"], 4.0);
    assert_eq!(
        analyze("sampling", &archive, &out, &options),
        sampling,
        "the same seed selects the same subsets"
    );
    let html = ["spectrum.html", "sampling.html"];
    let charts = ["spectrum-user.svg", "spectrum-user.png", "silhouette.svg", "silhouette.png", "pca-1s.png"];
    for file in html.into_iter().chain(charts) {
        assert!(out.join(file).metadata().unwrap().len() > 1_000, "{file}");
    }
}

#[test]
fn an_archive_sampled_at_10_hz_is_analyzed_at_10_hz() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("a"), folder.path().join("report"));
    record_wave(&archive, Millis(100), 4);
    let spectrum = analyze("spectrum", &archive, &out, &[]);
    assert_eq!(spectrum["period_seconds"], 0.1);
    assert_eq!(spectrum["advice"]["frequency_hz"], 2.5);
    assert_eq!(spectrum["advice"]["window_seconds"], 1.0);
    let options = ["--intervals", "100ms,0.4s,1", "--window", "10"];
    let sampling = analyze("sampling", &archive, &out, &options);
    let seconds: Vec<f64> =
        sampling["intervals"].as_array().unwrap().iter().map(|at| at["seconds"].as_f64().unwrap()).collect();
    assert_eq!(seconds, [0.1, 0.4, 1.0]);
    assert_eq!(sampling["advice"]["interval_seconds"], 0.1);
    let odd = refused(
        tracewise()
            .args(["analyze", "sampling", "--intervals", "0.25", "--out"])
            .arg(&out)
            .arg("--data")
            .arg(&archive),
    );
    assert!(
        odd.contains("an interval of 0.25 s is not a multiple of the archive's sampling period, 0.1 s"),
        "{odd}"
    );
}

#[test]
fn an_analysis_does_not_use_the_test_set() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("a"), folder.path().join("report"));
    simulate(&archive, "3");
    let kinds = |options: &[&str]| -> BTreeSet<String> {
        let spectrum = analyze("spectrum", &archive, &out, options);
        let kinds = spectrum["kinds"].as_array().unwrap().iter();
        kinds.map(|kind| kind["kind"].as_str().unwrap().to_owned()).collect()
    };
    let by_default = kinds(&[]);
    assert!(by_default.contains("np") && !by_default.contains("bad-io"), "{by_default:?}");
    assert!(kinds(&["--set", "all"]).contains("bad-io"));
}

#[test]
fn a_file_of_labels_says_which_jobs_are_anomalous() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, file) = (folder.path().join("a"), folder.path().join("known.csv"));
    record_wave(&archive, Millis::SECOND, 16);
    std::fs::write(&file, "job,kind,set,anomalous\nwave,miner,test,true\nsteady,idle,test,\n").unwrap();
    let mut add = tracewise();
    add.args(["campaign", "label", "add", "--json", "--data"]).arg(&archive).arg("--labels").arg(&file);
    json_of(&mut add);
    let labels = labels(&archive);
    let anomalous = |kind: &str| &labels.iter().find(|label| label["kind"] == kind).unwrap()["anomalous"];
    assert_eq!((anomalous("miner"), anomalous("idle")), (&Value::Bool(true), &Value::Null));
    let table = stdout_of(tracewise().args(["campaign", "label", "list", "--data"]).arg(&archive));
    assert!(table.lines().any(|line| line.contains("miner  yes")), "{table}");
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
fn the_recording_has_every_kind_twice_in_every_campaign_and_anomalies_in_test_only() {
    let labels = labels(&crate::fixture("campaign/recorded"));
    let count = |set: &str, kind: &str| {
        labels.iter().filter(|label| label["set"] == set && label["kind"] == kind).count()
    };
    for set in ["train", "validation", "test"] {
        for kind in ["np", "good-io", "mpi-2", "mpi-steady-2", "idle"] {
            assert!(count(set, kind) >= 2, "{kind} in {set}");
        }
    }
    assert!(labels.iter().all(|label| label["anomalous"] == false || label["set"] == "test"));
    for kind in ["cpu-hog-25", "cpu-hog-50", "cpu-hog"] {
        assert_eq!(count("test", kind), 1, "{kind}");
    }
    let time = |name: &'static str| labels.iter().map(move |label| label[name].as_f64().unwrap());
    let minutes = (time("end").fold(0.0, f64::max) - time("start").fold(f64::MAX, f64::min)) / 60.0;
    assert!(minutes >= 70.0, "{minutes}");
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
    let times: Vec<f64> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["time"].as_f64().unwrap())
        .collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1.0), "{times:?}");
    let listed = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(folder.path()));
    assert_eq!(listed["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(listed["nodes"][0]["readings"].as_u64().unwrap(), n_lines as u64 * 8);
}
