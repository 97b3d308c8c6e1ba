//! Reads segments of the journal.
//!
//! Reading goes on after damage with the next block. Nothing is read past what a checksum covers, and the
//! search for the next block is bounded, so that no file can make it slow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ulid::Ulid;
use workload::codec::{Cursor, Names, NodeDecoder};
use workload::derive::Scale;
use workload::{Millis, NodeName, Source, Timestamp};

use crate::error::{Error, Result};
use crate::journal::{BLOCK_MARK, HEADER, MAGIC, segment_id};
use crate::layout::is_storable;
use crate::rows::{JobRows, ThreadRows};

/// The version before readings of jobs had CPU time. It is read in the same way.
const NO_CPU_TIME_MAGIC: &[u8; 8] = b"TWJRNL\0\x03";
/// Versions before blocks: one block, without a mark.
const OLD_MAGICS: [&[u8; 8]; 2] = [b"TWJRNL\0\x01", b"TWJRNL\0\x02"];
const MAX_RECORD_BYTES: u32 = 1 << 30;
/// How many sources the readings of a segment can have.
const MAX_SOURCES: usize = 4_096;
/// How much is read at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// What may be read, besides the length of the file, to find out whether marks begin blocks.
const SEARCH_BYTES: u64 = 64 << 20;
/// How many marks may not begin one.
const MAX_FALSE_MARKS: u32 = 1_000;

/// Where the part of a record after its opening lies.
#[derive(Debug, Clone, Copy)]
struct RecordPlace {
    offset: u64,
    length: u32,
    source: u32,
    block: u32,
    time: Timestamp,
}

/// Bytes of a segment that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub offset: u64,
    pub bytes: u64,
    /// The file ends before a record does: a write that was cut short looks like this, and was never
    /// acknowledged.
    pub is_cut_off: bool,
}

/// Where the records of each node lie in a segment.
#[derive(Debug)]
pub struct SegmentIndex {
    pub path: PathBuf,
    pub id: Ulid,
    /// In their order.
    pub gaps: Vec<Gap>,
    file: File,
    sources: Vec<Source>,
    records: BTreeMap<NodeName, Vec<RecordPlace>>,
    /// Records with a right checksum whose content could not be read.
    n_undecodable: AtomicU64,
}

impl SegmentIndex {
    pub fn read(path: &Path) -> Result<Self> {
        let damaged = |reason: &str| Error::damaged(&path.to_string_lossy(), reason);
        let id = segment_id(path).ok_or_else(|| damaged("its name is not that of a segment"))?;
        let file = File::open(path).map_err(Error::io(path))?;
        let length = file.metadata().map_err(Error::io(path))?.len();
        let mut index = Self {
            path: path.to_owned(),
            id,
            gaps: Vec::new(),
            file,
            sources: Vec::new(),
            records: BTreeMap::new(),
            n_undecodable: AtomicU64::new(0),
        };
        let mut reader = Reader::new(index.file.try_clone().map_err(Error::io(path))?, length);
        let magic = reader.bytes(0, MAGIC.len() as u64).map_err(Error::io(path))?;
        let has_blocks = magic.is_some_and(|found| found == MAGIC || found == NO_CPU_TIME_MAGIC);
        if !has_blocks && magic.is_none_or(|found| OLD_MAGICS.iter().all(|old| found != *old)) {
            // A crash while the segment was created; it never held anything.
            index.gaps.extend((length > 0).then_some(Gap { offset: 0, bytes: length, is_cut_off: true }));
            return if length < MAGIC.len() as u64 {
                Ok(index)
            } else {
                Err(damaged("it is not a journal of a version that this Tracewise reads"))
            };
        }
        index.read_records(&mut reader, has_blocks).map_err(Error::io(path))?;
        Ok(index)
    }

