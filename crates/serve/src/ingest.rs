//! The one way into the service: readings of all inputs are checked, stored, acknowledged, and passed on to scoring.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use archive::{Archive, WriterSettings};
use tokio::sync::{mpsc, oneshot};
use workload::derive::Scale;
use workload::{Millis, NodeName, NodeReading, Source, Timestamp};

use crate::counts::{Counts, Ignored, Input, Stage};
use crate::error::ServeError;

/// Deliveries that may wait. More are refused, and their senders try again.
const MAX_WAITING: usize = 256;
/// Readings that are stored with one synchronisation of the disk.
const MAX_GROUP: usize = 20_000;
/// A node belongs to the origin that delivers it, until it has been silent there for this long.
const OWNED_FOR: Duration = Duration::from_secs(60);
/// A reading may be this far ahead of the clock.
pub const MAX_AHEAD: Millis = Millis(600_000);

/// Where readings come from: an input, and which of its servers or agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub input: Input,
    pub address: Option<Arc<str>>,
}

impl From<Input> for Origin {
    fn from(input: Input) -> Self {
        Self { input, address: None }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => f.write_str(address),
            None => f.write_str(self.input.name()),
        }
    }
}

/// Readings of one source.
#[derive(Debug)]
pub struct Arrival {
    pub origin: Origin,
    pub source: Arc<Source>,
    pub readings: Vec<NodeReading>,
    /// Told when the readings survive a crash, or why they do not.
    pub done: oneshot::Sender<Result<(), StoreFailed>>,
}

/// The archive did not accept readings.
#[derive(Debug, Clone, thiserror::Error)]
#[error("readings cannot be stored: {0}")]
pub struct StoreFailed(pub String);

/// Why readings were not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotTaken {
    #[error("too many deliveries are waiting")]
    Busy,
    #[error("the service is stopping")]
    Stopping,
    #[error(transparent)]
    Failed(#[from] StoreFailed),
}

/// A stored reading on its way to scoring.
pub type Stored = (NodeReading, Scale);

/// Readings by source, in their order.
pub fn by_source(
    readings: impl IntoIterator<Item = (Arc<Source>, NodeReading)>,
) -> Vec<(Arc<Source>, Vec<NodeReading>)> {
    let mut parts: Vec<(Arc<Source>, Vec<NodeReading>)> = Vec::new();
    for (source, reading) in readings {
        match parts.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &source) || *known == source) {
            Some((_, readings)) => readings.push(reading),
            None => parts.push((source, vec![reading])),
        }
    }
    parts
}

/// Where inputs deliver readings.
#[derive(Debug, Clone)]
pub struct Ingest {
    arrivals: mpsc::Sender<Arrival>,
    counts: Arc<Counts>,
}

impl Ingest {
    /// Starts the thread that stores. It ends when all inputs have ended, and closes the archive's writer.
    pub fn start(
        archive: &Archive,
        scoring: std::sync::mpsc::SyncSender<Vec<Stored>>,
        counts: Arc<Counts>,
    ) -> Result<(Self, std::thread::JoinHandle<()>), ServeError> {
        let (arrivals, waiting) = mpsc::channel(MAX_WAITING);
        let mut storing = Storing {
            writer: archive.writer(own_source(), WriterSettings::default())?,
            owners: BTreeMap::new(),
            scoring,
            counts: counts.clone(),
        };
        let work = move || storing.run(waiting);
        let thread =
            std::thread::Builder::new().name("ingest".into()).spawn(work).map_err(ServeError::Thread)?;
        Ok((Self { arrivals, counts }, thread))
    }

    /// Delivers readings and waits until they are stored.
    pub async fn deliver(
        &self,
        origin: impl Into<Origin>,
        source: Arc<Source>,
        readings: Vec<NodeReading>,
    ) -> Result<(), NotTaken> {
        let (done, stored) = oneshot::channel();
        let arrival = Arrival { origin: origin.into(), source, readings, done };
        self.arrivals.try_send(arrival).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotTaken::Busy,
            mpsc::error::TrySendError::Closed(_) => NotTaken::Stopping,
        })?;
        let waiting = self.arrivals.max_capacity() - self.arrivals.capacity();
        self.counts.waiting_arrivals.store(waiting as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(stored.await.map_err(|_| NotTaken::Stopping)??)
    }
}

