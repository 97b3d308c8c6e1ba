//! Remote write: real senders, and requests that are not as they should be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use agent::remote_write::message::v1::{Label, Sample, TimeSeries, WriteRequest};
use prost::Message;
use serve::{Ignored, Running};
use testbed::{Server, free_port};
use workload::{Cpu, Millis, Mode, Ticks, Timestamp};

use crate::agents::{TestAgent, archived};
use crate::{eventually, settings, started};

/// What a sender that scrapes an agent every second gets into the archive is what the agent read, to the tick.
async fn scraped_readings_are_stored(sender: impl FnOnce(&str, &str) -> Option<Server>) {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let agent = TestAgent::start(&folder.path().join("node"), port);
    let running = started(settings(folder.path()), None).await;
    let url = format!("http://{}/api/v1/write", running.address);
    let Some(sender) = sender(&url, &format!("127.0.0.1:{port}")) else { return running.stop().await };
    readings_are_stored(running, agent, folder.path(), sender, async || true).await;
}

/// Reads with an agent until some readings are in the archive, also after the scraper was killed and started again, and
/// `is_enough`. Compares what the agent read with what is stored.
pub async fn readings_are_stored(
    running: Running,
    mut agent: TestAgent,
    folder: &Path,
    mut scraper: Server,
    is_enough: impl AsyncFnMut() -> bool,
) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut read = Vec::new();
        while !over.load(Ordering::Relaxed) {
            read.extend(agent.read(Timestamp::from(SystemTime::now()), 1));
            std::thread::sleep(Duration::from_millis(500));
        }
        (agent, read)
    });
    let has_stored = async |n_readings: usize| {
        eventually("readings in the archive", async || {
            let path = folder.to_owned();
            tokio::task::spawn_blocking(move || archived(&path).len()).await.unwrap() >= n_readings
        })
        .await;
    };
    has_stored(5).await;
    scraper.kill();
    // Requests that were being sent are stored.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let n_before = archived(folder).len();
    scraper.start_again();
    has_stored(n_before + 5).await;
    eventually("enough readings", is_enough).await;
    is_over.store(true, Ordering::Relaxed);
    let (agent, read) = reading.await.unwrap();
    drop(scraper);
    running.stop().await;
    agent.stop();
    let known: BTreeMap<Timestamp, BTreeMap<Cpu, Ticks>> = read
        .iter()
        .map(|reading| {
            (reading.time, reading.threads.iter().map(|thread| (thread.cpu, thread.ticks)).collect())
        })
        .collect();
    for reading in archived(folder) {
        assert_eq!(reading.node.as_str(), "n1");
        let threads: BTreeMap<Cpu, Ticks> =
            reading.threads.iter().map(|thread| (thread.cpu, thread.ticks)).collect();
        let expected = known.get(&reading.time).expect("a time at which the agent read");
        assert_eq!(threads, *expected, "at {:?}", reading.time);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_sends_what_it_scrapes() {
    scraped_readings_are_stored(testbed::prometheus_to).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vmagent_sends_what_it_scrapes() {
    scraped_readings_are_stored(testbed::vmagent_to).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_arrives_through_two_inputs_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let agent = TestAgent::start(&folder.path().join("node"), port);
    let mut settings = settings(folder.path());
    settings.agents.targets = vec![format!("127.0.0.1:{port}")];
    let running = started(settings, None).await;
    let counts = running.service.counts.clone();
    let url = format!("http://{}/api/v1/write", running.address);
    let Some(sender) = testbed::prometheus_to(&url, &format!("127.0.0.1:{port}")) else {
        return running.stop().await;
    };
    readings_are_stored(running, agent, folder.path(), sender, async || {
        counts.ignored(Ignored::OtherInput) > 0
    })
    .await;
    let times: Vec<Timestamp> = archived(folder.path()).iter().map(|reading| reading.time).collect();
    assert_eq!(times.iter().collect::<BTreeSet<_>>().len(), times.len(), "none is stored twice");
}

fn series(node: &str, cpu: u16, mode: Mode, time: Timestamp, seconds: f64) -> TimeSeries {
    let labels = [
        ("__name__", "node_cpu_seconds_total".to_owned()),
        ("cpu", cpu.to_string()),
        ("instance", format!("{node}:9100")),
        ("mode", mode.name().to_owned()),
    ];
    let label = |(name, value): (&str, String)| Label { name: name.to_owned(), value };
    let samples = vec![Sample { value: seconds, timestamp: time.0 }];
    TimeSeries { labels: labels.map(label).into(), samples }
}

fn snappy(request: &WriteRequest) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(&request.encode_to_vec()).unwrap()
}

/// Sends a body and returns the status, the text and the headers.
async fn send(port: u16, content: &str, encoding: &str, body: Vec<u8>) -> (u16, String) {
    net::install_tls_provider();
    let request = reqwest::Client::new().post(format!("http://127.0.0.1:{port}/api/v1/write"));
    let request = request.header("content-type", content).header("content-encoding", encoding).body(body);
    let response = request.send().await.unwrap();
    let has_counts = response.headers().keys().any(|name| name.as_str().ends_with("-written"));
    assert!(!has_counts || content.contains("v2"), "version 1.0 has no counts");
    (response.status().as_u16(), response.text().await.unwrap())
}

const V1: &str = "application/x-protobuf";

#[tokio::test(flavor = "multi_thread")]
async fn scrapes_in_pieces_and_in_any_order_become_whole_readings_and_survive_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let port = running.address.port();
    let begin = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::from_seconds(600);
    let mut pieces: Vec<WriteRequest> = Vec::new();
    for second in 0..30 {
        let time = begin + Millis::from_seconds(second);
        for node in ["n1", "../n2"] {
            let one = |cpu: u16, mode: Mode| series(node, cpu, mode, time, second as f64 + f64::from(cpu));
            let all: Vec<TimeSeries> = (0..3)
                .flat_map(|cpu| [Mode::User, Mode::System, Mode::Idle].map(|mode| one(cpu, mode)))
                .collect();
            let (first, rest) = all.split_at(4);
            pieces.push(WriteRequest { timeseries: rest.to_vec() });
            pieces.push(WriteRequest { timeseries: first.to_vec() });
        }
    }
    // Neighbours change places, and every request is sent twice.
    for pair in pieces.chunks_mut(3) {
        pair.reverse();
    }
    for piece in &pieces {
        for _ in 0..2 {
            assert_eq!(send(port, V1, "snappy", snappy(piece)).await, (204, String::new()));
        }
    }
    // Without a stop, the last readings are only in the log of requests.
    let data = settings(folder.path()).data;
    let copy = tempfile::tempdir().unwrap();
    let copied = copy.path().join("data");
    let status = std::process::Command::new("cp").arg("-r").args([&data, &copied]).status().unwrap();
    assert!(status.success());
    running.stop().await;

    let mut after_crash = settings(copy.path());
    after_crash.data = copied;
    let running = started(after_crash, None).await;
    let later = begin + Millis::from_seconds(60);
    for node in ["n1", "../n2"] {
        for second in [0, 20] {
            let time = later + Millis::from_seconds(second);
            let all = [Mode::User, Mode::System, Mode::Idle].map(|mode| series(node, 0, mode, time, 70.0));
            let request = WriteRequest { timeseries: all.into() };
            assert_eq!(send(running.address.port(), V1, "snappy", snappy(&request)).await.0, 204);
        }
    }
    let path = copy.path().to_owned();
    eventually("all readings in the archive", async || {
        let path = path.clone();
        tokio::task::spawn_blocking(move || archived(&path).len()).await.unwrap() >= 62
    })
    .await;
    running.stop().await;
    for node in ["n1", "../n2"] {
        let stored = archived(copy.path());
        let of_node: Vec<_> = stored.iter().filter(|reading| reading.node.as_str() == node).collect();
        let whole = of_node.iter().filter(|reading| reading.threads.len() == 3).count();
        assert!(whole >= 29, "{node}: {whole} whole readings of {}", of_node.len());
        let mut times: Vec<Timestamp> = of_node.iter().map(|reading| reading.time).collect();
        times.dedup();
        assert_eq!(times.len(), of_node.len(), "no reading is stored twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_answered_as_the_specification_says() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let port = running.address.port();
    let now = Timestamp::from(SystemTime::now());
    let good = WriteRequest { timeseries: vec![series("n1", 0, Mode::User, now, 1.0)] };
    let future = now + Millis(2 * Millis::HOUR.0);
    let ahead = WriteRequest {
        timeseries: vec![series("n1", 0, Mode::User, now, 1.0), series("n1", 1, Mode::User, future, 1.0)],
    };
    let mut bomb = Vec::new();
    bomb.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
    let zstd_bomb = zstd::encode_all(&vec![0u8; 40 << 20][..], 1).unwrap();
    let v2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    let cases: [(&str, &str, Vec<u8>, u16, &str); 10] = [
        (V1, "snappy", snappy(&good), 204, ""),
        ("application/x-protobuf;proto=prometheus.WriteRequest", "snappy", snappy(&good), 204, ""),
        (V1, "zstd", zstd::encode_all(&good.encode_to_vec()[..], 1).unwrap(), 204, ""),
        ("application/json", "snappy", snappy(&good), 415, "application/x-protobuf"),
        (V1, "gzip", snappy(&good), 415, "snappy"),
        (V1, "snappy", b"garbage".to_vec(), 400, "snappy"),
        (V1, "snappy", bomb, 400, "larger than"),
        (V1, "zstd", zstd_bomb, 400, "larger than"),
        (V1, "snappy", snappy(&ahead), 400, "refused 1: samples more than ten minutes in the future"),
        (v2, "snappy", snappy(&good), 400, "first symbol"),
    ];
    for (content, encoding, body, status, text) in cases {
        let answer = send(port, content, encoding, body).await;
        assert_eq!(answer.0, status, "{content} {encoding}: {}", answer.1);
        assert!(answer.1.contains(text), "{content} {encoding}: {}", answer.1);
    }
    running.stop().await;
}

/// A request with one sample.
fn one(series: TimeSeries) -> WriteRequest {
    WriteRequest { timeseries: vec![series] }
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_samples_are_counted_and_harm_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(settings(folder.path()), None).await;
    let (port, counts) = (running.address.port(), running.service.counts.clone());
    let begin = Timestamp::from(SystemTime::now()).floor(Millis::SECOND) - Millis::from_seconds(600);
    let at = |second: i64| begin + Millis::from_seconds(second);
    let user = |node: &str, time: Timestamp, seconds: f64| series(node, 0, Mode::User, time, seconds);

    let mut many_labels = user("n1", at(0), 1.0);
    many_labels.labels.extend((0..20_000).map(|n| Label { name: format!("l{n}"), value: "x".repeat(20) }));
    let mut long_label = user("n1", at(0), 1.0);
    long_label.labels.push(Label { name: "l".repeat(1 << 20), value: String::new() });
    let mut newline = user("n\n1", at(0), 1.0);
    newline.labels.push(Label { name: "node".into(), value: "n\n1".into() });
    let mut no_thread = user("n1", at(0), 1.0);
    no_thread.labels.retain(|label| label.name != "cpu");
    let mut not_a_number = user("n1", at(0), 1.0);
    not_a_number.samples =
        [f64::NAN, f64::INFINITY, -1.0, f64::MAX].map(|value| Sample { value, timestamp: at(0).0 }).into();
    let last_year = at(0) - Millis(365 * 24 * Millis::HOUR.0);
    let next_year = at(0) + Millis(365 * 24 * Millis::HOUR.0);
    let strange = [
        ("20,000 labels", many_labels, 204),
        ("a label of a megabyte", long_label, 204),
        ("a newline in the name of a node", newline, 204),
        ("a slash in the name of a node", user("a/../b", at(0), 1.0), 204),
        ("no thread", no_thread, 204),
        ("no number", not_a_number, 204),
        ("1970", user("n3", Timestamp(0), 1.0), 204),
        ("before 1970", user("n3", Timestamp(-5_000), 1.0), 204),
        ("the smallest time", user("n3", Timestamp(i64::MIN), 1.0), 204),
        ("last year", user("n4", last_year, 1.0), 204),
        ("next year", user("n4", next_year, 1.0), 400),
        ("the largest time", user("n4", Timestamp(i64::MAX), 1.0), 400),
    ];
    for (what, series, status) in strange {
        let answer = send(port, V1, "snappy", snappy(&one(series))).await;
        assert_eq!(answer.0, status, "{what}: {}", answer.1);
    }
    assert!(counts.ignored(Ignored::Labels) >= 2, "{}", counts.ignored(Ignored::Labels));

    // A counter that decreases, and a clock that goes back an hour and returns.
    for second in 0..40 {
        let seconds = if second < 20 { second as f64 } else { 0.5 };
        for mode in [Mode::User, Mode::Idle] {
            let request = one(series("good", 0, mode, at(second), seconds));
            assert_eq!(send(port, V1, "snappy", snappy(&request)).await.0, 204);
        }
        if second == 20 {
            let back = one(user("good", at(second) - Millis::HOUR, 3.0));
            assert_eq!(send(port, V1, "snappy", snappy(&back)).await.0, 204);
        }
    }
    let path = folder.path().to_owned();
    let of_good = move || archived(&path).iter().filter(|reading| reading.node.as_str() == "good").count();
    eventually("the readings of the good node", async || {
        let of_good = of_good.clone();
        tokio::task::spawn_blocking(of_good).await.unwrap() >= 39
    })
    .await;
    assert!(counts.ignored(Ignored::Duplicate) >= 1, "what is an hour old is not used");
    running.stop().await;
    let data = settings(folder.path()).data;
    let names: BTreeSet<String> =
        archived(folder.path()).iter().map(|reading| reading.node.to_string()).collect();
    assert!(!names.iter().any(|name| name.contains('\n')), "{names:?}");
    assert!(!data.join("b").exists() && !folder.path().join("b").exists());
}
