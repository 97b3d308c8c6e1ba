//! Pushes every reading to a server by remote write. Readings that the server does not accept are
//! sent again as long as the ring keeps them.

mod batch;
pub mod message;
mod pace;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use tokio::sync::watch;
use workload::{NodeReading, ThreadReading, Timestamp, samples};

use crate::cpu::{Monotone, expose_owners, expose_seconds};
use crate::node::Sample;
use crate::service::Shared;
use batch::{Batch, Ending, Outline, Version};
use pace::{Pace, random};

/// What one request holds at most; a reading is not divided.
const SAMPLES_PER_REQUEST: usize = 10_000;
/// A counter for each mode, and an owner.
const SAMPLES_PER_THREAD: usize = 9;
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last push may take when the agent ends.
const LAST_PUSH: Duration = Duration::from_secs(5);
/// A server that was away gets the readings of this many intervals at a time, so that it is not away again
/// as soon as all nodes of a cluster send what it missed.
const INTERVALS_PER_PUSH: u32 = 10;
/// How much of a response is read.
const RESPONSE_BYTES: usize = 4096;
/// How much of what a server says is logged.
const LOGGED_CHARACTERS: usize = 200;
/// The response of a server that supports version 2 has this header.
const WRITTEN: &str = "x-prometheus-remote-write-samples-written";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Version 2.0, or 1.0 where the server does not know it
    Auto,
    #[value(name = "1.0")]
    One,
    #[value(name = "2.0")]
    Two,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub url: Url,
    pub interval: Duration,
    /// The longest pause after failures.
    pub longest_pause: Duration,
    pub protocol: Protocol,
    /// Labels of every series.
    pub labels: Vec<(String, String)>,
    /// Read at every push, so that it can be replaced.
    pub bearer_token_file: Option<PathBuf>,
}

/// Why a request was not taken.
#[derive(Debug)]
enum Failure {
    /// It may be taken later.
    Passing(String),
    /// It never will.
    Final(String),
}

pub struct Pusher {
    settings: Settings,
    shared: Arc<Shared>,
    client: Client,
    version: Version,
    /// The server has accepted this version.
    is_agreed: bool,
    /// The number of the first reading that the server has neither taken nor refused.
    next: u64,
    /// As they were in the last reading sent.
    threads: Vec<ThreadReading>,
    monotone: Monotone,
    /// The series of jobs and the node that were sent last, and when they were read.
    last: Option<(Timestamp, Outline)>,
    is_failing: bool,
}

impl Pusher {
    pub fn new(settings: Settings, shared: Arc<Shared>) -> reqwest::Result<Self> {
        net::install_tls_provider();
        let client = Client::builder()
            .timeout(TIMEOUT)
            // A push that is sent elsewhere would arrive as a question, without its content.
            .redirect(Policy::none())
            // A response is only shown, and a few bytes can inflate to gigabytes.
            .no_gzip()
            .user_agent(concat!("tracewise-agent/", env!("CARGO_PKG_VERSION")))
            .build()?;
        shared.pushed.is_on.store(true, Ordering::Relaxed);
        Ok(Self {
            version: if settings.protocol == Protocol::One { Version::One } else { Version::Two },
            is_agreed: settings.protocol != Protocol::Auto,
            settings,
            shared,
            client,
            next: 0,
            threads: Vec::new(),
            monotone: Monotone::default(),
            last: None,
            is_failing: false,
        })
    }

