//! Every reading, pushed: to real servers in version 1, to a server of our own in version 2.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::remote_write::message::{v1, v2};
use prost::Message;
use testbed::fake_node::FakeNode;
use testbed::{Server, http};

use crate::{LiveNode, agent_on};

fn push_to(folder: &std::path::Path, url: &str, more: &[&str]) -> Server {
    let url = format!("--remote-write.url={url}");
    let arguments = [
        &[
            url.as_str(),
            "--remote-write.interval=500ms",
            "--sample.interval=200ms",
            "--remote-write.label=cluster=a",
        ][..],
        more,
    ]
    .concat();
    agent_on(folder, &arguments)
}

/// Asks a server for the raw values of a series: seconds since the epoch, and value.
fn values(port: u16, query: &str) -> Vec<(f64, String)> {
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let (status, body) = http::request(port, "GET", &format!("/api/v1/query?query={query}"), "");
    assert_eq!(status, 200, "{body}");
    let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
    let values = answer["data"]["result"][0]["values"].as_array().cloned().unwrap_or_default();
    values.iter().map(|pair| (pair[0].as_f64().unwrap(), pair[1].as_str().unwrap().to_owned())).collect()
}

fn readings_of(agent: &Server) -> Vec<serde_json::Value> {
    let lines = http::get(agent.port, "/samples?format=jsonl", &[]).text();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn check_real_server(server: &Server, path: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 2);
    fake.start_job(42, "1");
    let _live = LiveNode::start(fake, Duration::from_millis(200));
    let agent = push_to(folder.path(), &format!("{}{path}", server.url()), &[]);
    let query = "tracewise_cpu_seconds_total{cluster=\"a\",instance=\"n1\",cpu=\"0\",mode=\"idle\"}[5m]";
    let pushed = testbed::eventually("readings that arrive", || {
        let found = values(server.port, query);
        (found.len() >= 12).then_some(found)
    });
    let sampled: BTreeMap<i64, String> = readings_of(&agent)
        .iter()
        .map(|reading| {
            let ticks = reading["threads"][0]["ticks"][3].as_f64().unwrap();
            ((reading["time"].as_f64().unwrap() * 1e3).round() as i64, format!("{}", ticks / 100.0))
        })
        .collect();
    for (seconds, value) in &pushed {
        assert_eq!(sampled.get(&((seconds * 1e3).round() as i64)), Some(value), "{seconds}");
    }
    let owner = "tracewise_cpu_owner_info{cpu=\"1\",owner=\"job\",jobid=\"42\"}[5m]";
    assert!(!values(server.port, owner).is_empty());
    testbed::eventually("the memory of a job", || {
        (!values(server.port, "tracewise_job_memory_limit_bytes{jobid=\"42\"}[5m]").is_empty()).then_some(())
    });
    let page = http::get(agent.port, "/metrics", &[]).text();
    assert!(page.contains("tracewise_remote_write_samples_refused_total 0\n"), "{}", agent.log());
}

#[test]
fn a_real_prometheus_takes_every_reading_with_its_own_time() {
    let Some(server) = testbed::prometheus(None, &[]) else { return };
    check_real_server(&server, "/api/v1/write");
}

#[test]
fn a_real_victoria_metrics_takes_every_reading() {
    let Some(server) = testbed::victoria_metrics() else { return };
    check_real_server(&server, "/api/v1/write");
}

/// Content types and bodies.
type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A server of remote write that keeps what it is sent, and answers as told.
struct Receiver {
    port: u16,
    requests: Requests,
}

