//! `tracewise serve` as a process: killed at random points, told to read its settings again, and stopped.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use agent::exposition::{Family, Kind, Sink};
use agent::remote_write::{Batch, Sender, Target};
use archive::{Archive, Replay, Selection, Settings};
use workload::{Millis, Timestamp};

use crate::crash::next;
use crate::tracewise;

/// A service in a process of its own.
struct Process {
    child: Child,
    port: u16,
}

impl Process {
    fn start(folder: &Path, config: Option<&Path>) -> Self {
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
    fn stop(mut self) -> String {
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
        let pid = rustix::process::Pid::from_child(&process.child);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(pause);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        send(&process, Instant::now() + pause + Duration::from_millis(5), &mut acknowledged);
        killer.join().unwrap();
        process.child.wait().unwrap();
    }
    let process = Process::start(folder.path(), None);
    send(&process, Instant::now() + Duration::from_millis(200), &mut acknowledged);
    std::thread::sleep(Duration::from_secs(2));
    process.stop();

    let address = folder.path().join("data/archive").to_string_lossy().into_owned();
    let archive = Archive::open(&address, &Settings::default()).unwrap();
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    let readings: Vec<_> = Replay::new(&snapshot, None).unwrap().map(|one| one.unwrap().reading).collect();
    let stored: BTreeSet<Timestamp> = readings.iter().map(|reading| reading.time).collect();
    assert_eq!(stored.len(), readings.len(), "none is stored twice");
    assert!(readings.iter().all(|reading| reading.threads.len() == 2), "all are whole");
    let lost: Vec<&Timestamp> = acknowledged.difference(&stored).collect();
    assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), acknowledged.len());
    assert!(acknowledged.len() > 50, "{} were acknowledged", acknowledged.len());
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
