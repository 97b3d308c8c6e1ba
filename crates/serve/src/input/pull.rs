//! Reads agents: each is asked for the readings after its last position, so that none is fetched twice and none is
//! lost while the agent still has it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::replace;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::AUTHORIZATION;
use tokio::sync::watch;
use url::Url;
use workload::samples::{self, LOST_HEADER, POSITION_HEADER, Position, SamplesError};
use workload::{NodeName, NodeReading, Source, Timestamp};

use super::targets::Discovery;
use crate::counts::{Counts, Input, add};
use crate::error::ServeError;
use crate::ingest::{Ingest, NotTaken, Origin, by_source};
use crate::peer;
use crate::settings::{AgentSettings, ServeSettings};
use crate::tasks::Tasks;

/// How often targets are looked for.
const DISCOVER_EVERY: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response: ten segments of a large node.
const MAX_BYTES: u64 = 64 << 20;
/// The longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// A response with so many readings is followed by more.
const N_FULL: usize = 1_000;
const POSITIONS: &str = "positions.json";

/// Why an agent was not read.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error("{0}")]
    Request(String),
    #[error("{0}")]
    Credentials(String),
    #[error("it asks for a password or token: see user, password_file and token_file of [serve.agents]")]
    Unauthorized,
    #[error("it responds with {0}")]
    Status(StatusCode),
    #[error("it responds without a position: it is an agent of an older version, or no agent")]
    NoPosition,
    #[error("it responds with more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error(transparent)]
    Samples(#[from] SamplesError),
    #[error("it sends readings of {0} and of {1}: an agent speaks for one node")]
    TwoNodes(NodeName, NodeName),
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
}

/// Readings of one source.
type Part = (Arc<Source>, Vec<NodeReading>);

/// Reads all agents until `stop`.
pub struct Pull {
    settings: watch::Receiver<Arc<ServeSettings>>,
    client: reqwest::Client,
    ingest: Ingest,
    counts: Arc<Counts>,
    positions: Arc<Positions>,
}

impl Pull {
    /// `archived` is the time of the last reading of each node in the archive; readings up to then are skipped.
    pub fn new(
        settings: watch::Receiver<Arc<ServeSettings>>,
        data: &Path,
        archived: BTreeMap<NodeName, Timestamp>,
        ingest: Ingest,
        counts: Arc<Counts>,
    ) -> Result<Self, ServeError> {
        let client = client(&settings.borrow().agents).map_err(ServeError::Client)?;
        let positions = Arc::new(Positions::read(data.join(POSITIONS), archived));
        Ok(Self { settings, client, ingest, counts, positions })
    }

    /// Reads until `stop` changes.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut readers = Tasks::new();
        let mut discovery = Discovery::default();
        let mut ca_file = self.settings.borrow().agents.ca_file.clone();
        let mut reported = BTreeSet::new();
        loop {
            let agents = self.settings.borrow_and_update().agents.clone();
            if agents.ca_file != ca_file {
                match client(&agents) {
                    Ok(client) => {
                        self.client = client;
                        // Readers begin again with it.
                        replace(&mut readers, Tasks::new()).end().await;
                    }
                    Err(reason) => tracing::warn!("agents: {reason}; the authorities stay as they are"),
                }
                ca_file.clone_from(&agents.ca_file);
            }
            let (targets, errors) = discovery.discover(&agents, &self.client).await;
            add(&self.counts.failed_discoveries, errors.len() as u64);
            let errors: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
            // What happens again after it was well is said again.
            errors.difference(&reported).for_each(|error| tracing::warn!("agents: {error}"));
            reported = errors;
            let targets: Vec<Url> = targets.into_iter().collect();
            readers.keep(&targets, |target| self.reader(target).run());
            self.positions.write();
            tokio::select! {
                _ = stop.changed() => break,
                changed = self.settings.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(DISCOVER_EVERY) => {}
            }
        }
        readers.end().await;
        self.positions.write();
    }

    fn reader(&self, target: Url) -> Reader {
        Reader {
            target,
            start: None,
            settings: self.settings.clone(),
            client: self.client.clone(),
            ingest: self.ingest.clone(),
            counts: self.counts.clone(),
            positions: self.positions.clone(),
        }
    }
}

/// A client that trusts the authorities of the settings, too.
fn client(agents: &AgentSettings) -> Result<reqwest::Client, String> {
    let builder = peer::builder(TIMEOUT).tls_certs_merge(agents.authorities()?);
    builder.build().map_err(|error| net::root_cause(&error).to_string())
}

/// Reads one agent.
struct Reader {
    target: Url,
    /// The start of the agent whose readings were fetched last.
    start: Option<u64>,
    settings: watch::Receiver<Arc<ServeSettings>>,
    client: reqwest::Client,
    ingest: Ingest,
    counts: Arc<Counts>,
    positions: Arc<Positions>,
}

