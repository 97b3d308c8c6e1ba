//! Servers of remote write that answer with more than anybody wants to read.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::fake_node::FakeNode;
use testbed::http;

use crate::{LiveNode, agent_on};

const PART: usize = 1 << 20;
/// More than the agent may have, whatever it does with it.
const MOST_BYTES: usize = 400 << 20;

/// Reads a request; false if the connection was closed.
fn read_request(stream: &TcpStream) -> bool {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        assert!(!line.to_ascii_lowercase().starts_with("accept-encoding"), "it asks for {line}");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.take(length).read_to_end(&mut Vec::new()).is_ok_and(|n_read| n_read as u64 == length && length > 0)
}

/// Answers every request with these headers and then the same bytes, until nobody reads them. Returns the
/// port and how many requests came.
fn endless(headers: &'static str, part: Vec<u8>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let n_requests = Arc::new(AtomicUsize::new(0));
    let counter = n_requests.clone();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if !read_request(&stream) {
                continue;
            }
            counter.fetch_add(1, Ordering::Relaxed);
            let mut n_sent = 0;
            let mut went_well = write!(stream, "HTTP/1.1 {headers}\r\nConnection: close\r\n\r\n").is_ok();
            while went_well && n_sent < MOST_BYTES {
                went_well = stream.write_all(&part).is_ok();
                n_sent += part.len();
            }
        }
    });
    (port, n_requests)
}

/// What the agent holds, in bytes, after it has pushed a few times.
fn resident_after_pushes(headers: &'static str, part: Vec<u8>) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let _live = LiveNode::start(FakeNode::create(folder.path(), 1), Duration::from_millis(200));
    let (port, n_requests) = endless(headers, part);
    let url = format!("--remote-write.url=http://127.0.0.1:{port}/write");
    let agent = agent_on(folder.path(), &[&url, "--remote-write.interval=200ms", "--sample.interval=200ms"]);
    // A panic of the server ends its thread, and the pushes with it.
    testbed::eventually("three pushes", || (n_requests.load(Ordering::Relaxed) >= 3).then_some(()));
    let page = http::get(agent.port, "/metrics", &[]).text();
    let peak = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    assert!(page.contains("tracewise_remote_write_failures_total"), "{page}");
    let log = agent.log();
    assert!(log.contains("500") && log.len() < 5_000 && !log.contains('\u{1b}'), "{log}");
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

#[test]
fn an_endless_answer_is_read_only_at_its_beginning() {
    let part = b"\x1b[31mno ".repeat(PART / 8);
    let peak = resident_after_pushes("500 Internal Server Error\r\nContent-Type: text/plain", part);
    assert!(peak < 100e6, "{} MB", peak / 1e6);
}

#[test]
fn an_answer_that_inflates_is_not_inflated() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    (0..MOST_BYTES / PART).for_each(|_| bomb.write_all(&[0; PART]).unwrap());
    let peak = resident_after_pushes(
        "500 Internal Server Error\r\nContent-Encoding: gzip\r\nContent-Type: text/plain",
        bomb.finish().unwrap(),
    );
    assert!(peak < 100e6, "{} MB", peak / 1e6);
}