impl Receiver {
    /// `answer` gets the content type and how many requests came before.
    fn start(answer: impl Fn(&str, usize) -> &'static str + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Requests = Arc::default();
        let kept = requests.clone();
        // The thread ends with the test's process.
        std::thread::spawn(move || {
            let mut n_requests = 0;
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut kind, mut length) = (String::new(), 0);
                let mut line = String::new();
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    let (name, value) = line.trim().split_once(": ").unwrap_or_default();
                    match name.to_ascii_lowercase().as_str() {
                        "content-type" => kind = value.to_owned(),
                        "content-length" => length = value.parse().unwrap(),
                        _ => {}
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_err() {
                    continue;
                }
                let answer = answer(&kind, n_requests);
                n_requests += 1;
                if answer.starts_with('2') {
                    kept.lock()
                        .unwrap()
                        .push((kind, snap::raw::Decoder::new().decompress_vec(&body).unwrap()));
                }
                let _ = write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        Self { port, requests }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/write", self.port)
    }

    /// How long a thread had been idle at which time, of all requests so far, in version 2.
    fn idle(&self) -> Vec<(i64, f64)> {
        let requests = self.requests.lock().unwrap();
        let requests = requests.iter().filter(|(kind, _)| kind.contains("write.v2"));
        let mut idle = Vec::new();
        for (_, body) in requests {
            let request = v2::Request::decode(&body[..]).unwrap();
            assert_eq!(request.symbols[0], "");
            for series in request.timeseries {
                let labels: Vec<&str> =
                    series.labels_refs.iter().map(|at| request.symbols[*at as usize].as_str()).collect();
                let names: Vec<&str> = labels.iter().step_by(2).copied().collect();
                assert!(names.is_sorted() && names.contains(&"instance"), "{names:?}");
                if labels.contains(&"tracewise_cpu_seconds_total")
                    && labels.contains(&"idle")
                    && labels.contains(&"0")
                {
                    assert_eq!(series.metadata.unwrap().kind, v2::COUNTER);
                    idle.extend(series.samples.iter().map(|sample| (sample.timestamp, sample.value)));
                }
            }
        }
        idle
    }
}

const TAKEN: &str = "204 No Content\r\nX-Prometheus-Remote-Write-Samples-Written: 1";

fn small_node(folder: &std::path::Path) -> LiveNode {
    LiveNode::start(FakeNode::create(folder, 1), Duration::from_millis(200))
}

/// Each reading once, in order of time.
fn nothing_is_lost(agent: &Server, receiver: &Receiver) {
    let expected: Vec<(i64, f64)> = readings_of(agent)
        .iter()
        .map(|reading| {
            let ticks = reading["threads"][0]["ticks"][3].as_f64().unwrap();
            ((reading["time"].as_f64().unwrap() * 1e3).round() as i64, ticks / 100.0)
        })
        .collect();
    let found = testbed::eventually("the last reading", || {
        let found = receiver.idle();
        found.contains(expected.last().unwrap()).then_some(found)
    });
    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "{found:?}");
    assert_eq!(found[..expected.len()], expected);
}

#[test]
fn version_2_is_spoken_with_those_who_understand_it() {
    let folder = tempfile::tempdir().unwrap();
    let _live = small_node(folder.path());
    let receiver = Receiver::start(|_, _| TAKEN);
    let agent = push_to(folder.path(), &receiver.url(), &[]);
    std::thread::sleep(Duration::from_millis(1_500));
    nothing_is_lost(&agent, &receiver);
}

#[test]
fn a_server_that_fails_for_a_while_gets_everything_once_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let _live = small_node(folder.path());
    let receiver = Receiver::start(|_, before| if before < 4 { "503 Service Unavailable" } else { TAKEN });
    let agent = push_to(folder.path(), &receiver.url(), &[]);
    std::thread::sleep(Duration::from_millis(1_500));
    nothing_is_lost(&agent, &receiver);
    assert!(agent.log().contains("503"), "{}", agent.log());
}

