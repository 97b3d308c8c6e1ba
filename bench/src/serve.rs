//! Loads the service with a large cluster: `bench-serve write|agents|decode`. The cluster repeats the nodes of an
//! archive under other names. Prints one JSON line, for `bench/serve.py`.

#![allow(clippy::print_stdout, reason = "the result is what it prints")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent::remote_write::message::v1::WriteRequest;
use anyhow::{Context, bail};
use archive::{Archive, Replay, Selection, Settings};
use prost::Message;
use remote_write::{TimeSeries as _, v1};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use workload::samples::{self, POSITION_HEADER, Position, Segment};
use workload::{
    JobId, Measure, Millis, Mode, ModeSet, NodeName, NodeReading, Owner, Source, Timestamp, metric,
};

const TICKS_PER_SECOND: u32 = 100;
/// Requests under way at a time, as a sender with that many shards has.
const N_SHARDS: usize = 32;
/// Different groups of nodes begin at different seconds of the recording.
const SHIFT_SECONDS: usize = 7;
const N_SHIFTS: usize = 60;
/// The readings of a response to one request for samples.
const MAX_READINGS: u64 = 60;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["write", archive, url, nodes, seconds] => {
            let cluster = Cluster::read(archive, nodes.parse()?)?;
            runtime()?.block_on(write(Arc::new(cluster), url.to_owned(), seconds.parse()?))
        }
        ["agents", archive, port, nodes] => {
            let cluster = Cluster::read(archive, nodes.parse()?)?;
            runtime()?.block_on(agents(Arc::new(cluster), port.parse()?))
        }
        ["decode", archive, rounds] => decode(&Cluster::read(archive, 1)?, rounds.parse()?),
        _ => bail!(
            "usage: bench-serve write ARCHIVE URL NODES SECONDS | agents ARCHIVE PORT NODES | decode ARCHIVE ROUNDS"
        ),
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// A large cluster that repeats a small recorded one.
struct Cluster {
    /// The readings of each recorded node, one per second.
    recorded: Vec<Vec<NodeReading>>,
    nodes: Vec<NodeName>,
}

impl Cluster {
    fn read(archive: &str, n_nodes: usize) -> anyhow::Result<Self> {
        let archive = Archive::open(archive, &Settings::default())?;
        let snapshot = archive.snapshot(Selection::default())?;
        let names = snapshot.nodes();
        let mut recorded = vec![Vec::new(); names.len()];
        for replayed in Replay::new(&snapshot, None)? {
            let reading = replayed?.reading;
            let number =
                names.iter().position(|name| *name == reading.node).context("a node without a name")?;
            recorded[number].push(reading);
        }
        let nodes = (0..n_nodes).map(|number| NodeName::new(format!("node-{number:04}")));
        Ok(Self { recorded, nodes: nodes.collect::<Result<_, _>>()? })
    }

    /// The reading of a node at a time after the beginning. Counters between two recorded seconds are interpolated: a
    /// scrape that is late finds more ticks.
    fn reading(&self, node: usize, after: Millis, time: Timestamp) -> Option<NodeReading> {
        let group = node / self.recorded.len();
        let of_node = &self.recorded[node % self.recorded.len()];
        let second = (after.0 / 1_000) as usize + group % N_SHIFTS * SHIFT_SECONDS;
        let fraction = (after.0 % 1_000) as f64 / 1e3;
        let (mut reading, next) = (of_node.get(second)?.clone(), of_node.get(second + 1)?);
        for (thread, next) in reading.threads.iter_mut().zip(&next.threads) {
            for (ticks, next) in thread.ticks.0.iter_mut().zip(&next.ticks.0) {
                *ticks += (next.saturating_sub(*ticks) as f64 * fraction).round() as u64;
            }
        }
        reading.node = self.nodes[node].clone();
        reading.time = time;
        let renamed = |job: &JobId| JobId::new(format!("{job}-{group}")).ok();
        for thread in &mut reading.threads {
            if let Owner::Job(job) = &thread.owner
                && let Some(job) = renamed(job)
            {
                thread.owner = Owner::Job(job);
            }
        }
        for job in &mut reading.jobs {
            job.job = renamed(&job.job).unwrap_or_else(|| job.job.clone());
        }
        Some(reading)
    }
}

