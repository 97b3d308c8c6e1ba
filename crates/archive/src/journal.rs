//! The journal keeps readings safe until they are in Parquet.
//!
//! A segment is a file of records, each with its length and checksum. What [`Journal::append`]
//! has returned from is on stable storage. A record that a crash cut short was never
//! acknowledged, and reading stops before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ulid::Ulid;
use workload::codec::{Cursor, Encoder, Names, NodeDecoder};
use workload::derive::Scale;
use workload::{NodeName, NodeReading, Source, Timestamp};

use crate::error::{Error, Result};
use crate::layout::next_id;
use crate::rows::{JobRows, ThreadRows};
use crate::store::{create_folders, sync_folder};

/// The first bytes of a segment; the last of them is the version. The first version is read as well.
const MAGIC: &[u8; 8] = b"TWJRNL\0\x02";
const FIRST_MAGIC: &[u8; 8] = b"TWJRNL\0\x01";
const HEADER: usize = 8;
const MAX_RECORD: usize = 1 << 30;
/// How much is buffered before it is written.
const BUFFER: usize = 1 << 20;

/// The segment that is being written.
pub struct Journal {
    folder: PathBuf,
    open: Option<OpenSegment>,
    buffer: Vec<u8>,
}

struct OpenSegment {
    path: PathBuf,
    file: File,
    encoder: Encoder,
    /// Everything before this was written, and is on stable storage if that was asked for.
    durable: u64,
    begun: Instant,
}