    /// Pushes until `stop` changes, and once more then.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut pace = Pace::new(self.settings.interval, self.settings.longest_pause);
        let mut pause = pace.first_pause(random());
        let readings_per_interval =
            self.settings.interval.as_nanos().div_ceil(self.shared.interval.as_nanos().max(1));
        let n_most = usize::try_from(readings_per_interval).unwrap_or(usize::MAX);
        let n_most = n_most.saturating_mul(INTERVALS_PER_PUSH as usize);
        loop {
            let is_over = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                _ = stop.changed() => true,
            };
            if is_over {
                let _ = tokio::time::timeout(LAST_PUSH, self.push(usize::MAX)).await;
                return;
            }
            self.push(n_most).await;
            pause = pace.pause(!self.is_failing, random());
        }
    }

    /// Sends new readings until there are none or about `n_most` are sent. Stops at the first request that
    /// fails; the next push continues there.
    async fn push(&mut self, n_most: usize) {
        let mut outcome = Ok(());
        let mut n_sent = 0;
        while outcome.is_ok() && n_sent < n_most {
            let (next, mut readings) = self.next_readings();
            if readings.is_empty() {
                break;
            }
            n_sent += readings.len();
            // The next counters are compared with those that were delivered.
            let mut monotone = self.monotone.clone();
            readings.iter_mut().for_each(|reading| monotone.hold(&mut reading.threads));
            let batch = self.batch(&readings);
            outcome = self.deliver(&batch).await;
            if outcome.is_ok() {
                self.next = next;
                self.monotone = monotone;
                self.threads =
                    readings.into_iter().next_back().map(|reading| reading.threads).unwrap_or_default();
            }
        }
        if outcome.is_ok()
            && let Some(latest) = self.shared.latest()
        {
            let is_new = self.last.as_ref().is_none_or(|(time, _)| *time != latest.time);
            if is_new {
                let (batch, outline) = self.batch_of_the_rest(&latest);
                outcome = self.deliver(&batch).await;
                if outcome.is_ok() {
                    self.last = Some((latest.time, outline));
                }
            }
        }
        match (&outcome, self.is_failing) {
            (Err(reason), false) => {
                tracing::warn!("{}: {reason}; will retry", self.address());
            }
            (Ok(()), true) => tracing::info!("{}: accepts samples again", self.address()),
            _ => {}
        }
        self.is_failing = outcome.is_err();
    }

    /// The address without a password.
    fn address(&self) -> String {
        net::without_password(&self.settings.url).to_string()
    }

    /// The oldest readings that have not been sent, as many as fit into a request, and the number of the
    /// one after them.
    fn next_readings(&self) -> (u64, Vec<NodeReading>) {
        let mut readings: Vec<NodeReading> = Vec::new();
        let Some((first, segment)) = self.shared.ring().segment_from(self.next) else {
            return (self.next, readings);
        };
        let mut n_samples = 0;
        let n_sent = self.next.saturating_sub(first) as usize;
        for (_, reading) in samples::read_segment(&segment.bytes()).flatten().skip(n_sent) {
            n_samples += reading.threads.len() * SAMPLES_PER_THREAD;
            if n_samples > SAMPLES_PER_REQUEST && !readings.is_empty() {
                break;
            }
            readings.push(reading);
        }
        let next = first.max(self.next) + readings.len() as u64;
        (next, readings)
    }

    fn labels(&self) -> Vec<(String, String)> {
        self.settings.labels.clone()
    }

    fn batch(&self, readings: &[NodeReading]) -> Batch {
        let mut batch = Batch::new(self.labels());
        let mut before: &[ThreadReading] = &self.threads;
        for reading in readings {
            expose_seconds(&reading.threads, reading.time, &mut batch);
            let has_changed = |thread: &&ThreadReading| {
                let now = reading.threads.iter().find(|now| now.cpu == thread.cpu);
                now.is_none_or(|now| now.owner != thread.owner)
            };
            let ended: Vec<ThreadReading> = before.iter().filter(has_changed).cloned().collect();
            expose_owners(&ended, Some(reading.time), &mut Ending(&mut batch));
            expose_owners(&reading.threads, Some(reading.time), &mut batch);
            before = &reading.threads;
        }
        batch
    }

    /// What is not in the ring: jobs, and the node as a whole, as they are now. Series that were there last
    /// time and are not any more are ended.
    fn batch_of_the_rest(&self, latest: &Sample) -> (Batch, Outline) {
        let mut batch = Batch::new(self.labels());
        batch.set_time(latest.time);
        self.shared.expose_own(&mut batch);
        latest.expose_rest(&mut batch);
        let outline = batch.outline();
        if let Some((_, last)) = &self.last {
            batch.end_those_not_there(last);
        }
        (batch, outline)
    }

    /// Sends a batch. One that the server refuses for good is counted, and done with.
    async fn deliver(&mut self, batch: &Batch) -> Result<(), String> {
        let n_samples = batch.n_samples() as u64;
        if n_samples == 0 {
            return Ok(());
        }
        let pushed = &self.shared.clone().pushed;
        match self.agree_and_send(batch).await {
            Ok(()) => {
                pushed.samples.fetch_add(n_samples, Ordering::Relaxed);
                Ok(())
            }
            Err(Failure::Final(reason)) => {
                pushed.refused.fetch_add(n_samples, Ordering::Relaxed);
                tracing::warn!("{} rejects {n_samples} samples: {reason}", self.address());
                Ok(())
            }
            Err(Failure::Passing(reason)) => {
                pushed.failures.fetch_add(1, Ordering::Relaxed);
                Err(reason)
            }
        }
    }

    /// A server that knows only version 1 refuses version 2, or takes it for an empty request.
    async fn agree_and_send(&mut self, batch: &Batch) -> Result<(), Failure> {
        let sent = self.send(batch).await;
        if self.is_agreed || matches!(sent, Err(Failure::Passing(_))) {
            return sent;
        }
        if sent.is_err() && self.version == Version::Two {
            self.version = Version::One;
            let sent = self.send(batch).await;
            self.is_agreed = sent.is_ok();
            if self.is_agreed {
                tracing::info!("{} accepts remote write 1.0", self.address());
            } else {
                self.version = Version::Two;
            }
            return sent;
        }
        self.is_agreed = sent.is_ok();
        sent
    }

    async fn send(&self, batch: &Batch) -> Result<(), Failure> {
        let body = snap::raw::Encoder::new()
            .compress_vec(&batch.encode(self.version))
            .map_err(|error| Failure::Final(error.to_string()))?;
        let mut request = self
            .client
            .post(self.settings.url.clone())
            .header(CONTENT_TYPE, self.version.content_type())
            .header(CONTENT_ENCODING, "snappy")
            .header("X-Prometheus-Remote-Write-Version", self.version.number())
            .body(body);
        if let Some(path) = &self.settings.bearer_token_file {
            let token = std::fs::read_to_string(path)
                .map_err(|error| Failure::Passing(format!("{}: {error}", path.display())))?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let response =
            request.send().await.map_err(|error| Failure::Passing(net::root_cause(&error).to_string()))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() {
            return self.check(&headers);
        }
        if status.is_redirection() {
            let target = headers.get(LOCATION).and_then(|target| target.to_str().ok()).unwrap_or("nowhere");
            let target = printable(target);
            return Err(Failure::Passing(format!("it redirects with {status} to {target}; push there")));
        }
        let body = beginning(response).await;
        let line = body.trim().lines().next().unwrap_or_default();
        let reason = format!("it responds with {status}: {}", printable(line));
        let is_passing = status.is_server_error()
            || matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            );
        Err(if is_passing { Failure::Passing(reason) } else { Failure::Final(reason) })
    }

    /// A server that supports version 2 reports how much was written.
    fn check(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if self.version == Version::Two && !headers.contains_key(WRITTEN) {
            return Err(Failure::Final("it does not support remote write 2.0".into()));
        }
        Ok(())
    }
}

/// The first bytes of a response, as text.
async fn beginning(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < RESPONSE_BYTES
        && let Ok(Some(part)) = response.chunk().await
    {
        bytes.extend_from_slice(&part[..part.len().min(RESPONSE_BYTES - bytes.len())]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server's text for the log, short and without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(LOGGED_CHARACTERS).collect()
}
