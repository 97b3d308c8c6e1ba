//! `tracewise serve` as a process: killed at random points, told to read its settings again, and stopped.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use agent::exposition::{Family, Kind, Sink};
use agent::remote_write::{Batch, Sender, Target};
use archive::{Archive, Replay, Selection, Settings};
use workload::{Millis, Mode, NodeReading, Timestamp, metric, samples};

use crate::crash::next;
use crate::{json_of, simulate, stdout_of, tracewise};

/// A service in a process of its own.
pub struct Process {
    child: Child,
    pub port: u16,
}

impl Process {
    pub fn start(folder: &Path, config: Option<&Path>) -> Self {
        let mut command = tracewise();
        if let Some(config) = config {
            command.arg("--config").arg(config);
        }
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        Self { port: port.unwrap_or_else(|| panic!("no address in {line:?}")), child }
    }

    fn sender(&self) -> Sender {
        let url = format!("http://127.0.0.1:{}/api/v1/write", self.port).parse().unwrap();
        Sender::new(Target { url, bearer_token_file: None }).unwrap()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it and returns what it has logged.
    pub fn stop(mut self) -> String {
        let begin = Instant::now();
        self.signal(rustix::process::Signal::TERM);
        assert!(self.child.wait().unwrap().success());
        assert!(begin.elapsed() < Duration::from_secs(5), "it took {:?} to stop", begin.elapsed());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

/// One scrape of a node with two threads.
fn scrape(time: Timestamp, seconds: f64) -> Batch {
    let mut batch = Batch::new(Vec::new());
    batch.family(Family { name: "node_cpu_seconds_total", kind: Kind::Counter, help: "Seconds." });
    for cpu in ["0", "1"] {
        for mode in ["user", "system", "idle"] {
            batch.sample(&[("cpu", cpu), ("instance", "n1"), ("mode", mode)], seconds, Some(time));
        }
    }
    batch
}

#[test]
fn a_service_killed_at_random_points_keeps_everything_that_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begin = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::from_seconds(3_000);
    let mut acknowledged = BTreeSet::new();
    let (mut random, mut second) = (0x5eed_u64, 0);
    let mut send = |process: &Process, until: Instant, acknowledged: &mut BTreeSet<Timestamp>| {
        let mut sender = process.sender();
        runtime.block_on(async {
            while Instant::now() < until {
                let time = begin + Millis::from_seconds(second);
                second += 1;
                if sender.send(&scrape(time, second as f64)).await.is_ok() {
                    acknowledged.insert(time);
                }
            }
        });
    };
    for _ in 0..10 {
        let mut process = Process::start(folder.path(), None);
        // The kill comes while requests are being sent.
        let pause = Duration::from_millis(20 + next(&mut random) % 300);
        let killer = kill_after(&process.child, pause);
        send(&process, Instant::now() + pause + Duration::from_millis(5), &mut acknowledged);
        killer.join().unwrap();
        process.child.wait().unwrap();
    }
    let process = Process::start(folder.path(), None);
    send(&process, Instant::now() + Duration::from_millis(200), &mut acknowledged);
    std::thread::sleep(Duration::from_secs(2));
    process.stop();

    let readings = archived(folder.path());
    let stored: BTreeSet<Timestamp> = readings.iter().map(|reading| reading.time).collect();
    assert_eq!(stored.len(), readings.len(), "none is stored twice");
    assert!(readings.iter().all(|reading| reading.threads.len() == 2), "all are whole");
    let lost: Vec<&Timestamp> = acknowledged.difference(&stored).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
    assert!(acknowledged.len() > 50, "{} were acknowledged", acknowledged.len());
}

#[test]
fn a_service_is_asked_whether_it_is_healthy_where_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tracewise.toml");
    let health = |more: &[&str]| {
        let output = tracewise().arg("health").args(more).arg("--config").arg(&config).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    std::fs::write(&config, "").unwrap();
    let process = Process::start(folder.path(), Some(&config));
    std::fs::write(&config, format!("[serve]\nlisten = \"127.0.0.1:{}\"\n", process.port)).unwrap();
    assert_eq!(health(&[]), (Some(0), String::new()));
    let missing = format!("http://127.0.0.1:{}/missing", process.port);
    let (code, said) = health(&["--url", &missing]);
    assert!(code == Some(1) && said.contains("404 Not Found"), "{said}");
    process.stop();
    let (code, said) = health(&[]);
    assert!(code == Some(1) && said.contains("does not respond: Connection refused"), "{said}");
}

/// Kills a process after a while.
fn kill_after(child: &Child, pause: Duration) -> std::thread::JoinHandle<()> {
    let pid = rustix::process::Pid::from_child(child);
    std::thread::spawn(move || {
        std::thread::sleep(pause);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    })
}

/// The readings in the archive of a service.
fn archived(folder: &Path) -> Vec<NodeReading> {
    let address = folder.join("data/archive").to_string_lossy().into_owned();
    let archive = Archive::open(&address, &Settings::default()).unwrap();
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    Replay::new(&snapshot, None).unwrap().map(|one| one.unwrap().reading).collect()
}

#[test]
fn readings_of_an_agent_survive_kills_of_the_service() {
    let program = Path::new(env!("CARGO_BIN_EXE_tracewise")).with_file_name("tracewise-agent");
    if !program.exists() {
        return testbed::skip("tracewise-agent is not built: `cargo build -p agent`");
    }
    let folder = tempfile::tempdir().unwrap();
    let agent = testbed::Server::start(&program, |port, _| {
        vec![format!("--web.listen-address=127.0.0.1:{port}"), "--sample.interval=20ms".into()]
    });
    let config = folder.path().join("tracewise.toml");
    let settings = format!("[serve.agents]\ntargets = [\"127.0.0.1:{}\"]\nevery = \"100ms\"\n", agent.port);
    std::fs::write(&config, settings).unwrap();
    let mut random = 0xa9e7_u64;
    for _ in 0..10 {
        let mut process = Process::start(folder.path(), Some(&config));
        let pause = Duration::from_millis(20 + next(&mut random) % 400);
        kill_after(&process.child, pause).join().unwrap();
        process.child.wait().unwrap();
    }
    let process = Process::start(folder.path(), Some(&config));
    std::thread::sleep(Duration::from_secs(1));
    process.stop();
    let answer = testbed::http::get(agent.port, "/samples", &[]);
    let read: Vec<NodeReading> = samples::read(&answer.body).map(|one| one.unwrap().1).collect();
    let stored = archived(folder.path());
    let times: BTreeSet<Timestamp> = stored.iter().map(|reading| reading.time).collect();
    assert_eq!(times.len(), stored.len(), "none is stored twice");
    assert!(stored.len() > 50, "{} were stored", stored.len());
    let last = stored.iter().map(|reading| reading.time).max().unwrap();
    let lost = read.iter().filter(|reading| reading.time <= last && !times.contains(&reading.time)).count();
    assert_eq!(lost, 0, "of {}", read.len());
}

/// The readings of a campaign as scrapes of agents.
fn scrapes(archive: &Path, set: &str) -> Vec<Batch> {
    let labels = json_of(tracewise().args(["campaign", "label", "list", "--json", "--data"]).arg(archive));
    let of_set = labels.as_array().unwrap().iter().filter(|label| label["set"] == set);
    let spans: Vec<(f64, f64)> =
        of_set.map(|label| (label["start"].as_f64().unwrap(), label["end"].as_f64().unwrap())).collect();
    let second = |seconds: f64| Timestamp((seconds * 1e3) as i64);
    let from = second(spans.iter().map(|span| span.0).fold(f64::MAX, f64::min));
    let to = second(spans.iter().map(|span| span.1).fold(0.0, f64::max));
    let archive = Archive::open(&archive.to_string_lossy(), &Settings::default()).unwrap();
    let snapshot = archive.snapshot(Selection { from, to, ..Selection::default() }).unwrap();
    let mut scrapes: Vec<Batch> = Vec::new();
    let mut time = Timestamp(0);
    for replayed in Replay::new(&snapshot, None).unwrap() {
        let reading = replayed.unwrap().reading;
        if reading.time != time {
            time = reading.time;
            scrapes.push(Batch::new(Vec::new()));
        }
        let batch = scrapes.last_mut().unwrap();
        let node = reading.node.as_str();
        batch.family(Family { name: metric::CPU_SECONDS, kind: Kind::Counter, help: "Seconds." });
        for thread in &reading.threads {
            let cpu = thread.cpu.to_string();
            for mode in Mode::ALL {
                let labels = [("cpu", &*cpu), ("mode", mode.name()), ("node", node)];
                batch.sample(&labels, thread.ticks[mode] as f64 / 100.0, Some(time));
            }
        }
        batch.family(Family { name: metric::CPU_OWNER, kind: Kind::Gauge, help: "Owner." });
        for thread in &reading.threads {
            let (cpu, job) = (thread.cpu.to_string(), thread.owner.job().map_or("", |job| job.as_str()));
            let labels = [("cpu", &*cpu), ("jobid", job), ("node", node), ("owner", thread.owner.state())];
            batch.sample(&labels, 1.0, Some(time));
        }
    }
    scrapes
}

#[test]
fn events_that_were_told_survive_kills_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history");
    simulate("train=2,validation=1,test=1", &history);
    let model = folder.path().join("data/models/m1");
    stdout_of(
        tracewise()
            .args(["detect", "train", "--detector", "pca", "--data"])
            .arg(&history)
            .arg("--out")
            .arg(&model),
    );
    let scrapes = scrapes(&history, "test");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let events = |process: &Process| -> BTreeSet<String> {
        let answer = testbed::http::get(process.port, "/api/v1/events?limit=500", &[]);
        let events: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let items = events["items"].as_array().unwrap();
        let ids: BTreeSet<String> = items.iter().map(|event| event["id"].to_string()).collect();
        assert_eq!(ids.len(), items.len(), "no event is there twice");
        ids
    };
    let mut told = BTreeSet::new();
    for part in scrapes.chunks(scrapes.len() / 4 + 1) {
        let mut process = Process::start(folder.path(), None);
        let known = events(&process);
        assert!(known.is_superset(&told), "lost after a kill: {:?}", told.difference(&known));
        runtime.block_on(async {
            let mut sender = process.sender();
            for batch in part {
                sender.send(batch).await.unwrap();
            }
        });
        // Scoring follows at once; what is told until the kill counts.
        std::thread::sleep(Duration::from_secs(3));
        told = events(&process);
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }
    assert!(!told.is_empty(), "the campaign has anomalies");
    let process = Process::start(folder.path(), None);
    assert!(events(&process).is_superset(&told));
    process.stop();
}

#[test]
fn a_hangup_reads_the_settings_again_and_says_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tracewise.toml");
    std::fs::write(&config, "[serve.agents]\nevery = \"5s\"\n").unwrap();
    let process = Process::start(folder.path(), Some(&config));
    let reload = |text: &str| {
        std::fs::write(&config, text).unwrap();
        process.signal(rustix::process::Signal::HUP);
        std::thread::sleep(Duration::from_millis(500));
    };
    reload("[serve.agents]\nevery = \"20s\"\n[serve.scoring]\nthreads = 2\n");
    reload("[serve.agents]\nevery = \"never\"\n");
    let log = process.stop();
    assert!(log.contains("serve.agents.every: \"5s\" → \"20s\""), "{log}");
    assert!(log.contains("serve.scoring.threads: 0 → 2 (takes effect when"), "{log}");
    assert!(log.contains("the settings stay as they are"), "{log}");
}
