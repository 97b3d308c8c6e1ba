//! The format in which an agent sends readings: segments of [`codec`](crate::codec), one after
//! another, or one line of JSON per reading.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::json;

use crate::codec::{Cursor, Encoder, Names, NodeDecoder, put_varint};
use crate::{NodeReading, Source, ThreadReading, Timestamp};

/// The media type of joined segments.
pub const MEDIA_TYPE: &str = "application/vnd.tracewise.samples";

/// The first bytes; the last of them is the version.
const MAGIC: &[u8; 8] = b"TWSMPL\0\x02";
/// What agents sent before readings of jobs had CPU time. It is read in the same way.
const OLD_MAGIC: &[u8; 8] = b"TWSMPL\0\x01";

/// Why samples cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SamplesError {
    /// They do not start like samples.
    #[error("these are not samples of a version this Tracewise knows")]
    Magic,
    /// They are truncated or garbled.
    #[error("the samples end too early, or are damaged")]
    Damaged,
    /// A position that no agent has sent.
    #[error("this is not a position in the readings of an agent")]
    Position,
}

/// The response header with the [`Position`] after the readings of the response.
pub const POSITION_HEADER: &str = "tracewise-position";
/// The response header with the number of readings after the position of the request that the agent no longer has.
pub const LOST_HEADER: &str = "tracewise-lost";

/// How far a client has read the readings of an agent. The agent numbers its readings from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Identifies a start of the agent.
    pub start: u64,
    /// The number of the next reading.
    pub next: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.start, self.next)
    }
}

impl FromStr for Position {
    type Err = SamplesError;

    fn from_str(text: &str) -> Result<Self, SamplesError> {
        let (start, next) = text.split_once('-').ok_or(SamplesError::Position)?;
        let start = u64::from_str_radix(start, 16).map_err(|_| SamplesError::Position)?;
        Ok(Self { start, next: next.parse().map_err(|_| SamplesError::Position)? })
    }
}

/// Readings that were written by one encoder.
#[derive(Debug)]
pub struct Segment {
    encoder: Encoder,
    bytes: Vec<u8>,
    record: Vec<u8>,
    times: Option<(Timestamp, Timestamp)>,
}

impl Segment {
    /// An empty segment with room for `n_bytes`.
    pub fn with_capacity(n_bytes: usize) -> Self {
        Self {
            encoder: Encoder::default(),
            bytes: Vec::with_capacity(n_bytes),
            record: Vec::new(),
            times: None,
        }
    }

    /// Adds a reading.
    pub fn push(&mut self, reading: &NodeReading, source: &Source) {
        self.record.clear();
        self.encoder.encode(reading, source, &mut self.record);
        put_varint(&mut self.bytes, self.record.len() as u64);
        self.bytes.extend_from_slice(&self.record);
        let first = self.times.map_or(reading.time, |(first, _)| first);
        self.times = Some((first, reading.time));
    }

    /// First and last time.
    pub fn times(&self) -> Option<(Timestamp, Timestamp)> {
        self.times
    }

    /// What was written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// What comes before a segment's bytes: its length, and before the first the mark of the format.
pub fn heading(is_first: bool, length: usize) -> Vec<u8> {
    let mut bytes = if is_first { MAGIC.to_vec() } else { Vec::new() };
    put_varint(&mut bytes, length as u64);
    bytes
}

/// Segments one after another.
pub fn join(segments: impl Iterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in segments {
        bytes.extend(heading(bytes.is_empty(), segment.as_ref().len()));
        bytes.extend_from_slice(segment.as_ref());
    }
    bytes
}

/// The readings of joined segments, in the order in which they were written. The first error is the
/// last item.
pub fn read(bytes: &[u8]) -> impl Iterator<Item = Result<SourcedReading, SamplesError>> {
    let body = bytes.strip_prefix(MAGIC).or_else(|| bytes.strip_prefix(OLD_MAGIC));
    let refused = (body.is_none() && !bytes.is_empty()).then_some(Err(SamplesError::Magic));
    let mut segments = Cursor(body.unwrap_or_default());
    let segments = std::iter::from_fn(move || {
        let segment = (!segments.0.is_empty()).then(|| segments.run())?;
        if segment.is_none() {
            segments = Cursor(&[]);
        }
        Some(segment)
    });
    let mut has_ended = false;
    let readings = segments.flat_map(SegmentReadings::new);
    refused
        .into_iter()
        .chain(readings)
        .take_while(move |reading| !std::mem::replace(&mut has_ended, reading.is_err()))
}

/// The readings of one segment, the same way.
pub fn read_segment(segment: &[u8]) -> impl Iterator<Item = Result<SourcedReading, SamplesError>> {
    SegmentReadings::new(Some(segment))
}

/// A reading, and where it comes from.
pub type SourcedReading = (Arc<Source>, NodeReading);

struct SegmentReadings<'a> {
    /// `None` where the segment is damaged.
    rest: Option<Cursor<'a>>,
    names: Names,
    decoders: Vec<NodeDecoder>,
    has_failed: bool,
}