    fn read_records(&mut self, reader: &mut Reader, has_blocks: bool) -> io::Result<()> {
        let mut at = MAGIC.len() as u64;
        let mut block = BlockNames::default();
        while at < reader.length {
            let mark_length = BLOCK_MARK.len() as u64;
            if has_blocks && reader.bytes(at, mark_length)?.is_some_and(|found| found == BLOCK_MARK) {
                block = BlockNames { number: block.number + 1, ..BlockNames::default() };
                at += mark_length;
            }
            if let Some(payload) = reader.record(at)? {
                let body = Cursor(payload);
                let end = at + (HEADER + payload.len()) as u64;
                if let Some((node, place)) = block.place(body, end, &mut self.sources) {
                    self.records.entry(node).or_default().push(place);
                    at = end;
                    continue;
                }
            }
            let next = if has_blocks { reader.next_block(at)? } else { None };
            let end = next.unwrap_or(reader.length);
            let is_cut_off = next.is_none() && reader.is_cut_off(at)?;
            self.gaps.push(Gap { offset: at, bytes: end - at, is_cut_off });
            at = end;
        }
        Ok(())
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.records.keys()
    }

    /// Where a node's readings come from.
    pub fn sources(&self, node: &NodeName) -> impl Iterator<Item = &Source> {
        let places = self.records.get(node).into_iter().flatten();
        let numbers: BTreeSet<u32> = places.map(|place| place.source).collect();
        numbers.into_iter().map(|number| &self.sources[number as usize])
    }

    /// First and last time of a node's readings.
    pub fn bounds(&self, node: &NodeName) -> Option<(Timestamp, Timestamp)> {
        let times = self.records.get(node)?.iter().map(|place| place.time);
        Some((times.clone().min()?, times.max()?))
    }