impl Journal {
    pub fn new(folder: PathBuf) -> Result<Self> {
        create_folders(&folder)?;
        Ok(Self { folder, open: None, buffer: Vec::new() })
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
    pub fn append(&mut self, readings: &[NodeReading], source: &Source) -> Result<()> {
        readings.iter().try_for_each(|reading| self.encode(reading, source))?;
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
        let create = || -> io::Result<File> {
            let mut file = File::create_new(&path)?;
            file.write_all(MAGIC)?;
            file.sync_all()?;
            Ok(file)
        };
        match create().map_err(Error::io(&path)).and_then(|file| sync_folder(folder).map(|()| file)) {
            Ok(file) => Ok(Self {
                path,
                file,
                encoder: Encoder::default(),
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

/// The segments in a journal directory, oldest first.
pub fn segments(folder: &Path) -> Result<Vec<PathBuf>> {
    with_extension(folder, "log")
}

/// Segments that were set aside because they are damaged.
pub fn damaged(folder: &Path) -> Result<Vec<PathBuf>> {
    with_extension(folder, "damaged")
}

fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(folder)(error)),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Where the part of a record after its opening lies.
#[derive(Debug, Clone, Copy)]
struct RecordPlace {
    offset: u64,
    length: u32,
    source: u32,
    time: Timestamp,
}

/// How a segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Whole,
    /// A write was cut short: nothing that was acknowledged.
    Torn {
        bytes: u64,
    },
    /// A record in the middle is damaged, and others follow it.
    Damaged {
        offset: u64,
    },
}

/// Where the records of each node lie in a segment.
#[derive(Debug)]
pub struct SegmentIndex {
    pub path: PathBuf,
    pub id: Ulid,
    pub ending: Ending,
    file: File,
    names: Names,
    records: BTreeMap<NodeName, Vec<RecordPlace>>,
}

impl SegmentIndex {
    pub fn read(path: &Path) -> Result<Self> {
        let damaged = |reason: &str| Error::damaged(&path.to_string_lossy(), reason);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let id = Ulid::from_string(&stem).map_err(|_| damaged("its name is not that of a segment"))?;
        let file = File::open(path).map_err(Error::io(path))?;
        let length = file.metadata().map_err(Error::io(path))?.len();
        let mut index = Self {
            path: path.to_owned(),
            id,
            ending: Ending::Whole,
            file,
            names: Names::default(),
            records: BTreeMap::new(),
        };
        let mut reader = Reader { file: &index.file, length, at: 0, window: Vec::new(), window_at: 0 };
        let magic = reader.bytes(0, MAGIC.len() as u64).map_err(Error::io(path))?;
        if magic.is_none_or(|found| found != MAGIC && found != FIRST_MAGIC) {
            // A crash while the segment was created; it never held anything.
            index.ending = Ending::Torn { bytes: length };
            return if length < MAGIC.len() as u64 {
                Ok(index)
            } else {
                Err(damaged("it is not a journal of a version that this Tracewise reads"))
            };
        }
        reader.at = MAGIC.len() as u64;
        while reader.at < length {
            let at = reader.at;
            let opened = match reader.record(at).map_err(Error::io(path))? {
                Some(payload) => {
                    let end = at + (HEADER + payload.len()) as u64;
                    let mut body = Cursor(payload);
                    index.names.opening(&mut body).map(|opening| (opening, body.0.len() as u32, end))
                }
                None => None,
            };
            let Some((opening, length_of_body, end)) = opened else {
                index.ending = if reader.resumes_after(at).map_err(Error::io(path))? {
                    Ending::Damaged { offset: at }
                } else {
                    Ending::Torn { bytes: length - at }
                };
                break;
            };
            let place = RecordPlace {
                offset: end - u64::from(length_of_body),
                length: length_of_body,
                source: opening.source as u32,
                time: opening.time,
            };
            index.records.entry(index.names.nodes[opening.node].clone()).or_default().push(place);
            reader.at = end;
        }
        Ok(index)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.records.keys()
    }

    /// Where a node's readings come from.
    pub fn sources(&self, node: &NodeName) -> impl Iterator<Item = &Source> {
        let places = self.records.get(node).into_iter().flatten();
        let numbers: BTreeSet<u32> = places.map(|place| place.source).collect();
        numbers.into_iter().map(|number| self.names.sources[number as usize].as_ref())
    }

    /// First and last time of a node's readings.
    pub fn bounds(&self, node: &NodeName) -> Option<(Timestamp, Timestamp)> {
        let times = self.records.get(node)?.iter().map(|place| place.time);
        Some((times.clone().min()?, times.max()?))
    }

    /// A node's readings, by source, in the order in which they were written.
    pub fn read_node(&self, node: &NodeName) -> Result<Vec<NodeRows>> {
        let mut found = Vec::new();
        self.for_each_part(node, usize::MAX, |part| {
            found.push(part);
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits a node's readings in parts of one source and about `most` rows, in the order in which
    /// they were written.
    pub fn for_each_part(
        &self,
        node: &NodeName,
        most: usize,
        mut visit: impl FnMut(NodeRows) -> Result<()>,
    ) -> Result<()> {
        let mut open: BTreeMap<u32, NodeRows> = BTreeMap::new();
        let mut decoder = NodeDecoder::default();
        let mut body = Vec::new();
        for place in self.records.get(node).into_iter().flatten() {
            body.resize(place.length as usize, 0);
            self.file.read_exact_at(&mut body, place.offset).map_err(Error::io(&self.path))?;
            let (threads, jobs) = decoder.decode(&mut Cursor(&body)).ok_or_else(|| {
                let reason = format!("the record at byte {} cannot be decoded", place.offset);
                Error::damaged(&self.path.to_string_lossy(), reason)
            })?;
            let source = self.names.sources[place.source as usize].as_ref();
            let rows = open.entry(place.source).or_insert_with(|| NodeRows {
                source: source.clone(),
                threads: ThreadRows::default(),
                jobs: JobRows::default(),
            });
            threads.iter().for_each(|thread| rows.threads.push(place.time, thread, Scale::from(source)));
            rows.jobs.rows.extend(jobs.into_iter().map(|job| (place.time, job)));
            if rows.threads.len() >= most {
                open.remove(&place.source).map_or(Ok(()), &mut visit)?;
            }
        }
        open.into_values().try_for_each(visit)
    }
}

/// Readings of one node from one source.
#[derive(Debug, Clone)]
pub struct NodeRows {
    pub source: Source,
    pub threads: ThreadRows,
    pub jobs: JobRows,
}

/// Reads a segment from front to back through a window.
struct Reader<'a> {
    file: &'a File,
    length: u64,
    at: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Reader<'_> {
    /// `length` bytes at `at`, unless the file ends before.
    fn bytes(&mut self, at: u64, length: u64) -> io::Result<Option<&[u8]>> {
        if at + length > self.length {
            return Ok(None);
        }
        let inside = at >= self.window_at && at + length <= self.window_at + self.window.len() as u64;
        if !inside {
            let want = length.max(1 << 20).min(self.length - at);
            self.window.resize(want as usize, 0);
            self.window_at = at;
            self.file.read_exact_at(&mut self.window, at)?;
        }
        let start = (at - self.window_at) as usize;
        Ok(Some(&self.window[start..start + length as usize]))
    }

    /// The payload of the record at `at`, if there is a whole and undamaged one.
    fn record(&mut self, at: u64) -> io::Result<Option<&[u8]>> {
        let Some(header) = self.bytes(at, HEADER as u64)? else { return Ok(None) };
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, crc) = (number(0), number(4));
        if length == 0 || length as usize > MAX_RECORD {
            return Ok(None);
        }
        let payload = self.bytes(at + HEADER as u64, u64::from(length))?;
        Ok(payload.filter(|payload| crc32fast::hash(payload) == crc))
    }

    /// Whether an undamaged record begins anywhere after `at`.
    fn resumes_after(&mut self, at: u64) -> io::Result<bool> {
        for offset in at + 1..self.length.saturating_sub(HEADER as u64) {
            if self.record(offset)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workload::{Cpu, Measure, Millis, ModeSet, Owner, ThreadReading, Ticks};

    fn reading(second: i64) -> NodeReading {
        let thread = ThreadReading { cpu: Cpu(0), ticks: Ticks([second as u64; 8]), owner: Owner::Nobody };
        NodeReading {
            node: NodeName::new(if second % 2 == 0 { "n1" } else { "n2" }).unwrap(),
            time: Timestamp::from_seconds(second),
            threads: vec![thread],
            jobs: Vec::new(),
        }
    }

    /// A segment of `n_readings`, and where each record ends.
    fn segment(folder: &Path, n_readings: i64) -> (PathBuf, Vec<u64>) {
        let source = Source {
            origin: "test".into(),
            measure: Measure::Counter,
            ticks_per_second: 100,
            modes: ModeSet::ALL,
            period: Millis::SECOND,
        };
        let mut journal = Journal::new(folder.to_owned()).unwrap();
        let ends = (0..n_readings).map(|second| {
            journal.append(&[reading(second)], &source).unwrap();
            journal.bytes()
        });
        let ends = ends.collect();
        (journal.close().unwrap(), ends)
    }

    /// The seconds that can be read of a segment.
    fn seconds(path: &Path) -> Result<(Ending, BTreeSet<i64>)> {
        let index = SegmentIndex::read(path)?;
        let mut found = BTreeSet::new();
        for node in index.nodes() {
            for part in index.read_node(node)? {
                found.extend(part.threads.times.iter().map(|time| time / 1_000));
            }
        }
        Ok((index.ending, found))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_segment_that_is_cut_short_holds_every_record_before_the_cut(cut in 0u64..600) {
            let folder = tempfile::tempdir().unwrap();
            let (path, ends) = segment(folder.path(), 12);
            let length = cut.min(ends[ends.len() - 1]);
            File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            let (ending, found) = seconds(&path).unwrap();
            let n_whole = ends.iter().filter(|end| **end <= length).count() as i64;
            prop_assert_eq!(found, (0..n_whole).collect());
            let is_between_records = length == MAGIC.len() as u64 || ends.contains(&length);
            prop_assert_eq!(ending == Ending::Whole, is_between_records);
        }

        #[test]
        fn a_flipped_byte_loses_no_record_before_it_and_invents_none(at in 8usize..600, bit in 0u8..8) {
            let folder = tempfile::tempdir().unwrap();
            let (path, ends) = segment(folder.path(), 12);
            let mut bytes = fs::read(&path).unwrap();
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 1 << bit;
            fs::write(&path, bytes).unwrap();
            let (ending, found) = seconds(&path).unwrap();
            let n_before = ends.iter().filter(|end| **end <= at as u64).count() as i64;
            prop_assert_eq!(found, (0..n_before).collect());
            let is_last = n_before + 1 == ends.len() as i64;
            prop_assert!(matches!(ending, Ending::Damaged { .. }) || is_last, "{ending:?}");
        }

        #[test]
        fn no_bytes_make_it_panic(is_segment in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(format!("{}.log", next_id()));
            let head: &[u8] = if is_segment { MAGIC } else { b"" };
            fs::write(&path, [head, &bytes].concat()).unwrap();
            let _ = seconds(&path);
        }
    }
}
