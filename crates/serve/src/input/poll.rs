//! Reads samples from servers with the query API of Prometheus, such as Prometheus itself and VictoriaMetrics.
//!
//! Every few seconds a server is asked for the raw samples since the last time and a little before: what comes twice is
//! ignored, and what was late the first time is not lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use remote_write::{Damaged, Label, Sample, TimeSeries};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use tokio::sync::watch;
use url::Url;
use workload::{Millis, NodeName, Timestamp, metric};

use crate::counts::{Counts, Input, add};
use crate::error::ServeError;
use crate::ingest::{Ingest, NotTaken, Origin, by_source};
use crate::peer::{self, ResponseError, SecretError, bounded, read_secret};
use crate::remote_write::assemble::{Assembled, Assembler};
use crate::remote_write::meaning::NODE_EXPORTER_METRIC;
use crate::settings::{PollSettings, ServeSettings, SettingsError};
use crate::tasks::Tasks;

const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that is asked for at once.
const LONGEST: Millis = Millis(60_000);
/// How far a query goes back beyond the last one.
const OVERLAP: Millis = Millis(40_000);
/// How far back the first query goes, if the archive ends long before.
const FIRST: Millis = Millis(300_000);
/// What was not read for this long is not read any more.
const MAX_GAP: Millis = Millis::HOUR;
const MAX_BYTES: usize = 512 << 20;
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Why a server was not read.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("{0}")]
    Request(String),
    #[error("it responds with {0}")]
    Status(StatusCode),
    #[error("it responds with more than {MAX_BYTES} bytes; use remote write for so many threads")]
    TooLarge,
    #[error("it does not respond like a Prometheus: {0}")]
    Format(String),
    #[error(transparent)]
    Token(#[from] SecretError),
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
}

/// The address of the query API of a server.
pub fn address(server: &PollSettings) -> Result<Url, SettingsError> {
    Ok(peer::below(peer::address(&server.url, server.token_file.as_ref())?, "/api/v1/query"))
}

/// Reads all servers of the settings.
pub struct Poll {
    pub settings: watch::Receiver<Arc<ServeSettings>>,
    /// The last reading of each node in the archive.
    pub archived: BTreeMap<NodeName, Timestamp>,
    pub ingest: Ingest,
    pub counts: Arc<Counts>,
}

impl Poll {
    /// Reads until `stop` changes.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), ServeError> {
        let client = peer::client(TIMEOUT).map_err(|error| ServeError::Client(error.to_string()))?;
        let mut readers = Tasks::new();
        loop {
            let wanted = self.settings.borrow_and_update().prometheus.clone();
            readers.keep(&wanted, |server| {
                Reader {
                    next: None,
                    assembler: Assembler::after(self.archived.clone()),
                    archived: self.archived.values().copied().max(),
                    client: client.clone(),
                    ingest: self.ingest.clone(),
                    counts: self.counts.clone(),
                    server,
                }
                .run()
            });
            tokio::select! {
                _ = stop.changed() => break,
                changed = self.settings.changed() => if changed.is_err() { break },
            }
        }
        readers.end().await;
        Ok(())
    }
}

/// Reads one server.
struct Reader {
    server: PollSettings,
    /// The end of the last query.
    next: Option<Timestamp>,
    archived: Option<Timestamp>,
    assembler: Assembler,
    client: Client,
    ingest: Ingest,
    counts: Arc<Counts>,
}

