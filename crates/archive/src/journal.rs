//! The journal keeps readings safe until they are in Parquet.
//!
//! A segment is a file of records, each with its length and checksum. What [`Journal::append`]
//! has returned from is on stable storage. Records are differences to earlier ones, so every minute a
//! new block begins, which needs nothing of what is before it: damage costs at most the rest of its
//! block. [`segment`](crate::segment) reads segments.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ulid::Ulid;
use workload::codec::Encoder;
use workload::{NodeReading, Source};

use crate::error::{Error, Result};
use crate::layout::next_id;

/// The first bytes of a segment; the last of them is the version.
pub const MAGIC: &[u8; 8] = b"TWJRNL\0\x04";
/// What comes before the first record of a block.
pub const BLOCK_MARK: &[u8; 8] = b"\xd7TWBLOCK";
/// Length and checksum of a record.
pub const HEADER: usize = 8;
/// How long records refer to earlier ones.
const BLOCK_LENGTH: Duration = Duration::from_secs(60);
/// How much is buffered before it is written.
const BUFFER: usize = 1 << 20;

/// The segment that is being written.
pub struct Journal {
    folder: PathBuf,
    open: Option<OpenSegment>,
    buffer: Vec<u8>,
    block_length: Duration,
}

struct OpenSegment {
    path: PathBuf,
    file: File,
    encoder: Encoder,
    /// When the current block began, if one has.
    block_begun: Option<Instant>,
    /// Everything before this was written, and is on stable storage if that was asked for.
    durable: u64,
    begun: Instant,
}

impl Journal {
    pub fn new(folder: PathBuf) -> Result<Self> {
        files::create_dirs(&folder)?;
        Ok(Self { folder, open: None, buffer: Vec::new(), block_length: BLOCK_LENGTH })
    }

    /// Bytes in the current segment.
    pub fn bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |segment| segment.durable)
    }

    /// How long ago the current segment was begun.
    pub fn age(&self) -> Option<Duration> {
        self.open.as_ref().map(|segment| segment.begun.elapsed())
    }

    /// Adds readings; when this returns they survive a crash. After an error none of them is
    /// accepted, and the caller has to [`close`](Self::close) this segment before it tries again.
    pub fn append(&mut self, groups: &[(&Source, &[NodeReading])]) -> Result<()> {
        for (source, readings) in groups {
            readings.iter().try_for_each(|reading| self.encode(reading, source))?;
        }
        self.write(true)
    }

    /// Adds a reading of something that can be read again, so that it need not survive a crash.
    pub fn append_buffered(&mut self, reading: &NodeReading, source: &Source) -> Result<()> {
        self.encode(reading, source)?;
        if self.buffer.len() >= BUFFER { self.write(false) } else { Ok(()) }
    }

    fn encode(&mut self, reading: &NodeReading, source: &Source) -> Result<()> {
        let segment = match &mut self.open {
            Some(segment) => segment,
            None => self.open.insert(OpenSegment::create(&self.folder)?),
        };
        if segment.block_begun.is_none_or(|begun| begun.elapsed() >= self.block_length) {
            segment.block_begun = Some(Instant::now());
            segment.encoder = Encoder::default();
            self.buffer.extend_from_slice(BLOCK_MARK);
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; HEADER]);
        segment.encoder.encode(reading, source, &mut self.buffer);
        let (header, payload) = self.buffer[start..].split_at_mut(HEADER);
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        Ok(())
    }

    fn write(&mut self, durably: bool) -> Result<()> {
        let Some(segment) = &mut self.open else { return Ok(()) };
        let written = segment.file.write_all(&self.buffer);
        let written = if durably { written.and_then(|()| segment.file.sync_data()) } else { written };
        let n_bytes = self.buffer.len() as u64;
        self.buffer.clear();
        written.map_err(|error| {
            // What the kernel did with the failed write is unknown, so it is cut off, and the file
            // is not written to again.
            let _ = segment.file.set_len(segment.durable);
            let _ = segment.file.sync_all();
            Error::io(&segment.path)(error)
        })?;
        segment.durable += n_bytes;
        Ok(())
    }

    /// Writes what is buffered, and ends the segment.
    pub fn finish(&mut self) -> Result<Option<PathBuf>> {
        self.write(false)?;
        Ok(self.close())
    }

    /// Ends the current segment; the next reading begins another.
    pub fn close(&mut self) -> Option<PathBuf> {
        self.open.take().map(|segment| segment.path)
    }
}

impl OpenSegment {
    fn create(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{}.log", next_id()));
        let create = || -> Result<File> {
            let mut file = files::create_new(&path)?;
            file.write_all(MAGIC).and_then(|()| file.sync_all()).map_err(Error::io(&path))?;
            files::sync_dir(folder)?;
            Ok(file)
        };
        match create() {
            Ok(file) => Ok(Self {
                path,
                file,
                encoder: Encoder::default(),
                block_begun: None,
                durable: MAGIC.len() as u64,
                begun: Instant::now(),
            }),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }
}

/// What lies in a journal directory.
#[derive(Debug, Default)]
pub struct JournalFiles {
    /// Oldest first.
    pub segments: Vec<PathBuf>,
    /// Segments, and ends of segments, that were set aside because they could not be read.
    pub set_aside: Vec<PathBuf>,
    /// Files that look like segments and have another name.
    pub strays: Vec<PathBuf>,
}

impl JournalFiles {
    pub fn list(folder: &Path) -> Result<Self> {
        let mut found = Self::default();
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(Error::io(folder)(error)),
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("log") if is_file && segment_id(&path).is_some() => found.segments.push(path),
                Some("log") => found.strays.push(path),
                Some("damaged" | "tail") => found.set_aside.push(path),
                _ => {}
            }
        }
        [&mut found.segments, &mut found.set_aside, &mut found.strays]
            .into_iter()
            .for_each(|list| list.sort());
        Ok(found)
    }
}

/// The id of a segment, from its name.
pub fn segment_id(path: &Path) -> Option<Ulid> {
    Ulid::from_string(path.file_stem()?.to_str()?).ok()
}

#[cfg(test)]
pub mod testing {
    use super::*;
    use workload::{Cpu, Measure, Millis, ModeSet, NodeName, Owner, ThreadReading, Ticks, Timestamp};

    fn reading(second: i64) -> NodeReading {
        let thread = ThreadReading { cpu: Cpu(0), ticks: Ticks([second as u64; 8]), owner: Owner::Nobody };
        NodeReading {
            node: NodeName::new(if second % 2 == 0 { "n1" } else { "n2" }).unwrap(),
            time: Timestamp::from_seconds(second),
            threads: vec![thread],
            jobs: Vec::new(),
        }
    }

    /// A segment of `n_readings`, with a new block before each multiple of `per_block`, and where each
    /// record ends.
    pub fn segment(folder: &Path, n_readings: i64, per_block: i64) -> (PathBuf, Vec<u64>) {
        let source = Source {
            origin: "test".into(),
            measure: Measure::Counter,
            ticks_per_second: 100,
            modes: ModeSet::ALL,
            period: Millis::SECOND,
        };
        let mut journal = Journal::new(folder.to_owned()).unwrap();
        let ends = (0..n_readings).map(|second| {
            journal.block_length = if second % per_block == 0 { Duration::ZERO } else { Duration::MAX };
            journal.append(&[(&source, &[reading(second)])]).unwrap();
            journal.bytes()
        });
        let ends = ends.collect();
        (journal.close().unwrap(), ends)
    }
}