/// The source of the writer itself; every delivery names its own.
fn own_source() -> Source {
    Source {
        origin: "tracewise serve".into(),
        measure: workload::Measure::Counter,
        ticks_per_second: 100,
        modes: workload::ModeSet::ALL,
        period: Millis::SECOND,
    }
}

struct Storing {
    writer: archive::Writer,
    owners: BTreeMap<NodeName, Owned>,
    scoring: std::sync::mpsc::SyncSender<Vec<Stored>>,
    counts: Arc<Counts>,
}

/// The origin that a node belongs to.
struct Owned {
    origin: Origin,
    at: Instant,
    /// Its last reading.
    last: Timestamp,
    /// When another origin was reported.
    reported: Option<Instant>,
}

impl Storing {
    fn run(&mut self, mut waiting: mpsc::Receiver<Arrival>) {
        while let Some(first) = waiting.blocking_recv() {
            let mut group = vec![first];
            let mut n_readings = group[0].readings.len();
            while n_readings < MAX_GROUP
                && let Ok(next) = waiting.try_recv()
            {
                n_readings += next.readings.len();
                group.push(next);
            }
            self.store(group);
        }
    }

    /// Stores deliveries together and acknowledges each.
    fn store(&mut self, mut group: Vec<Arrival>) {
        let begin = Instant::now();
        let latest = Timestamp::from(SystemTime::now()) + MAX_AHEAD;
        for arrival in &mut group {
            let origin = arrival.origin.clone();
            self.counts.receive(origin.input, arrival.readings.len() as u64);
            arrival.readings.retain(|reading| self.is_wanted(reading, &origin, latest));
        }
        let parts: Vec<(&Source, &[NodeReading])> = group
            .iter()
            .filter(|arrival| !arrival.readings.is_empty())
            .map(|arrival| (&*arrival.source, &arrival.readings[..]))
            .collect();
        let stored = match parts.is_empty() {
            true => Ok(()),
            false => self.writer.append_groups(&parts).map_err(|error| StoreFailed(error.to_string())),
        };
        self.counts.spend(Stage::Store, begin.elapsed());
        for arrival in group {
            let _ = arrival.done.send(stored.clone());
            if stored.is_ok() && !arrival.readings.is_empty() {
                let scale = Scale::from(&*arrival.source);
                let readings = arrival.readings.into_iter().map(|reading| (reading, scale)).collect();
                // Scoring has ended: the service is stopping.
                let _ = self.scoring.send(readings);
            }
        }
        if let Err(error) = stored {
            tracing::error!("{error}");
        }
    }

    /// Whether a reading is new, of the origin that its node belongs to, and not later than `latest`.
    fn is_wanted(&mut self, reading: &NodeReading, origin: &Origin, latest: Timestamp) -> bool {
        if archive::Writer::check(reading).is_err() || reading.time > latest {
            self.counts.ignore(Ignored::Time, 1);
            return false;
        }
        let owned = self.owners.entry(reading.node.clone()).or_insert_with(|| Owned {
            origin: origin.clone(),
            at: Instant::now(),
            last: Timestamp::MIN,
            reported: None,
        });
        if owned.origin != *origin {
            if owned.at.elapsed() < OWNED_FOR {
                self.counts.ignore(Ignored::OtherInput, 1);
                if owned.reported.is_none_or(|at| at.elapsed() > OWNED_FOR) {
                    owned.reported = Some(Instant::now());
                    let (node, used) = (&reading.node, &owned.origin);
                    tracing::warn!("{node} comes from {used} and from {origin}; only {used} is used");
                }
                return false;
            }
            tracing::info!("{} is now read through {origin}", reading.node);
            owned.origin = origin.clone();
        }
        if reading.time == owned.last {
            self.counts.ignore(Ignored::Duplicate, 1);
            return false;
        }
        (owned.at, owned.last) = (Instant::now(), reading.time);
        true
    }
}