impl Reader {
    async fn run(mut self) {
        let mut n_failed: u32 = 0;
        loop {
            let pause = match self.poll().await {
                Ok(true) => Duration::ZERO,
                Ok(false) => {
                    if n_failed > 0 {
                        tracing::info!("{}: responds again", self.server.url);
                    }
                    n_failed = 0;
                    self.server.every.0
                }
                Err(error) => {
                    add(&self.counts.failed_polls, 1);
                    if n_failed == 0 {
                        tracing::warn!("{}: {error}", self.server.url);
                    }
                    n_failed += 1;
                    (self.server.every.0 * 2u32.saturating_pow(n_failed.min(6))).min(MAX_PAUSE)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads what is new, and returns whether there is more.
    async fn poll(&mut self) -> Result<bool, PollError> {
        let now = Timestamp::from(SystemTime::now());
        let archived = self.archived.filter(|last| *last > now - MAX_GAP);
        let first = archived.unwrap_or(now - FIRST);
        let from = self.next.unwrap_or(first).max(now - MAX_GAP);
        let to = now.min(from + LONGEST);
        if to <= from {
            return Ok(false);
        }
        let series = self.samples(to, Millis((to - from).0 + OVERLAP.0)).await?;
        self.deliver(&series).await?;
        self.next = Some(to);
        Ok(to < now)
    }

    /// The raw samples of the `length` before `to`.
    async fn samples(&self, to: Timestamp, length: Millis) -> Result<Vec<Series>, PollError> {
        let names = [metric::CPU_SECONDS, NODE_EXPORTER_METRIC, metric::CPU_OWNER, metric::NODE_MEMORY];
        let names: Vec<&str> = names.into_iter().chain(metric::JOB_COUNTS).collect();
        let more = if self.server.matchers.is_empty() {
            String::new()
        } else {
            format!(",{}", self.server.matchers)
        };
        let query = format!("{{__name__=~\"{}\"{more}}}[{}ms]", names.join("|"), length.0);
        let time = format!("{:.3}", to.0 as f64 / 1e3);
        let url = address(&self.server).map_err(|error| PollError::Request(error.to_string()))?;
        let mut request = self.client.get(url).query(&[("query", &query), ("time", &time)]);
        if let Some(path) = &self.server.token_file {
            request = request.bearer_auth(read_secret(path)?);
        }
        let cause = |error: reqwest::Error| PollError::Request(net::root_cause(&error).to_string());
        let response = request.send().await.map_err(cause)?;
        if response.status() != StatusCode::OK {
            return Err(PollError::Status(response.status()));
        }
        let body = bounded(response, MAX_BYTES).await.map_err(|error| match error {
            ResponseError::TooLarge(_) => PollError::TooLarge,
            ResponseError::Connection(cause) => PollError::Request(cause),
        })?;
        let answer: Answer =
            serde_json::from_slice(&body).map_err(|error| PollError::Format(error.to_string()))?;
        Ok(answer.data.result)
    }

    /// Delivers the readings of samples. They are taken in order of time, so that a thread has the owner that it had then.
    async fn deliver(&mut self, series: &[Series]) -> Result<(), PollError> {
        let mut times: Vec<i64> =
            series.iter().flat_map(|one| &one.values).map(|value| value.0.0 / 1_000).collect();
        times.sort_unstable();
        times.dedup();
        let mut complete: Vec<Assembled> = Vec::new();
        for second in times {
            for one in series {
                let range = one.within(second * 1_000, (second + 1) * 1_000);
                if !range.values.is_empty() {
                    // JSON that was read is not damaged.
                    let _ = self.assembler.push(&range);
                }
            }
            complete.extend(self.assembler.complete());
        }
        for (reason, amount) in self.assembler.take_ignored() {
            self.counts.ignore(reason, amount);
        }
        for (source, readings) in by_source(complete) {
            let origin = Origin { input: Input::Prometheus, address: Some(self.server.url.as_str().into()) };
            self.ingest.deliver(origin, source, readings).await?;
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct Answer {
    data: Matrix,
}

#[derive(Debug, Deserialize)]
struct Matrix {
    result: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<Value>,
}

/// A time and a value.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(from = "(f64, String)")]
struct Value((i64, f64));

impl From<(f64, String)> for Value {
    fn from((seconds, value): (f64, String)) -> Self {
        Self(((seconds * 1e3).round() as i64, value.parse().unwrap_or(f64::NAN)))
    }
}

impl Series {
    /// The samples of some milliseconds.
    fn within(&self, from: i64, to: i64) -> Range<'_> {
        let at = |time: i64| self.values.partition_point(|value| value.0.0 < time);
        Range { labels: &self.metric, values: &self.values[at(from)..at(to).max(at(from))] }
    }
}

/// Some samples of a series.
struct Range<'a> {
    labels: &'a BTreeMap<String, String>,
    values: &'a [Value],
}

impl<'a> TimeSeries<'a> for Range<'a> {
    fn labels(&self) -> impl Iterator<Item = Result<Label<'a>, Damaged>> {
        self.labels.iter().map(|(name, value)| Ok((name.as_bytes(), value.as_bytes())))
    }

    fn samples(&self) -> impl Iterator<Item = Result<Sample, Damaged>> {
        let sample = |Value((timestamp, value)): &Value| Sample {
            timestamp: *timestamp,
            value: *value,
            start_timestamp: None,
        };
        self.values.iter().map(sample).map(Ok)
    }

    fn n_samples(&self) -> usize {
        self.values.len()
    }

    fn n_histograms(&self) -> usize {
        0
    }

    fn n_exemplars(&self) -> usize {
        0
    }
}
