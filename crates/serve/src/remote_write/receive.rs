//! Receives requests: checks them, logs them, and passes the readings they contain to the archive.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use remote_write::{TimeSeries, Version, v1, v2};
use tokio::sync::oneshot;
use workload::{NodeName, Timestamp};

use super::assemble::{Assembled, Assembler};
use super::meaning::Meaning;
use super::request_log::{Logged, RequestLog};
use crate::counts::{Counts, Input};
use crate::error::ServeError;
use crate::ingest::{Ingest, MAX_AHEAD, NotTaken, by_source};

/// Requests that may wait. More are refused with 503, and senders try again.
const MAX_WAITING: usize = 256;
/// Requests that are written with one synchronisation of the disk.
const MAX_GROUP: usize = 64;
const TICK: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a request contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    pub n_samples: u64,
    pub n_histograms: u64,
    pub n_exemplars: u64,
    /// Samples and series that are refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// A node that the sender may not write.
    pub foreign_node: Option<NodeName>,
}

/// Checks a whole request. An error means that nothing of it can be used.
pub fn check(version: Version, body: &[u8], nodes: &[NodeName]) -> Result<Checked, String> {
    let mut checked = Checked::default();
    let latest = Timestamp::from(SystemTime::now()) + MAX_AHEAD;
    match version {
        Version::One => {
            for series in v1::series(body) {
                let series = series.map_err(|error| error.to_string())?;
                check_series(&series, latest, nodes, &mut checked)?;
            }
        }
        Version::Two => {
            let mut symbols = Vec::new();
            let request = v2::Request::parse(body, &mut symbols).map_err(|error| error.to_string())?;
            for series in request.series() {
                match series {
                    Ok(series) => check_series(&series, latest, nodes, &mut checked)?,
                    Err(error) => *checked.refused.entry(error.to_string()).or_default() += 1,
                }
            }
        }
    }
    Ok(checked)
}

fn check_series<'a>(
    series: &impl TimeSeries<'a>,
    latest: Timestamp,
    nodes: &[NodeName],
    checked: &mut Checked,
) -> Result<(), String> {
    for label in series.labels() {
        label.map_err(|error| error.to_string())?;
    }
    if !nodes.is_empty() {
        let meaning = Meaning::of(series.labels().flatten());
        if let Some(node) = meaning.node().filter(|node| !nodes.contains(node)) {
            checked.foreign_node = Some(node.clone());
        }
    }
    for sample in series.samples() {
        let sample = sample.map_err(|error| error.to_string())?;
        if Timestamp(sample.timestamp) > latest {
            *checked.refused.entry("samples more than ten minutes in the future".into()).or_default() += 1;
        } else {
            checked.n_samples += 1;
        }
    }
    checked.n_histograms += series.n_histograms() as u64;
    checked.n_exemplars += series.n_exemplars() as u64;
    Ok(())
}

