//! The last hour of readings, whole, in a few bytes a thread and second.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use workload::samples::{Position, Segment};
use workload::{Millis, NodeReading, Source, Timestamp};

/// A segment opens with whole counters, so a short one is dear; and is handed out whole, so a long
/// one is.
const READINGS_PER_SEGMENT: usize = 120;

/// The most segments that are handed out at once.
const MAX_SEGMENTS: usize = 10;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    pub time: Millis,
    pub bytes: usize,
}

#[derive(Debug)]
pub struct Ring {
    /// Identifies the ring: numbers of readings are those of this ring.
    start: u64,
    source: Source,
    keep: Keep,
    closed: VecDeque<Closed>,
    open: Segment,
    n_in_open: usize,
    n_bytes: usize,
    /// How many readings ever came before the open segment.
    n_before: u64,
}

/// The readings after a position.
#[derive(Debug)]
pub struct Following {
    /// Readings of the first segment that are before the position.
    pub n_skipped: usize,
    pub segments: Vec<Kept>,
    /// Readings after the position that are no longer kept.
    pub n_lost: u64,
    /// The position after the last of the segments.
    pub position: Position,
}

/// A segment that is full.
#[derive(Debug)]
struct Closed {
    /// The number of its first reading.
    first: u64,
    last: Timestamp,
    bytes: Kept,
}

impl Closed {
    fn new(first: u64, last: Timestamp, bytes: &[u8]) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let bytes = match encoder.write_all(bytes).and_then(|()| encoder.finish()) {
            Ok(deflated) => Kept::Deflated(deflated.into()),
            Err(_) => Kept::Plain(bytes.into()),
        };
        Self { first, last, bytes }
    }
}

/// A segment as the ring keeps it. It is inflated on demand.
#[derive(Debug, Clone)]
pub enum Kept {
    Deflated(Arc<[u8]>),
    Plain(Arc<[u8]>),
}

impl Kept {
    fn len(&self) -> usize {
        match self {
            Self::Deflated(bytes) | Self::Plain(bytes) => bytes.len(),
        }
    }

    pub fn bytes(self) -> Vec<u8> {
        let deflated = match self {
            Self::Plain(bytes) => return bytes.to_vec(),
            Self::Deflated(deflated) => deflated,
        };
        let mut bytes = Vec::new();
        let read = DeflateDecoder::new(&*deflated).read_to_end(&mut bytes);
        debug_assert!(read.is_ok(), "a deflated segment can be inflated");
        bytes
    }
}