    /// The hours in which a node was read.
    pub fn hours(&self, node: &NodeName) -> impl Iterator<Item = Timestamp> {
        let places = self.records.get(node).into_iter().flatten();
        places.map(|place| place.time.floor(Millis::HOUR))
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
    /// they were written. After a record that cannot be decoded, the rest of its block is left out.
    pub fn for_each_part(
        &self,
        node: &NodeName,
        most: usize,
        mut visit: impl FnMut(NodeRows) -> Result<()>,
    ) -> Result<()> {
        let mut open: BTreeMap<u32, NodeRows> = BTreeMap::new();
        let mut body = Vec::new();
        let places = self.records.get(node).map_or(&[][..], Vec::as_slice);
        for block in places.chunk_by(|a, b| a.block == b.block) {
            let mut decoder = NodeDecoder::default();
            for (n_before, place) in block.iter().enumerate() {
                body.resize(place.length as usize, 0);
                self.file.read_exact_at(&mut body, place.offset).map_err(Error::io(&self.path))?;
                let Some((threads, jobs)) = decoder.decode(&mut Cursor(&body)) else {
                    self.n_undecodable.fetch_add((block.len() - n_before) as u64, Ordering::Relaxed);
                    break;
                };
                let source = &self.sources[place.source as usize];
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
        }
        open.into_values().try_for_each(visit)
    }

    /// Damage, as far as nodes were read.
    pub fn damage(&self) -> Vec<String> {
        let gaps = self.gaps.iter().filter(|gap| !gap.is_cut_off);
        let gaps = gaps.map(|gap| format!("{} bytes at byte {} are damaged", gap.bytes, gap.offset));
        let n_undecodable = self.n_undecodable.load(Ordering::Relaxed);
        let undecodable =
            (n_undecodable > 0).then(|| format!("{n_undecodable} of its records cannot be decoded"));
        gaps.chain(undecodable).collect()
    }

    /// The end of the segment, if it is not a whole record.
    pub fn cut_off(&self) -> Option<&Gap> {
        self.gaps.iter().find(|gap| gap.is_cut_off)
    }
}

/// The names that the records of one block refer to.
#[derive(Default)]
struct BlockNames {
    number: u32,
    names: Names,
    /// The numbers of the block's sources in the whole segment.
    sources: Vec<u32>,
}

impl BlockNames {
    /// The node of a record, and where its body lies. `None` if its opening cannot be read, or holds more
    /// sources than anybody has.
    fn place(
        &mut self,
        mut record: Cursor<'_>,
        end: u64,
        known: &mut Vec<Source>,
    ) -> Option<(NodeName, RecordPlace)> {
        let opening = self.names.opening(&mut record).filter(|opening| is_storable(opening.time))?;
        while let Some(new) = self.names.sources.get(self.sources.len()) {
            let number = known.iter().position(|source| source == new.as_ref()).unwrap_or_else(|| {
                known.push(new.as_ref().clone());
                known.len() - 1
            });
            self.sources.push(number as u32);
        }
        if known.len() > MAX_SOURCES {
            return None;
        }
        let length = record.0.len() as u32;
        let place = RecordPlace {
            offset: end - u64::from(length),
            length,
            source: self.sources[opening.source],
            block: self.number,
            time: opening.time,
        };
        Some((self.names.nodes[opening.node].clone(), place))
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
struct Reader {
    file: File,
    length: u64,
    window: Vec<u8>,
    window_at: u64,
    /// What may still be read to check marks.
    search_bytes: u64,
    n_false_marks: u32,
}

impl Reader {
    fn new(file: File, length: u64) -> Self {
        let search_bytes = length.saturating_add(SEARCH_BYTES);
        Self { file, length, window: Vec::new(), window_at: 0, search_bytes, n_false_marks: 0 }
    }

    /// `length` bytes at `at`, unless the file ends before.
    fn bytes(&mut self, at: u64, length: u64) -> io::Result<Option<&[u8]>> {
        if at + length > self.length {
            return Ok(None);
        }
        let inside = at >= self.window_at && at + length <= self.window_at + self.window.len() as u64;
        if !inside {
            let want = length.max(WINDOW_BYTES).min(self.length - at);
            self.window.resize(want as usize, 0);
            self.window_at = at;
            self.file.read_exact_at(&mut self.window, at)?;
        }
        let start = (at - self.window_at) as usize;
        Ok(Some(&self.window[start..start + length as usize]))
    }

    /// The length and the checksum of the record at `at`, if the length can be one.
    fn header(&mut self, at: u64) -> io::Result<Option<(u32, u32)>> {
        let Some(header) = self.bytes(at, HEADER as u64)? else { return Ok(None) };
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, crc) = (number(0), number(4));
        Ok((1..=MAX_RECORD_BYTES).contains(&length).then_some((length, crc)))
    }

    /// The payload of the record at `at`, if there is a whole and undamaged one.
    fn record(&mut self, at: u64) -> io::Result<Option<&[u8]>> {
        let Some((length, crc)) = self.header(at)? else { return Ok(None) };
        let payload = self.bytes(at + HEADER as u64, u64::from(length))?;
        Ok(payload.filter(|payload| crc32fast::hash(payload) == crc))
    }

    /// Whether the file ends before the record at `at` does.
    fn is_cut_off(&mut self, at: u64) -> io::Result<bool> {
        if at + HEADER as u64 > self.length {
            return Ok(true);
        }
        Ok(self.header(at)?.is_some_and(|(length, _)| at + HEADER as u64 + u64::from(length) > self.length))
    }

    /// The first mark after `at` that an undamaged record follows.
    fn next_block(&mut self, at: u64) -> io::Result<Option<u64>> {
        let mark_length = BLOCK_MARK.len() as u64;
        let mut at = at;
        loop {
            let n_bytes = WINDOW_BYTES.min(self.length.saturating_sub(at));
            let Some(window) = self.bytes(at, n_bytes)? else { return Ok(None) };
            match window.windows(BLOCK_MARK.len()).position(|found| found == BLOCK_MARK) {
                Some(found) => {
                    let mark = at + found as u64;
                    let cost = self.header(mark + mark_length)?.map_or(0, |(length, _)| u64::from(length));
                    let Some(left) = self.search_bytes.checked_sub(cost) else { return Ok(None) };
                    self.search_bytes = left;
                    if self.record(mark + mark_length)?.is_some() {
                        return Ok(Some(mark));
                    }
                    self.n_false_marks += 1;
                    if self.n_false_marks > MAX_FALSE_MARKS {
                        return Ok(None);
                    }
                    at = mark + 1;
                }
                None if at + n_bytes == self.length => return Ok(None),
                // A mark may begin in this window and end in the next.
                None => at += n_bytes - (mark_length - 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::testing::segment;
    use crate::layout::next_id;
    use proptest::prelude::*;
    use std::fs;
    use std::time::Instant;

    const N_READINGS: i64 = 12;
    const PER_BLOCK: i64 = 4;

    /// The seconds that can be read of a segment.
    fn seconds(path: &Path) -> Result<(Vec<Gap>, BTreeSet<i64>)> {
        let index = SegmentIndex::read(path)?;
        let mut found = BTreeSet::new();
        for node in index.nodes() {
            for part in index.read_node(node)? {
                found.extend(part.threads.times.iter().map(|time| time / 1_000));
            }
        }
        Ok((index.gaps, found))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_segment_that_is_cut_short_holds_every_record_before_the_cut(cut in 0u64..1_000) {
            let folder = tempfile::tempdir().unwrap();
            let (path, ends) = segment(folder.path(), N_READINGS, PER_BLOCK);
            let length = cut.min(ends[ends.len() - 1]);
            File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            let (gaps, found) = seconds(&path).unwrap();
            let n_whole = ends.iter().filter(|end| **end <= length).count() as i64;
            prop_assert_eq!(found, (0..n_whole).collect());
            let is_between_records = length == 0 || length == MAGIC.len() as u64 || ends.contains(&length);
            prop_assert_eq!(gaps.is_empty(), is_between_records);
            prop_assert!(gaps.iter().all(|gap| gap.is_cut_off));
        }

        #[test]
        fn a_flipped_bit_costs_at_most_the_rest_of_its_block(at in 8usize..1_000, bit in 0u8..8) {
            let folder = tempfile::tempdir().unwrap();
            let (path, ends) = segment(folder.path(), N_READINGS, PER_BLOCK);
            let mut bytes = fs::read(&path).unwrap();
            let at = at.min(bytes.len() - 1);
            bytes[at] ^= 1 << bit;
            fs::write(&path, bytes).unwrap();
            let (gaps, found) = seconds(&path).unwrap();
            let n_before = ends.iter().filter(|end| **end <= at as u64).count() as i64;
            let next_block = (n_before / PER_BLOCK + 1) * PER_BLOCK;
            prop_assert_eq!(found, (0..n_before).chain(next_block..N_READINGS).collect());
            prop_assert_eq!(gaps.len(), 1);
        }

        #[test]
        fn altered_bytes_never_cause_a_panic_or_readings_that_were_not_there(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (path, _) = segment(folder.path(), N_READINGS, PER_BLOCK);
            let mut bytes = fs::read(&path).unwrap();
            for (at, byte) in changes {
                let at = MAGIC.len() + at.index(bytes.len() - MAGIC.len());
                bytes[at] = byte;
            }
            fs::write(&path, bytes).unwrap();
            let (_, found) = seconds(&path).unwrap();
            prop_assert!(found.is_subset(&(0..N_READINGS).collect()));
        }
    }

    #[test]
    fn a_damaged_last_record_is_not_taken_for_a_write_that_was_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = segment(folder.path(), N_READINGS, PER_BLOCK);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let (gaps, _) = seconds(&path).unwrap();
        assert!(matches!(gaps[..], [Gap { is_cut_off: false, .. }]), "{gaps:?}");
    }

    #[test]
    fn a_long_tail_of_garbage_is_searched_quickly() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = segment(folder.path(), N_READINGS, PER_BLOCK);
        let bytes = fs::read(&path).unwrap();
        // Marks everywhere, each before a length that reaches far.
        for length in [0u32, 1_000, 4 << 20] {
            let mark = [&BLOCK_MARK[..], &length.to_le_bytes(), &[1, 2, 3, 4]].concat();
            let garbage = mark.iter().copied().cycle().take(32 << 20);
            fs::write(&path, bytes.iter().copied().chain(garbage).collect::<Vec<u8>>()).unwrap();
            let begun = Instant::now();
            let (_, found) = seconds(&path).unwrap();
            assert_eq!(found.len() as i64, N_READINGS);
            assert!(begun.elapsed().as_secs() < 10, "{length}: {:?}", begun.elapsed());
        }
    }

    #[test]
    fn files_that_are_no_segments_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{}.log", next_id()));
        fs::write(&path, "a text that is longer than the mark").unwrap();
        assert!(SegmentIndex::read(&path).is_err());
    }
}