impl<'a> SegmentReadings<'a> {
    fn new(segment: Option<&'a [u8]>) -> Self {
        Self { rest: segment.map(Cursor), names: Names::default(), decoders: Vec::new(), has_failed: false }
    }

    fn decode_next(&mut self) -> Option<SourcedReading> {
        let mut record = Cursor(self.rest.as_mut()?.run()?);
        let opening = self.names.opening(&mut record)?;
        if self.decoders.len() < self.names.nodes.len() {
            self.decoders.push(NodeDecoder::default());
        }
        let (threads, jobs) = self.decoders[opening.node].decode(&mut record)?;
        let node = self.names.nodes[opening.node].clone();
        let reading = NodeReading { node, time: opening.time, threads: threads.to_vec(), jobs };
        Some((self.names.sources[opening.source].clone(), reading))
    }
}

impl Iterator for SegmentReadings<'_> {
    type Item = Result<SourcedReading, SamplesError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed || self.rest.as_ref().is_some_and(|rest| rest.0.is_empty()) {
            return None;
        }
        let reading = self.decode_next().ok_or(SamplesError::Damaged);
        self.has_failed = reading.is_err();
        Some(reading)
    }
}

/// A reading as text: its threads as one line of JSON, without a line break.
pub fn json_line(reading: &NodeReading) -> String {
    let thread = |thread: &ThreadReading| {
        json!({ "cpu": thread.cpu, "owner": thread.owner.state(), "job": thread.owner.job(),
            "ticks": thread.ticks })
    };
    let threads: Vec<_> = reading.threads.iter().map(thread).collect();
    json!({ "time": reading.time, "node": reading.node, "threads": threads }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Measure, Millis, ModeSet, NodeName, Owner, Ticks};
    use proptest::prelude::*;

    fn readings() -> (Vec<NodeReading>, Source) {
        let source = Source {
            origin: "test".into(),
            measure: Measure::Counter,
            ticks_per_second: 100,
            modes: ModeSet::ALL,
            period: Millis::SECOND,
        };
        let reading = |second: i64| NodeReading {
            node: NodeName::new("n1").unwrap(),
            time: Timestamp::from_seconds(second),
            threads: vec![ThreadReading {
                cpu: Cpu(0),
                ticks: Ticks([second as u64; 8]),
                owner: Owner::Nobody,
            }],
            jobs: Vec::new(),
        };
        ((0..10).map(reading).collect(), source)
    }

    fn joined() -> Vec<u8> {
        let (readings, source) = readings();
        let segments: Vec<Vec<u8>> = readings
            .chunks(4)
            .map(|chunk| {
                let mut segment = Segment::with_capacity(0);
                chunk.iter().for_each(|reading| segment.push(reading, &source));
                segment.bytes().to_vec()
            })
            .collect();
        join(segments.iter())
    }

    #[test]
    fn what_is_joined_is_read() {
        let found: Result<Vec<NodeReading>, SamplesError> = read(&joined()).map(|read| Ok(read?.1)).collect();
        assert_eq!(found, Ok(readings().0));
        assert_eq!(read(b"<html>").collect::<Vec<_>>(), [Err(SamplesError::Magic)]);
        assert_eq!(read(b"").count(), 0);
    }

    proptest! {
        #[test]
        fn what_is_cut_short_is_refused_or_ends_between_segments(at in 8usize..200) {
            let whole = joined();
            let found: Vec<_> = read(&whole[..at.min(whole.len())]).collect();
            let n_read = found.iter().filter(|reading| reading.is_ok()).count();
            let is_refused = matches!(found.last(), Some(Err(SamplesError::Damaged)));
            prop_assert!(is_refused || n_read % 4 == 0 || n_read == 10);
            prop_assert!(found.len() - n_read <= 1);
        }

        #[test]
        fn altered_samples_are_refused_or_read_without_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = joined();
            for (at, byte) in changes {
                // The mark of the format stays, so that the records are reached.
                let position = MAGIC.len() + at.index(bytes.len() - MAGIC.len());
                bytes[position] = byte;
            }
            prop_assert!(read(&bytes).count() <= bytes.len());
        }
    }
}