impl Ring {
    pub fn new(source: Source, keep: Keep) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start: since_epoch.as_nanos() as u64,
            source,
            keep,
            closed: VecDeque::new(),
            open: Segment::with_capacity(0),
            n_in_open: 0,
            n_bytes: 0,
            n_before: 0,
        }
    }

    pub fn push(&mut self, reading: &NodeReading) {
        // A clock that was set back begins anew, so that every segment is in order of time.
        let is_back = self.open.times().is_some_and(|(_, last)| reading.time < last);
        if self.n_in_open == READINGS_PER_SEGMENT || is_back {
            self.close();
        }
        self.open.push(reading, &self.source);
        self.n_in_open += 1;
        // By number too, for segments from before a clock was set back.
        let n_most = self.keep.time.0 / self.source.period.0.max(1) + 2 * READINGS_PER_SEGMENT as i64;
        let n_now = self.n_before + self.n_in_open as u64;
        let is_old = |closed: &Closed| {
            (reading.time - closed.last).0 > self.keep.time.0 || n_now - closed.first > n_most.unsigned_abs()
        };
        while let Some(first) = self.closed.front()
            && (is_old(first) || self.n_bytes + self.open.bytes().len() > self.keep.bytes)
        {
            self.n_bytes -= first.bytes.len();
            self.closed.pop_front();
        }
    }

    fn close(&mut self) {
        let next = Segment::with_capacity(self.open.bytes().len());
        let segment = std::mem::replace(&mut self.open, next);
        let first = self.n_before;
        self.n_before += self.n_in_open as u64;
        self.n_in_open = 0;
        if let Some((_, last)) = segment.times() {
            let closed = Closed::new(first, last, segment.bytes());
            self.n_bytes += closed.bytes.len();
            self.closed.push_back(closed);
        }
    }

    /// How many bytes are kept.
    pub fn n_bytes(&self) -> usize {
        self.n_bytes + self.open.bytes().len()
    }

    /// The first segment with a reading of this number or a later one, and the number of its first. Readings
    /// are numbered in order of arrival, regardless of their clock.
    pub fn segment_from(&self, number: u64) -> Option<(u64, Kept)> {
        let ends = self.closed.iter().skip(1).map(|next| next.first).chain([self.n_before]);
        let closed = self.closed.iter().zip(ends).find(|(_, end)| *end > number);
        match closed {
            Some((closed, _)) => Some((closed.first, closed.bytes.clone())),
            None if self.n_before + self.n_in_open as u64 > number => {
                Some((self.n_before, Kept::Plain(self.open.bytes().into())))
            }
            None => None,
        }
    }

    /// What follows a position: at most [`MAX_SEGMENTS`] segments. A position of another ring, or none, is before all
    /// that is kept.
    pub fn after(&self, position: Option<Position>) -> Following {
        let asked = position.filter(|position| position.start == self.start).map(|position| position.next);
        let first_kept = self.closed.front().map_or(self.n_before, |closed| closed.first);
        let from = asked.unwrap_or(first_kept).max(first_kept);
        let mut following = Following {
            n_skipped: 0,
            segments: Vec::new(),
            n_lost: asked.map_or(0, |asked| first_kept.saturating_sub(asked)),
            position: Position { start: self.start, next: from },
        };
        let n_all = self.n_before + self.n_in_open as u64;
        while following.segments.len() < MAX_SEGMENTS
            && let Some((first, segment)) = self.segment_from(following.position.next)
        {
            if following.segments.is_empty() {
                following.n_skipped = (from - first) as usize;
            }
            following.segments.push(segment);
            let next = self.closed.iter().map(|closed| closed.first).chain([self.n_before]);
            following.position.next = next.filter(|next| *next > first).min().unwrap_or(n_all);
        }
        following
    }

    /// The segments with readings since `from`.
    pub fn since(&self, from: Timestamp) -> impl Iterator<Item = Kept> {
        let closed = self.closed.iter().filter(move |closed| closed.last >= from);
        let open = self.open.times().filter(move |(_, last)| *last >= from);
        closed.map(|closed| closed.bytes.clone()).chain(open.map(|_| Kept::Plain(self.open.bytes().into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::CpuCollector;
    use workload::samples;
    use workload::{Cpu, NodeName, Owner, ThreadReading, Ticks};

    fn reading(second: i64) -> NodeReading {
        NodeReading {
            node: NodeName::new("n1").unwrap(),
            time: Timestamp::from_seconds(second),
            threads: vec![ThreadReading {
                cpu: Cpu(0),
                ticks: Ticks([second.unsigned_abs(); 8]),
                owner: Owner::Nobody,
            }],
            jobs: Vec::new(),
        }
    }

    fn ring(keep: Keep) -> Ring {
        Ring::new(CpuCollector::new("/proc".as_ref()).source(Millis::SECOND), keep)
    }

    fn seconds(ring: &Ring, from: i64) -> Vec<i64> {
        let joined = samples::join(ring.since(Timestamp::from_seconds(from)).map(Kept::bytes));
        samples::read(&joined).map(|read| read.unwrap().1.time.0 / 1_000).collect()
    }

    #[test]
    fn an_hour_is_kept_and_what_is_older_goes() {
        let mut ring = ring(Keep { time: Millis::HOUR, bytes: usize::MAX });
        (0..10_000).for_each(|second| ring.push(&reading(second)));
        let kept = seconds(&ring, 0);
        assert_eq!(kept.last(), Some(&9_999));
        assert!((3_600..3_600 + 2 * READINGS_PER_SEGMENT).contains(&kept.len()), "{}", kept.len());
        assert!(kept.is_sorted());
        let recent = seconds(&ring, 9_990);
        assert!(recent.contains(&9_990) && recent.len() <= 2 * READINGS_PER_SEGMENT);
    }

    #[test]
    fn no_more_bytes_are_kept_than_allowed() {
        let mut ring = ring(Keep { time: Millis::HOUR, bytes: 2_000 });
        (0..5_000).for_each(|second| ring.push(&reading(second)));
        assert!(ring.n_bytes() <= 2_000, "{}", ring.n_bytes());
        assert_eq!(seconds(&ring, 0).last(), Some(&4_999));
    }

    #[test]
    fn a_clock_that_is_set_back_loses_nothing() {
        let mut ring = ring(Keep { time: Millis::HOUR, bytes: usize::MAX });
        [9_000, 9_001, 50, 51].iter().for_each(|second| ring.push(&reading(*second)));
        assert_eq!(seconds(&ring, 0), [9_000, 9_001, 50, 51]);
        assert_eq!(ring.segment_from(1).unwrap().0, 0);
        assert_eq!(ring.segment_from(2).unwrap().0, 2);
        assert!(ring.segment_from(4).is_none());
    }

    #[test]
    fn a_client_gets_every_reading_once_and_is_told_what_is_lost() {
        let mut ring = ring(Keep { time: Millis::HOUR, bytes: usize::MAX });
        let mut position = None;
        let mut seen = Vec::new();
        for second in 0..3_000 {
            ring.push(&reading(second));
            if second % 7 == 3 || second == 2_999 {
                let following = ring.after(position);
                assert_eq!(following.n_lost, 0);
                let all = following.segments.into_iter().map(Kept::bytes).collect::<Vec<_>>();
                let readings = all.iter().flat_map(|segment| samples::read_segment(segment));
                seen.extend(readings.skip(following.n_skipped).map(|read| read.unwrap().1.time.0 / 1_000));
                position = Some(following.position);
            }
        }
        assert_eq!(seen, (0..3_000).collect::<Vec<i64>>());
        assert!(ring.after(position).segments.is_empty());
        let mut other = self::ring(Keep { time: Millis(600_000), bytes: usize::MAX });
        (0..3_000).for_each(|second| other.push(&reading(second)));
        assert_eq!(other.after(position).n_lost, 0, "a position of another ring");
        let early = Position { next: 10, ..other.after(None).position };
        assert!(other.after(Some(early)).n_lost > 2_000);
    }
}
