//! Clients that hold connections, and clients that guess passwords, keep nobody else out.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testbed::fake_node::FakeNode;
use testbed::{Server, http};
use tokio::net::TcpSocket;

use crate::agent_on;
use crate::layouts::node;
use crate::web::basic;

const HOLDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SCRAPER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A connection to the agent from an address of loopback.
fn connect(from: Ipv4Addr, port: u16) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends a request that keeps the connection open; returns the status of the answer, 0 if there is none.
fn ask(stream: &mut TcpStream, path: &str, headers: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: n1\r\n{headers}\r\n");
    let mut answer = Vec::new();
    let mut part = [0; 65_536];
    let has_all = |answer: &[u8]| {
        let text = String::from_utf8_lossy(answer);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.to_lowercase().split("content-length: ").nth(1)?.lines().next()?.parse::<usize>();
        (body.len() >= length.ok()?).then_some(())
    };
    if stream.write_all(request.as_bytes()).is_err() {
        return 0;
    }
    while has_all(&answer).is_none() {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return 0,
            Ok(n_read) => answer.extend_from_slice(&part[..n_read]),
        }
    }
    String::from_utf8_lossy(&answer).split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn scrape(from: Ipv4Addr, agent: &Server) -> u16 {
    ask(&mut connect(from, agent.port), "/metrics", "")
}

fn counter(agent: &Server, line: &str) -> f64 {
    let page = http::get(agent.port, "/metrics", &[]).text();
    page.lines().find_map(|found| found.strip_prefix(line)).unwrap().trim().parse().unwrap()
}

#[test]
fn connections_that_idle_between_requests_keep_nobody_out() {
    let agent = agent_on(&node("slurm-v2"), &[]);
    let mut held: Vec<TcpStream> = (0..100).map(|_| connect(HOLDER, agent.port)).collect();
    let n_answered =
        held.iter_mut().filter_map(|stream| (ask(stream, "/healthz", "") == 200).then_some(())).count();
    assert_eq!(n_answered, 16, "one address has its own places and no more");
    let begun = Instant::now();
    assert_eq!(scrape(SCRAPER, &agent), 200);
    assert_eq!(scrape(HOLDER, &agent), 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(counter(&agent, "tracewise_http_connections_closed_total{reason=\"idle\"}") >= 85.0);
}

#[test]
fn silent_connections_from_many_addresses_keep_nobody_out() {
    let agent = agent_on(&node("slurm-v2"), &[]);
    let held: Vec<TcpStream> =
        (0..80u8).map(|at| connect(Ipv4Addr::new(127, 0, 1, at % 5 + 1), agent.port)).collect();
    let begun = Instant::now();
    assert_eq!(scrape(SCRAPER, &agent), 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(held);
}

#[test]
fn limits_can_be_set() {
    let agent =
        agent_on(&node("slurm-v2"), &["--web.max-connections=4", "--web.max-connections-per-client=2"]);
    let n_open = |from: Ipv4Addr| {
        let mut held: Vec<TcpStream> = (0..6).map(|_| connect(from, agent.port)).collect();
        held.iter_mut().filter_map(|stream| (ask(stream, "/healthz", "") == 200).then_some(())).count()
    };
    assert_eq!(n_open(HOLDER), 2);
}

#[test]
fn a_client_that_does_not_finish_its_header_is_disconnected() {
    let agent = agent_on(&node("slurm-v2"), &[]);
    let mut slow = connect(HOLDER, agent.port);
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost:").unwrap();
    let begun = Instant::now();
    let _ = slow.read_to_end(&mut Vec::new());
    assert!((5..15).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    FakeNode::create(folder.path(), 256).start_jobs(100);
    let agent = agent_on(folder.path(), &[]);
    let n_requests = 200;
    let mut slow = connect(HOLDER, agent.port);
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: n1\r\n\r\n".repeat(n_requests).as_slice()).unwrap();
    std::thread::sleep(Duration::from_secs(14));
    let mut answers = Vec::new();
    let _ = slow.read_to_end(&mut answers);
    let n_answers = String::from_utf8_lossy(&answers).matches("HTTP/1.1 200").count();
    assert!(n_answers > 0 && n_answers < n_requests, "{n_answers} answers, {} bytes", answers.len());
}

/// How much CPU time a process has used, in seconds.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / f64::from(agent::cpu::ticks_per_second())
}

#[test]
fn those_who_guess_passwords_cost_little_and_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yml");
    // One comparison takes long enough to be seen.
    let cost = 8;
    let hash = bcrypt::hash("secret", cost).unwrap();
    fs::write(&file, format!("basic_auth_users:\n  prometheus: {hash}\n")).unwrap();
    let one = Instant::now();
    assert!(bcrypt::verify("secret", &hash).unwrap());
    let comparison = one.elapsed().as_secs_f64();
    let agent = agent_on(&node("slurm-v2"), &[&format!("--web.config.file={}", file.display())]);
    let login = |user: &str, password: &str| format!("Authorization: {}\r\n", basic(user, password));
    let right = login("prometheus", "secret");

    let is_over = AtomicBool::new(false);
    let cpu_before = cpu_seconds(agent.pid());
    let begun = Instant::now();
    let (n_wrong, n_limited) = std::thread::scope(|scope| {
        let guess = |number: usize| {
            let (mut n_wrong, mut n_limited) = (0usize, 0usize);
            while !is_over.load(Ordering::Relaxed) {
                let user = if number.is_multiple_of(2) { "prometheus" } else { "nobody" };
                match ask(&mut connect(HOLDER, agent.port), "/metrics", &login(user, "wrong")) {
                    401 => n_wrong += 1,
                    429 => n_limited += 1,
                    other => assert_eq!(other, 0),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            (n_wrong, n_limited)
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || guess(number))).collect();
        std::thread::sleep(Duration::from_millis(500));
        // Not remembered yet, and from another address.
        let asked = Instant::now();
        assert_eq!(ask(&mut connect(SCRAPER, agent.port), "/metrics", &right), 200);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        // Remembered, even from the address of those who guess.
        assert_eq!(ask(&mut connect(HOLDER, agent.port), "/metrics", &right), 200);
        std::thread::sleep(Duration::from_millis(2_500));
        is_over.store(true, Ordering::Relaxed);
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.fold((0, 0), |sum, (wrong, limited)| (sum.0 + wrong, sum.1 + limited))
    });
    let most_compared = 11 + begun.elapsed().as_secs() as usize / 5;
    assert!(n_wrong <= most_compared && n_limited > 50, "{n_wrong} wrong, {n_limited} limited");
    let used = cpu_seconds(agent.pid()) - cpu_before;
    assert!(used < comparison * (most_compared + 4) as f64 + 1.5, "{used} s, {comparison} s for one");

    let mut stream = connect(SCRAPER, agent.port);
    write!(stream, "GET /metrics HTTP/1.0\r\n{right}\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains(&format!("tracewise_http_logins_failed_total{{reason=\"password\"}} {n_wrong}\n")));
    assert!(page.contains(&format!("tracewise_http_logins_failed_total{{reason=\"limit\"}} {n_limited}\n")));
    assert_eq!(agent.log().matches("failed logins").count(), 1, "{}", agent.log());
}
