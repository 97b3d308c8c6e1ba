//! Live writing: readings are acknowledged when they are in the journal, and move to Parquet in the
//! background, an hour at a time.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use workload::{NodeReading, Source};

use crate::error::{Error, Result};
use crate::journal::{self, Ending, Journal, SegmentIndex};
use crate::layout::{check_node, check_time};
use crate::spool::Spool;
use crate::stage::prepare_segment;
use crate::store::{Store, create_folders};

/// When a segment of the journal is turned into Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterSettings {
    /// The size at which a segment is closed.
    pub segment_bytes: u64,
    /// The age at which a segment is closed.
    pub segment_length: Duration,
}

impl Default for WriterSettings {
    fn default() -> Self {
        Self { segment_bytes: 256 << 20, segment_length: Duration::from_secs(3_600) }
    }
}

/// Takes readings from one process at a time.
pub struct Writer {
    source: Source,
    settings: WriterSettings,
    journal: Journal,
    flusher: Option<Flusher>,
    _lock: File,
}

struct Flusher {
    closed: Sender<PathBuf>,
    thread: JoinHandle<Result<()>>,
}

impl Writer {
    /// Opens the archive for readings of one source. What an earlier writer left in the journal
    /// is turned into Parquet in the background.
    pub(crate) fn open(store: Store, spool: Spool, source: Source, settings: WriterSettings) -> Result<Self> {
        let folder = spool.journal();
        create_folders(&folder)?;
        let lock = lock(&folder.join("lock"))?;
        let (closed, segments) = channel();
        for segment in journal::segments(&folder)? {
            let _ = closed.send(segment);
        }
        let thread = std::thread::Builder::new()
            .name("archive-flush".into())
            .spawn(move || flush_all(&store, &spool, &segments))
            .map_err(Error::io(&folder))?;
        let flusher = Some(Flusher { closed, thread });
        Ok(Self { source, settings, journal: Journal::new(folder)?, flusher, _lock: lock })
    }

    /// Accepts readings. When this returns they survive a crash; after an error none was
    /// accepted, and the same readings may be offered again.
    pub fn append(&mut self, readings: &[NodeReading]) -> Result<()> {
        for reading in readings {
            check_node(&reading.node)?;
            check_time(&reading.node, reading.time)?;
        }
        let is_old = self.journal.age().is_some_and(|age| age >= self.settings.segment_length);
        if is_old || self.journal.bytes() >= self.settings.segment_bytes {
            self.end_segment();
        }
        self.journal.append(readings, &self.source).inspect_err(|_| self.end_segment())
    }

    fn end_segment(&mut self) {
        if let (Some(segment), Some(flusher)) = (self.journal.close(), &self.flusher) {
            // If the flusher is gone, the segment stays in the journal, and is read from there.
            let _ = flusher.closed.send(segment);
        }
    }

    /// Turns everything into Parquet and ends.
    pub fn close(mut self) -> Result<()> {
        self.end_segment();
        let Some(flusher) = self.flusher.take() else { return Ok(()) };
        drop(flusher.closed);
        flusher.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).map_err(Error::io(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(Error::io(path)(error)),
    }
}

/// Flushes segments as they are closed. One that fails, for want of space or of a network, is tried
/// again with the next, and so are those after it; until then their readings stay in the journal.
fn flush_all(store: &Store, spool: &Spool, closed: &Receiver<PathBuf>) -> Result<()> {
    let mut waiting: VecDeque<PathBuf> = VecDeque::new();
    let mut outcome = Ok(());
    while let Ok(segment) = closed.recv() {
        waiting.push_back(segment);
        // A set that was committed and not published would be prepared again with every try.
        outcome = spool.recover(store);
        while let (Ok(()), Some(segment)) = (&outcome, waiting.front()) {
            outcome = flush_segment(store, spool, segment);
            if outcome.is_ok() {
                waiting.pop_front();
            }
        }
        if let Err(error) = &outcome {
            tracing::warn!("readings stay in the journal: {error}");
        }
    }
    outcome
}

/// Turns one segment into Parquet. Done twice, after a crash, it gives the same files.
fn flush_segment(store: &Store, spool: &Spool, path: &Path) -> Result<()> {
    let index = match SegmentIndex::read(path) {
        Err(error @ Error::Damaged { .. }) => return set_aside(path, &error.to_string()),
        read => read?,
    };
    let set = spool.stage()?;
    prepare_segment(&set, &index, store.stop())?;
    if !set.is_empty() {
        set.commit(store)?;
    }
    match index.ending {
        Ending::Damaged { offset } => set_aside(path, &format!("a record at byte {offset} is damaged")),
        Ending::Whole | Ending::Torn { .. } => fs::remove_file(path).map_err(Error::io(path)),
    }
}

fn set_aside(path: &Path, reason: &str) -> Result<()> {
    let aside = path.with_extension("damaged");
    tracing::warn!("{} is kept as {}: {reason}", path.display(), aside.display());
    fs::rename(path, &aside).map_err(Error::io(&aside))
}