impl Reader {
    async fn run(mut self) {
        // Agents are not all asked at the same moment.
        let mut hasher = DefaultHasher::new();
        self.target.hash(&mut hasher);
        let every = self.settings.borrow().agents.every.0;
        tokio::time::sleep(every.mul_f64(hasher.finish() as f64 / u64::MAX as f64)).await;
        let mut n_failed: u32 = 0;
        loop {
            let every = self.settings.borrow().agents.every.0;
            let pause = match self.pull().await {
                // There is more.
                Ok(true) => Duration::ZERO,
                Ok(false) => {
                    if n_failed > 0 {
                        tracing::info!("{}: responds again", self.shown());
                    }
                    n_failed = 0;
                    every
                }
                Err(error) => {
                    add(&self.counts.failed_pulls, 1);
                    if n_failed == 0 {
                        tracing::warn!("{}: {error}", self.shown());
                    }
                    n_failed += 1;
                    (every * 2u32.saturating_pow(n_failed.min(6))).min(MAX_PAUSE)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn shown(&self) -> String {
        let (host, port) =
            (self.target.host_str().unwrap_or_default(), self.target.port().unwrap_or_default());
        format!("agent {host}:{port}")
    }

    /// Fetches what follows the last position, and returns whether there is more.
    async fn pull(&mut self) -> Result<bool, PullError> {
        let asked = self.positions.of(&self.target);
        let mut url = self.target.clone();
        let after = asked.map(|position| position.to_string()).unwrap_or_default();
        url.query_pairs_mut().append_pair("after", &after);
        let cause = |error: reqwest::Error| PullError::Request(net::root_cause(&error).to_string());
        let mut request = self.client.get(url);
        let authorization = self.settings.borrow().agents.authorization();
        if let Some(value) = authorization.map_err(PullError::Credentials)? {
            request = request.header(AUTHORIZATION, value);
        }
        let response = request.send().await.map_err(cause)?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(PullError::Unauthorized);
        }
        if response.status() != StatusCode::OK {
            return Err(PullError::Status(response.status()));
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let position: Position =
            header(POSITION_HEADER).and_then(|text| text.parse().ok()).ok_or(PullError::NoPosition)?;
        let n_lost: u64 = header(LOST_HEADER).and_then(|text| text.parse().ok()).unwrap_or(0);
        if response.content_length().is_none_or(|length| length > MAX_BYTES) {
            return Err(PullError::TooLarge);
        }
        let body = response.bytes().await.map_err(cause)?;
        let parts = self.parts(&body, self.start == Some(position.start))?;
        let n_readings: usize = parts.iter().map(|(_, readings)| readings.len()).sum();
        for (source, readings) in parts {
            let origin = Origin { input: Input::Agent, address: Some(self.shown().into()) };
            self.ingest.deliver(origin, source, readings).await?;
        }
        if n_lost > 0 {
            self.counts.lost_readings.fetch_add(n_lost, Ordering::Relaxed);
            tracing::warn!("{}: {n_lost} readings are lost: it no longer has them", self.shown());
        }
        self.positions.set(&self.target, position);
        self.start = Some(position.start);
        Ok(n_readings >= N_FULL)
    }

    /// The readings of a response by source. After a new start of either side, those that the archive has are left out.
    fn parts(&self, body: &[u8], is_continued: bool) -> Result<Vec<Part>, PullError> {
        let mut wanted = Vec::new();
        let mut node: Option<NodeName> = None;
        for read in samples::read(body) {
            let (source, reading) = read?;
            let first = node.get_or_insert_with(|| reading.node.clone());
            if *first != reading.node {
                return Err(PullError::TwoNodes(first.clone(), reading.node));
            }
            if !is_continued
                && self.positions.archived.get(&reading.node).is_some_and(|last| reading.time <= *last)
            {
                continue;
            }
            wanted.push((source, reading));
        }
        Ok(by_source(wanted))
    }
}

/// The position in the readings of each agent. They are kept in a file, which may be older than the archive after a
/// crash: what the archive has is then fetched again, and left out.
struct Positions {
    path: PathBuf,
    of: Mutex<BTreeMap<String, String>>,
    archived: BTreeMap<NodeName, Timestamp>,
}

impl Positions {
    fn read(path: PathBuf, archived: BTreeMap<NodeName, Timestamp>) -> Self {
        let text = std::fs::read(&path).unwrap_or_default();
        let of = serde_json::from_slice(&text).unwrap_or_default();
        Self { path, of: Mutex::new(of), archived }
    }

    fn of(&self, target: &Url) -> Option<Position> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner).get(target.as_str())?.parse().ok()
    }

    fn set(&self, target: &Url, position: Position) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.insert(target.to_string(), position.to_string());
    }

    fn write(&self) {
        let json = serde_json::to_vec(&*self.of.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(error) = json.ok().and_then(|json| files::write(&self.path, &json).err()) {
            tracing::warn!("{error}");
        }
    }
}
