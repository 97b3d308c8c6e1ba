//! The live way in: readings are acknowledged when they are in the journal, and move to
//! Parquet in the background, an hour at a time.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rayon::prelude::*;
use ulid::Ulid;
use workload::{Millis, NodeReading, Source};

use crate::error::{Error, Result};
use crate::journal::{self, Ending, Journal, SegmentIndex};
use crate::layout::is_storable;
use crate::spool::{Spool, StagedSet};
use crate::stage::prepare_rows;
use crate::store::{Store, create_folders};

/// When a segment of the journal is turned into Parquet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterSettings {
    pub segment_bytes: u64,
    pub segment_length: Millis,
}

impl Default for WriterSettings {
    fn default() -> Self {
        Self { segment_bytes: 256 << 20, segment_length: Millis::HOUR }
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
    closed: SyncSender<PathBuf>,
    thread: JoinHandle<Result<()>>,
}

impl Writer {
    /// Opens the archive for readings of one source. What an earlier writer left in the journal
    /// is turned into Parquet first.
    pub(crate) fn open(store: Store, spool: Spool, source: Source, settings: WriterSettings) -> Result<Self> {
        let folder = spool.journal();
        create_folders(&folder)?;
        let lock = lock(&folder.join("lock"))?;
        for segment in journal::segments(&folder)? {
            flush_segment(&store, &spool, &segment)?;
        }
        let (closed, segments) = sync_channel(1);
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
        let Some(newest) = readings.last() else { return Ok(()) };
        if let Some(strange) = readings.iter().find(|reading| !is_storable(reading.time)) {
            return Err(Error::Time { node: strange.node.to_string(), time: strange.time.0 });
        }
        let is_due = self.journal.bytes() >= self.settings.segment_bytes
            || self.journal.first().is_some_and(|first| {
                first.floor(self.settings.segment_length) != newest.time.floor(self.settings.segment_length)
            });
        if is_due {
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

/// Flushes segments as they are closed. One that fails, for want of space say, is tried again
/// with the next; until then its readings stay in the journal.
fn flush_all(store: &Store, spool: &Spool, closed: &Receiver<PathBuf>) -> Result<()> {
    let mut waiting: Vec<PathBuf> = Vec::new();
    let mut outcome = Ok(());
    while let Ok(segment) = closed.recv() {
        waiting.push(segment);
        outcome = Ok(());
        waiting.retain(|segment| match flush_segment(store, spool, segment) {
            Ok(()) => false,
            Err(error) => {
                tracing::warn!("readings stay in the journal for now: {error}");
                outcome = Err(error);
                true
            }
        });
    }
    outcome
}

/// Turns one segment into Parquet. Done twice, after a crash, it gives the same files.
fn flush_segment(store: &Store, spool: &Spool, path: &Path) -> Result<()> {
    let index = SegmentIndex::read(path)?;
    let set = spool.stage()?;
    prepare_segment(&index, &set)?;
    if !set.is_empty() {
        set.commit(store)?;
    }
    match index.ending {
        Ending::Damaged { offset } => {
            let aside = path.with_extension("damaged");
            tracing::warn!(
                "{} is damaged at byte {offset}; what follows is kept as {}",
                path.display(),
                aside.display()
            );
            fs::rename(path, &aside).map_err(Error::io(&aside))
        }
        Ending::Whole | Ending::Torn { .. } => fs::remove_file(path).map_err(Error::io(path)),
    }
}

/// The files of a segment have ids that follow from the segment's own, so that a flush which is
/// repeated names them as before.
fn prepare_segment(index: &SegmentIndex, set: &StagedSet) -> Result<()> {
    let nodes: Vec<_> = index.nodes().cloned().collect();
    nodes.par_iter().try_for_each(|node| {
        for (number, (source, threads, jobs)) in index.read_node(node)?.into_iter().enumerate() {
            let id = Ulid(index.id.0.wrapping_add(number as u128));
            prepare_rows(set, node, &source, id, threads, jobs)?;
        }
        Ok(())
    })
}
