//! A real Prometheus scrapes the agent every second, and the archive reads it back.

use std::time::{Duration, SystemTime};

use archive::source::{AgentImport, Intake, Limits, PeerSettings, PrometheusImport, PrometheusQuery};
use archive::{Archive, Selection, Settings};
use testbed::fake_node::FakeNode;
use testbed::http;
use workload::{Control, Derivation, JobReading, Millis, NodeName, Stop, Timestamp, Trace};

use crate::{LiveNode, agent_on};

fn traces(archive: &Archive, node: &str) -> Vec<Trace> {
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    snapshot.traces(&NodeName::new(node).unwrap(), &Derivation::default()).unwrap()
}

fn job_readings(archive: &Archive, node: &str) -> Vec<(Timestamp, JobReading)> {
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    snapshot.job_readings(&NodeName::new(node).unwrap()).unwrap()
}

#[test]
fn what_prometheus_has_scraped_agrees_with_what_was_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(&folder.path().join("node"), 8);
    fake.start_job(42, "0-3");
    fake.start_job(43, "4");
    let _live = LiveNode::start(fake, Duration::from_secs(1));
    let agent = agent_on(&folder.path().join("node"), &["--collector.cgroup.interval=2s"]);
    let target = format!("127.0.0.1:{}", agent.port);
    let Some(server) = testbed::prometheus(None, std::slice::from_ref(&target)) else { return };
    let count = "/api/v1/query?query=count_over_time(tracewise_cpu_seconds_total%7Bcpu=%220%22,mode=%22idle%22%7D%5B1m%5D)";
    let memory = folder.path().join("node/cgroup/system.slice/slurmstepd.scope/job_42/memory.current");
    let mut n_pages = 0;
    testbed::eventually("a dozen scrapes", || {
        // The job grows, so that a reading of another time is recognised.
        n_pages += 1;
        std::fs::write(&memory, format!("{}\n", n_pages * 4_096)).unwrap();
        let (_, body) = http::request(server.port, "GET", count, "");
        let answer: serde_json::Value = serde_json::from_str(&body).ok()?;
        let n_scrapes: u32 = answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()?;
        (n_scrapes >= 12).then_some(())
    });

    let archive = |name: &str| {
        Archive::open_or_create(folder.path().join(name).to_str().unwrap(), &Settings::default()).unwrap()
    };
    let now = Timestamp::from(SystemTime::now());
    let (scraped, sampled) = (archive("scraped"), archive("sampled"));
    let peer = PeerSettings::with_timeout(Duration::from_secs(10));
    let query = PrometheusQuery {
        url: server.url(),
        from: now - Millis(120_000),
        to: now + Millis(1_000),
        metric: None,
        matchers: None,
        node_label: "instance".into(),
        peer: peer.clone(),
    };
    let (stop, control) = (Stop::default(), Control::default());
    let intake = Intake { limits: Limits::default(), now };
    PrometheusImport::survey(query, &intake, &stop).unwrap().load(&scraped, &control).unwrap();
    AgentImport::fetch(&agent.url(), None, &peer, &intake, &stop).unwrap().load(&sampled, &control).unwrap();

    let (scraped_jobs, sampled_jobs) = (job_readings(&scraped, "127.0.0.1"), job_readings(&sampled, "n1"));
    assert!(scraped_jobs.len() >= 6, "{scraped_jobs:?}");
    for reading in &scraped_jobs {
        assert!(sampled_jobs.contains(reading), "{reading:?} is not among {sampled_jobs:?}");
        assert!(reading.1.cpu_user_usec.is_some() && reading.1.node_memory_bytes.is_some(), "{reading:?}");
    }

    let (scraped, sampled) = (traces(&scraped, "127.0.0.1"), traces(&sampled, "n1"));
    assert_eq!((scraped.len(), sampled.len()), (8, 8));
    for (scraped, sampled) in scraped.iter().zip(&sampled) {
        let sampled: Vec<_> = sampled.read_steps().collect();
        let mut n_compared = 0;
        for (time, rates, owner) in scraped.read_steps() {
            // A scrape that came late skipped a reading, so its rates are those of two seconds.
            let Some((_, exact, sampled_owner)) = sampled.iter().find(|(at, ..)| *at == time) else {
                continue;
            };
            assert_eq!(owner, *sampled_owner, "{:?} {}", scraped.thread(), time.0);
            let difference =
                (0..4).map(|channel| (rates.as_array()[channel] - exact.as_array()[channel]).abs());
            n_compared += usize::from(difference.fold(0.0, f32::max) < 1e-6);
        }
        assert!(n_compared >= 8, "{:?}: {n_compared} steps agree", scraped.thread());
    }
    let owners: Vec<&str> = scraped
        .iter()
        .map(|trace| trace.owner(trace.len() - 1).job().map_or("", |job| job.as_str()))
        .collect();
    assert_eq!(owners, ["42", "42", "42", "42", "43", "", "", ""]);
}

#[test]
fn ten_readings_a_second_lose_nothing_between_scrapes() {
    let folder = tempfile::tempdir().unwrap();
    let fake = FakeNode::create(folder.path(), 2);
    let _live = LiveNode::start(fake, Duration::from_millis(100));
    let agent = agent_on(folder.path(), &["--sample.interval=100ms"]);
    std::thread::sleep(Duration::from_millis(2_500));
    let lines = http::get(agent.port, "/samples?format=jsonl", &[]).text();
    let times: Vec<f64> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["time"].as_f64().unwrap())
        .collect();
    assert!(times.len() >= 20, "{} readings", times.len());
    // The first comes at once; all others at whole tenths of a second, give or take a late wake-up.
    let is_whole = |time: &&f64| (*time * 10.0).fract() < 0.3;
    assert!(times[1..].iter().filter(is_whole).count() >= times.len() * 8 / 10, "{times:?}");
    let since = format!("/samples?format=jsonl&since={}", times[times.len() - 3]);
    assert!(http::get(agent.port, &since, &[]).text().lines().count() < times.len());
    assert_eq!(http::get(agent.port, "/samples?until=now", &[]).status, 400);
}
