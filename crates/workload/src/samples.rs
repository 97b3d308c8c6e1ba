//! Readings on their way from an agent to whoever asks: segments of [`codec`](crate::codec), one
//! after another. The media type is [`MEDIA_TYPE`].

use crate::codec::{Cursor, Encoder, Names, NodeDecoder, put_varint};
use crate::{NodeReading, Source, Timestamp};

pub const MEDIA_TYPE: &str = "application/vnd.tracewise.samples";

/// The first bytes; the last of them is the version.
const MAGIC: &[u8; 8] = b"TWSMPL\0\x01";

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SamplesError {
    #[error("these are no samples of a version this Tracewise knows")]
    Magic,
    #[error("the samples end too early, or are damaged")]
    Damaged,
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
    /// A segment that is expected to take so many bytes.
    pub fn with_capacity(n_bytes: usize) -> Self {
        Self {
            encoder: Encoder::default(),
            bytes: Vec::with_capacity(n_bytes),
            record: Vec::new(),
            times: None,
        }
    }

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

/// Visits every reading of joined segments, in the order in which they were written.
pub fn for_each(bytes: &[u8], mut visit: impl FnMut(&Source, NodeReading)) -> Result<(), SamplesError> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut cursor = Cursor(bytes.strip_prefix(MAGIC).ok_or(SamplesError::Magic)?);
    while !cursor.0.is_empty() {
        let segment = cursor.run().ok_or(SamplesError::Damaged)?;
        for_each_in(segment, &mut visit).ok_or(SamplesError::Damaged)?;
    }
    Ok(())
}

/// Visits every reading of one segment; `None` if it is damaged.
pub fn for_each_in(segment: &[u8], mut visit: impl FnMut(&Source, NodeReading)) -> Option<()> {
    let mut names = Names::default();
    let mut decoders: Vec<NodeDecoder> = Vec::new();
    let mut cursor = Cursor(segment);
    while !cursor.0.is_empty() {
        let mut record = Cursor(cursor.run()?);
        let opening = names.opening(&mut record)?;
        if decoders.len() < names.nodes.len() {
            decoders.push(NodeDecoder::default());
        }
        let (threads, jobs) = decoders[opening.node].decode(&mut record)?;
        let node = names.nodes[opening.node].clone();
        let reading = NodeReading { node, time: opening.time, threads: threads.to_vec(), jobs };
        visit(&names.sources[opening.source], reading);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Measure, Millis, ModeSet, NodeName, Owner, ThreadReading, Ticks};
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
        let mut found = Vec::new();
        for_each(&joined(), |_, reading| found.push(reading)).unwrap();
        assert_eq!(found, readings().0);
        assert_eq!(for_each(b"<html>", |_, _| {}), Err(SamplesError::Magic));
    }

    proptest! {
        #[test]
        fn what_is_cut_short_is_refused_or_ends_between_segments(at in 8usize..200) {
            let whole = joined();
            let mut n_found = 0;
            let read = for_each(&whole[..at.min(whole.len())], |_, _| n_found += 1);
            prop_assert!(read.is_err() || n_found % 4 == 0 || n_found == 10);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = for_each(&join([bytes.as_slice()].into_iter()), |_, _| {});
        }
    }
}
