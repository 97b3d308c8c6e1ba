//! Live writing: readings are acknowledged when they are in the journal, and move to Parquet in the
//! background, an hour at a time.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use workload::{NodeReading, Source};

use crate::error::{Error, Result};
use crate::journal::{Journal, JournalFiles};
use crate::layout::{check_node, check_time};
use crate::segment::SegmentIndex;
use crate::spool::Spool;
use crate::stage::prepare_segment;
use crate::store::Store;

/// How long to wait for a lock that another holds.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait before segments that could not be flushed are tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

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
        files::create_dirs(&folder)?;
        let lock = lock(&folder.join("lock"))?;
        let (closed, segments) = channel();
        for segment in JournalFiles::list(&folder)?.segments {
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
        let source = self.source.clone();
        self.append_groups(&[(&source, readings)])
    }

    /// The same for readings of several sources, which are accepted together.
    pub fn append_groups(&mut self, groups: &[(&Source, &[NodeReading])]) -> Result<()> {
        groups.iter().flat_map(|(_, readings)| *readings).try_for_each(Self::check)?;
        let is_old = self.journal.age().is_some_and(|age| age >= self.settings.segment_length);
        if is_old || self.journal.bytes() >= self.settings.segment_bytes {
            self.end_segment();
        }
        self.journal.append(groups).inspect_err(|_| self.end_segment())
    }

    /// Rejects a reading that no archive can hold.
    pub fn check(reading: &NodeReading) -> Result<()> {
        check_node(&reading.node)?;
        check_time(&reading.node, reading.time)
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
        self.join_flusher()
    }

    /// Waits until the segments that were closed are flushed.
    fn join_flusher(&mut self) -> Result<()> {
        let Some(flusher) = self.flusher.take() else { return Ok(()) };
        drop(flusher.closed);
        flusher.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Writer {
    /// The lock is released when nothing is flushed any more. What is in the journal stays there.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // The flusher has warned of its errors.
            let _ = self.join_flusher();
        }
    }
}

fn lock(path: &Path) -> Result<File> {
    let file = files::open_lock(path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // The process before may be about to end.
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_PATIENCE / 20);
            }
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(Error::io(path)(error)),
        }
    }
}

/// Flushes segments as they are closed. One that fails, for want of space or of a network, is tried
/// again after a while, and so are those after it; until then their readings stay in the journal.
fn flush_all(store: &Store, spool: &Spool, closed: &Receiver<PathBuf>) -> Result<()> {
    let mut waiting: VecDeque<PathBuf> = VecDeque::new();
    let mut outcome = Ok(());
    loop {
        let received = match waiting.is_empty() {
            true => closed.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => closed.recv_timeout(RETRY_INTERVAL),
        };
        match received {
            Ok(segment) => waiting.push_back(segment),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return outcome,
        }
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
}

/// Turns one segment into Parquet. Done twice, after a crash, it gives the same files. Bytes that cannot
/// be read are kept beside the journal.
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
    let damage = index.damage();
    if !damage.is_empty() {
        return set_aside(path, &damage.join("; "));
    }
    if let Some(tail) = index.cut_off() {
        keep_tail(path, tail.offset)?;
    }
    fs::remove_file(path).map_err(Error::io(path))
}

fn set_aside(path: &Path, reason: &str) -> Result<()> {
    let aside = path.with_extension("damaged");
    tracing::warn!("{} is kept as {}: {reason}", path.display(), aside.display());
    fs::rename(path, &aside).map_err(Error::io(&aside))
}

/// Keeps the end of a segment that is not a whole record: it may be damage as well as a write that was
/// cut short.
fn keep_tail(path: &Path, offset: u64) -> Result<()> {
    let aside = path.with_extension("tail");
    let read = || -> std::io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let mut tail = vec![0; file.metadata()?.len().saturating_sub(offset) as usize];
        file.read_exact_at(&mut tail, offset)?;
        Ok(tail)
    };
    let tail = read().map_err(Error::io(path))?;
    tracing::warn!("the last {} bytes of {} are kept as {}", tail.len(), path.display(), aside.display());
    Ok(files::write(&aside, &tail)?)
}