#[test]
fn version_1_is_spoken_with_those_who_do_not() {
    for refusal in ["415 Unsupported Media Type", "400 Bad Request", "204 No Content"] {
        let folder = tempfile::tempdir().unwrap();
        let _live = small_node(folder.path());
        let answer =
            move |kind: &str, _: usize| if kind.contains("write.v2") { refusal } else { "204 No Content" };
        let receiver = Receiver::start(answer);
        let agent = push_to(folder.path(), &receiver.url(), &[]);
        let body = testbed::eventually("a request of version 1", || {
            let requests = receiver.requests.lock().unwrap();
            requests.iter().find(|(kind, _)| kind == "application/x-protobuf").map(|(_, body)| body.clone())
        });
        let request = v1::WriteRequest::decode(&body[..]).unwrap();
        let label = |series: &v1::TimeSeries, name: &str| {
            series.labels.iter().find(|label| label.name == name).map(|label| label.value.clone())
        };
        let idle = request
            .timeseries
            .iter()
            .find(|series| label(series, "mode").as_deref() == Some("idle"))
            .unwrap();
        assert_eq!(label(idle, "__name__").as_deref(), Some("tracewise_cpu_seconds_total"));
        assert_eq!(label(idle, "cluster").as_deref(), Some("a"));
        assert!(agent.log().contains("remote write 1.0"), "{}", agent.log());
    }
}

#[test]
fn a_job_that_ends_ends_its_series_and_a_redirect_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 1);
    fake.start_job(42, "0");
    let answer = |_: &str, before: usize| match before {
        0..2 => "302 Found\r\nLocation: http://127.0.0.1:1/login",
        _ => TAKEN,
    };
    let receiver = Receiver::start(answer);
    let agent = push_to(folder.path(), &receiver.url(), &["--remote-write.label=node=other"]);
    let memory = |receiver: &Receiver| {
        let requests = receiver.requests.lock().unwrap();
        let mut samples = Vec::new();
        for (_, body) in requests.iter() {
            let request = v2::Request::decode(&body[..]).unwrap();
            for series in request.timeseries {
                let labels: Vec<&str> =
                    series.labels_refs.iter().map(|at| request.symbols[*at as usize].as_str()).collect();
                let names: BTreeSet<&str> = labels.iter().step_by(2).copied().collect();
                assert_eq!(names.len(), labels.len() / 2, "a label twice: {labels:?}");
                if labels.contains(&"tracewise_job_memory_bytes") {
                    samples.extend(series.samples);
                }
            }
        }
        samples
    };
    testbed::eventually("the memory of a job", || (!memory(&receiver).is_empty()).then_some(()));
    assert!(agent.log().contains("to http://127.0.0.1:1/login"), "{}", agent.log());
    fake.end_job(42);
    testbed::eventually("the end of its series", || memory(&receiver).last()?.value.is_nan().then_some(()));
}

#[test]
fn a_thread_that_changes_hands_ends_one_series_and_begins_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = FakeNode::create(folder.path(), 1);
    let receiver = Receiver::start(|_, _| TAKEN);
    let _agent = push_to(folder.path(), &receiver.url(), &[]);
    std::thread::sleep(Duration::from_millis(800));
    fake.start_job(42, "0");
    let is_stale = |value: f64| value.to_bits() == 0x7ff0_0000_0000_0002;
    testbed::eventually("the end of a series", || {
        let requests = receiver.requests.lock().unwrap();
        let mut seen = BTreeMap::new();
        for (_, body) in requests.iter() {
            let request = v2::Request::decode(&body[..]).ok()?;
            for series in request.timeseries {
                let labels: Vec<&str> =
                    series.labels_refs.iter().map(|at| request.symbols[*at as usize].as_str()).collect();
                if labels.contains(&"tracewise_cpu_owner_info") {
                    let owner = if labels.contains(&"nobody") { "nobody" } else { "job" };
                    seen.entry(owner).or_insert_with(Vec::new).extend(series.samples);
                }
            }
        }
        let ended = seen.get("nobody")?.last()?;
        let begun = seen.get("job")?.first()?;
        (is_stale(ended.value) && !is_stale(begun.value) && ended.timestamp == begun.timestamp).then_some(())
    });
}