struct Waiting {
    request: Logged,
    decoded: Vec<u8>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Why a request was not taken; its sender should try again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct NotReceived(String);

/// Where requests go.
#[derive(Debug)]
pub struct Receiving {
    /// Absent when the service is stopping.
    waiting: Mutex<Option<SyncSender<Waiting>>>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl Receiving {
    /// Starts the thread that logs and assembles. It ends after [`close`](Self::close).
    pub fn start(
        folder: PathBuf,
        archived: BTreeMap<NodeName, Timestamp>,
        ingest: Ingest,
        counts: Arc<Counts>,
        runtime: tokio::runtime::Handle,
    ) -> Result<(Self, std::thread::JoinHandle<()>), ServeError> {
        files::create_dirs(&folder)?;
        let opened = RequestLog::open(folder.clone());
        let (log, unfinished) = opened.map_err(|source| ServeError::File { path: folder, source })?;
        let (waiting, requests) = sync_channel(MAX_WAITING);
        let mut thread = Assembling {
            log,
            assembler: Assembler::after(archived),
            ingest,
            counts,
            runtime,
            pending: Vec::new(),
        };
        let work = move || {
            for Logged { version, encoding, body } in unfinished {
                if let Ok(decoded) = encoding.decode(&body) {
                    thread.assemble(version, &decoded);
                }
            }
            thread.run(&requests);
        };
        let thread = std::thread::Builder::new().name("remote-write".into()).spawn(work);
        Ok((Self { waiting: Mutex::new(Some(waiting)) }, thread.map_err(ServeError::Thread)?))
    }

    /// Takes no more requests.
    pub fn close(&self) {
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn waiting(&self) -> Option<SyncSender<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a request that was checked; returns when it survives a crash.
    pub async fn take(&self, request: Logged, decoded: Vec<u8>) -> Result<(), NotReceived> {
        let stopping = || NotReceived("the service is stopping".into());
        let (done, taken) = oneshot::channel();
        let waiting = self.waiting().ok_or_else(stopping)?;
        waiting.try_send(Waiting { request, decoded, done }).map_err(|error| match error {
            TrySendError::Full(_) => NotReceived("too many requests are waiting".into()),
            TrySendError::Disconnected(_) => stopping(),
        })?;
        drop(waiting);
        taken.await.map_err(|_| stopping())?.map_err(NotReceived)
    }
}

/// Logs requests and assembles readings.
struct Assembling {
    log: RequestLog,
    assembler: Assembler,
    ingest: Ingest,
    counts: Arc<Counts>,
    runtime: tokio::runtime::Handle,
    /// Readings that the archive has not taken yet.
    pending: Vec<Assembled>,
}

impl Assembling {
    fn run(&mut self, requests: &Receiver<Waiting>) {
        loop {
            let mut group = match requests.recv_timeout(TICK) {
                Ok(first) => vec![first],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            group.extend(requests.try_iter().take(MAX_GROUP));
            if !group.is_empty() {
                let logged =
                    self.log.append(group.iter().map(|one| &one.request)).map_err(|error| error.to_string());
                if let Err(error) = &logged {
                    tracing::error!("remote write: {error}");
                }
                for Waiting { request, decoded, done } in group {
                    if logged.is_ok() {
                        self.assemble(request.version, &decoded);
                    }
                    let _ = done.send(logged.clone());
                }
            }
            self.deliver();
            if self.pending.is_empty() {
                self.log.clean();
            }
        }
        self.deliver();
    }

    /// Gives the samples of a request to the assembler.
    fn assemble(&mut self, version: Version, decoded: &[u8]) {
        match version {
            Version::One => {
                for series in v1::series(decoded).flatten() {
                    // Damage was found before.
                    let _ = self.assembler.push(&series);
                }
            }
            Version::Two => {
                let mut symbols = Vec::new();
                let Ok(request) = v2::Request::parse(decoded, &mut symbols) else { return };
                for series in request.series().flatten() {
                    let _ = self.assembler.push(&series);
                }
            }
        }
        for (reason, amount) in self.assembler.take_ignored() {
            self.counts.ignore(reason, amount);
        }
    }

    /// Passes readings that are complete to the archive. Those that it does not take wait.
    fn deliver(&mut self) {
        self.pending.extend(self.assembler.complete());
        let pending = std::mem::take(&mut self.pending);
        for (source, readings) in by_source(pending) {
            let delivered = self.runtime.block_on(self.ingest.deliver(
                Input::RemoteWrite,
                source.clone(),
                readings.clone(),
            ));
            match delivered {
                Ok(()) => {}
                Err(NotTaken::Stopping) => return,
                Err(error) => {
                    tracing::warn!("readings wait: {error}");
                    self.pending.extend(readings.into_iter().map(|reading| (source.clone(), reading)));
                    std::thread::sleep(RETRY_AFTER);
                }
            }
        }
    }
}