fn source() -> Source {
    Source {
        origin: "bench".into(),
        measure: Measure::Counter,
        ticks_per_second: TICKS_PER_SECOND,
        modes: ModeSet::ALL,
        period: Millis::SECOND,
    }
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// The series of a scrape of the agent that a reading came from.
#[derive(Default)]
struct Encoder {
    series: Vec<u8>,
    bytes: Vec<u8>,
    n_samples: u64,
}

impl Encoder {
    /// A compressed request.
    fn request(&mut self, reading: &NodeReading) -> anyhow::Result<Vec<u8>> {
        self.scrape(reading);
        Ok(snap::raw::Encoder::new().compress_vec(&self.bytes)?)
    }

    fn scrape(&mut self, reading: &NodeReading) {
        self.bytes.clear();
        let node = reading.node.as_str();
        let instance = format!("{node}:9742");
        for thread in &reading.threads {
            let cpu = thread.cpu.to_string();
            for mode in Mode::ALL {
                let labels = [
                    ("__name__", metric::CPU_SECONDS),
                    ("cpu", &cpu),
                    ("instance", &instance),
                    ("job", "tracewise"),
                    ("mode", mode.name()),
                    ("node", node),
                ];
                let seconds = thread.ticks[mode] as f64 / f64::from(TICKS_PER_SECOND);
                self.sample(&labels, seconds, reading.time);
            }
            let job = thread.owner.job().map_or("", JobId::as_str);
            let labels = [
                ("__name__", metric::CPU_OWNER),
                ("cpu", &cpu),
                ("instance", &instance),
                ("job", "tracewise"),
                ("jobid", job),
                ("node", node),
                ("owner", thread.owner.state()),
            ];
            self.sample(&labels, 1.0, reading.time);
        }
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64, time: Timestamp) {
        self.series.clear();
        for (name, text) in labels.iter().filter(|(_, text)| !text.is_empty()) {
            self.series.extend([0x0a, (name.len() + text.len() + 4) as u8, 0x0a, name.len() as u8]);
            self.series.extend_from_slice(name.as_bytes());
            self.series.extend([0x12, text.len() as u8]);
            self.series.extend_from_slice(text.as_bytes());
        }
        let mut timestamp = Vec::with_capacity(10);
        prost::encoding::encode_varint(time.0 as u64, &mut timestamp);
        self.series.extend([0x12, 10 + timestamp.len() as u8, 0x09]);
        self.series.extend(value.to_le_bytes());
        self.series.push(0x10);
        self.series.extend(timestamp);
        self.bytes.push(0x0a);
        prost::encoding::encode_varint(self.series.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(&self.series);
        self.n_samples += 1;
    }
}

#[derive(Default)]
struct Sent {
    samples: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
    bytes: AtomicU64,
    /// The longest time from the scrape to the acknowledgement, in milliseconds.
    longest: AtomicU64,
    total_millis: AtomicU64,
}

/// Writes every node's scrape each second, and again until it is acknowledged.
async fn write(cluster: Arc<Cluster>, url: String, n_seconds: usize) -> anyhow::Result<()> {
    net::install_tls_provider();
    let client = reqwest::Client::builder().pool_max_idle_per_host(N_SHARDS).build()?;
    let sent = Arc::new(Sent::default());
    let (begin, first) = (Instant::now(), now());
    let shards = (0..N_SHARDS).map(|shard| {
        let (cluster, url, client, sent) = (cluster.clone(), url.clone(), client.clone(), sent.clone());
        tokio::spawn(async move {
            let mut encoder = Encoder::default();
            for second in 0..n_seconds {
                tokio::time::sleep_until((begin + Duration::from_secs(second as u64)).into()).await;
                for node in (shard..cluster.nodes.len()).step_by(N_SHARDS) {
                    // A scraper goes on while its requests wait; each node has its own moment in a second.
                    let after = Millis((second * 1_000 + node * 7 % 1_000) as i64);
                    let scraped = first + after;
                    let reading =
                        cluster.reading(node, after, scraped).context("the recording is too short")?;
                    let body = encoder.request(&reading)?;
                    sent.bytes.fetch_add(body.len() as u64, Relaxed);
                    post(&client, &url, body, &sent).await?;
                    let waited = (now() - scraped).0.max(0) as u64;
                    sent.longest.fetch_max(waited, Relaxed);
                    sent.total_millis.fetch_add(waited, Relaxed);
                }
            }
            sent.samples.fetch_add(encoder.n_samples, Relaxed);
            anyhow::Ok(())
        })
    });
    for shard in shards.collect::<Vec<_>>() {
        shard.await??;
    }
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    let n_requests = count(&sent.requests);
    let result = json!({
        "seconds": begin.elapsed().as_secs_f64(),
        "samples": count(&sent.samples),
        "requests": n_requests,
        "retries": count(&sent.retries),
        "bytes": count(&sent.bytes),
        "longest_ms": count(&sent.longest),
        "mean_ms": count(&sent.total_millis) as f64 / n_requests.max(1) as f64,
    });
    println!("{result}");
    Ok(())
}

async fn post(client: &reqwest::Client, url: &str, body: Vec<u8>, sent: &Sent) -> anyhow::Result<()> {
    let body = bytes::Bytes::from(body);
    loop {
        let request = client
            .post(url)
            .header("content-type", "application/x-protobuf")
            .header("content-encoding", "snappy")
            .header("x-prometheus-remote-write-version", "0.1.0")
            .body(body.clone());
        let response = request.send().await?;
        sent.requests.fetch_add(1, Relaxed);
        match response.status().as_u16() {
            204 => return Ok(()),
            503 => sent.retries.fetch_add(1, Relaxed),
            other => bail!("{other}: {}", response.text().await?),
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Serves the samples of every node, the first at 127.1.0.0, until the process is killed.
async fn agents(cluster: Arc<Cluster>, port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await?;
    println!("ready");
    let start = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    loop {
        let (stream, _) = listener.accept().await?;
        let cluster = cluster.clone();
        tokio::spawn(async move {
            // A connection that breaks is the client's to report.
            let _ = agent(&cluster, stream, start).await;
        });
    }
}

async fn agent(cluster: &Cluster, stream: TcpStream, start: u64) -> anyhow::Result<()> {
    let SocketAddr::V4(address) = stream.local_addr()? else { bail!("not an IPv4 address") };
    let [_, _, high, low] = address.ip().octets();
    let node = usize::from(high) << 8 | usize::from(low);
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let after = line.split_once("after=").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        while stream.read_line(&mut line).await? > 2 {}
        let next = after.map_or(0, |position: Position| position.next);
        let newest = (now().0 as u64 - start) / 1_000;
        let mut segment = Segment::with_capacity(1 << 16);
        let source = source();
        let end = newest.min(next + MAX_READINGS);
        for second in next..end {
            let time = Timestamp((start + second * 1_000) as i64);
            if let Some(reading) = cluster.reading(node, Millis(second as i64 * 1_000), time) {
                segment.push(&reading, &source);
            }
        }
        let body = samples::join([segment.bytes()].iter().filter(|bytes| !bytes.is_empty()));
        let position = Position { start, next: end.max(next) };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{POSITION_HEADER}: {position}\r\ncontent-length: {}\r\n\r\n",
            samples::MEDIA_TYPE,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
    }
}

/// Nanoseconds per sample: our decoder and prost, on the same request, in turns.
fn decode(cluster: &Cluster, n_rounds: usize) -> anyhow::Result<()> {
    let reading = cluster.reading(0, Millis(0), now()).context("the recording is empty")?;
    let mut encoder = Encoder::default();
    encoder.scrape(&reading);
    let (bytes, n_samples) = (&encoder.bytes, encoder.n_samples);
    let decoded = WriteRequest::decode(&bytes[..])?;
    let expected: f64 =
        decoded.timeseries.iter().flat_map(|series| &series.samples).map(|one| one.value).sum();
    let ours = || -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for series in v1::series(bytes) {
            let series = series?;
            for label in series.labels() {
                std::hint::black_box(label?);
            }
            for sample in series.samples() {
                sum += sample?.value;
            }
        }
        Ok(sum)
    };
    let prost = || -> anyhow::Result<f64> {
        let request = WriteRequest::decode(&bytes[..])?;
        Ok(request.timeseries.iter().flat_map(|series| &series.samples).map(|one| one.value).sum())
    };
    let timed = |decoder: &dyn Fn() -> anyhow::Result<f64>| -> anyhow::Result<f64> {
        let begin = Instant::now();
        for _ in 0..100 {
            if decoder()? != expected {
                bail!("a decoder reads other values");
            }
        }
        Ok(begin.elapsed().as_secs_f64() * 1e9 / (100.0 * n_samples as f64))
    };
    let mut rounds = Vec::new();
    for _ in 0..n_rounds {
        rounds.push(json!({ "tracewise": timed(&ours)?, "prost": timed(&prost)? }));
    }
    println!("{}", json!({ "samples": n_samples, "bytes": bytes.len(), "rounds": rounds }));
    Ok(())
}
