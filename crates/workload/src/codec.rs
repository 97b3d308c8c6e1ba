//! Encodes readings compactly: a reading is written as its difference to the previous one of the
//! same node, so that an idle thread takes two bytes per second.
//!
//! A run of records that one encoder wrote is a segment: the archive's journal keeps them on
//! disk, an agent in memory. A record opens with node, source and time, so that an index of a
//! whole segment can be made without decoding what follows.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{
    Cpu, JobId, JobReading, Mode, NodeName, NodeReading, Owner, Source, ThreadReading, Ticks, Timestamp,
};

/// The threads of this record, and their owners, are those of the record before.
const SAME_THREADS: u8 = 1;
/// Jobs are numbered, and written as differences. Records before this had names and whole counts.
const NUMBERED_JOBS: u8 = 2;

/// Appends a number, seven bits per byte.
pub fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_varint(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// Takes values off the front of a record; `None` if the record ends before its content.
#[derive(Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number, seven bits per byte.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The bytes whose number is written before them.
    pub fn run(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (run, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(run)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.run()?).ok()
    }
}

/// What the writer remembers of a node: its last reading in this segment.
#[derive(Debug, Default)]
struct Last {
    threads: Vec<ThreadReading>,
    jobs: HashMap<JobId, (u64, Counts)>,
}

/// The counts of a job, each one more than it is; zero is absent.
type Counts = [u64; JobReading::N_COUNTS];

/// Writes the records of one segment.
#[derive(Debug, Default)]
pub struct Encoder {
    nodes: HashMap<NodeName, (u64, Last)>,
    sources: Vec<Source>,
}

impl Encoder {
    /// Appends the record of a reading.
    pub fn encode(&mut self, reading: &NodeReading, source: &Source, bytes: &mut Vec<u8>) {
        let n_nodes = self.nodes.len() as u64;
        let is_new = !self.nodes.contains_key(&reading.node);
        let (number, last) = self.nodes.entry(reading.node.clone()).or_insert((n_nodes, Last::default()));
        put_varint(bytes, *number);
        if is_new {
            put_text(bytes, reading.node.as_str());
        }
        match self.sources.iter().position(|known| known == source) {
            Some(number) => put_varint(bytes, number as u64),
            None => {
                put_varint(bytes, self.sources.len() as u64);
                // `json!` panics on what has no JSON, which a source always has.
                put_text(bytes, &serde_json::json!(source).to_string());
                self.sources.push(source.clone());
            }
        }
        put_varint(bytes, zigzag(reading.time.0));
        encode_threads(&reading.threads, &mut last.threads, bytes);
        put_varint(bytes, reading.jobs.len() as u64);
        for job in &reading.jobs {
            let n_jobs = last.jobs.len() as u64;
            let is_new = !last.jobs.contains_key(&job.job);
            let (number, before) = last.jobs.entry(job.job.clone()).or_insert((n_jobs, Counts::default()));
            put_varint(bytes, *number);
            if is_new {
                put_text(bytes, job.job.as_str());
            }
            let counts = job.counts().map(|count| count.map_or(0, |count| count.saturating_add(1)));
            let changed = counts.iter().zip(&*before).enumerate();
            put_varint(bytes, changed.fold(0, |bits, (at, (now, last))| bits | u64::from(now != last) << at));
            for (now, last) in counts.iter().zip(&*before).filter(|(now, last)| now != last) {
                put_varint(bytes, zigzag(now.wrapping_sub(*last) as i64));
            }
            *before = counts;
        }
    }
}

fn encode_threads(threads: &[ThreadReading], last: &mut Vec<ThreadReading>, bytes: &mut Vec<u8>) {
    let same_cpus = threads.len() == last.len() && threads.iter().zip(&*last).all(|(a, b)| a.cpu == b.cpu);
    let same = same_cpus && threads.iter().zip(&*last).all(|(a, b)| a.owner == b.owner);
    bytes.push(if same { SAME_THREADS | NUMBERED_JOBS } else { NUMBERED_JOBS });
    if !same {
        put_varint(bytes, threads.len() as u64);
        for thread in threads {
            put_varint(bytes, u64::from(thread.cpu.0));
            match &thread.owner {
                Owner::Nobody => bytes.push(0),
                Owner::Shared => bytes.push(1),
                Owner::Unknown => bytes.push(2),
                Owner::Job(job) => {
                    bytes.push(3);
                    put_text(bytes, job.as_str());
                }
            }
        }
    }
    for (index, thread) in threads.iter().enumerate() {
        let before = if same_cpus { last[index].ticks } else { Ticks::default() };
        let at = bytes.len();
        bytes.push(0);
        let mut changed = 0u8;
        for mode in Mode::ALL {
            let difference = thread.ticks[mode].wrapping_sub(before[mode]) as i64;
            if difference != 0 {
                changed |= 1 << mode as u8;
                put_varint(bytes, zigzag(difference));
            }
        }
        bytes[at] = changed;
    }
    if same {
        last.iter_mut().zip(threads).for_each(|(last, now)| last.ticks = now.ticks);
    } else {
        threads.clone_into(last);
    }
}

/// The names that the records of one segment refer to by number.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Nodes by number.
    pub nodes: Vec<NodeName>,
    /// Sources by number.
    pub sources: Vec<Arc<Source>>,
}

/// What a record opens with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The number of the node.
    pub node: usize,
    /// The number of the source.
    pub source: usize,
    /// When the node was read.
    pub time: Timestamp,
}

impl Names {
    /// Reads the opening of a record and keeps the names in it. Leaves the cursor at the rest. `None` if
    /// it ends too early or holds a name or source that is refused.
    pub fn opening(&mut self, cursor: &mut Cursor<'_>) -> Option<Opening> {
        let node = usize::try_from(cursor.varint()?).ok()?;
        if node == self.nodes.len() {
            self.nodes.push(NodeName::new(cursor.text()?).ok()?);
        }
        let source = usize::try_from(cursor.varint()?).ok()?;
        if source == self.sources.len() {
            let source: Source = serde_json::from_str(cursor.text()?).ok()?;
            source.check().ok()?;
            self.sources.push(Arc::new(source));
        }
        let known = node < self.nodes.len() && source < self.sources.len();
        known.then_some(Opening { node, source, time: Timestamp(unzigzag(cursor.varint()?)) })
    }
}

/// Decodes the rest of one node's records, in their order.
#[derive(Debug, Default)]
pub struct NodeDecoder {
    threads: Vec<ThreadReading>,
    jobs: Vec<(JobId, Counts)>,
}

impl NodeDecoder {
    /// The threads and jobs of the next record of this node.
    pub fn decode(&mut self, cursor: &mut Cursor<'_>) -> Option<(&[ThreadReading], Vec<JobReading>)> {
        let flags = cursor.byte()?;
        if flags & SAME_THREADS == 0 {
            let n_threads = usize::try_from(cursor.varint()?).ok()?;
            if n_threads > cursor.0.len() {
                return None;
            }
            let mut threads = Vec::with_capacity(n_threads);
            for _ in 0..n_threads {
                let cpu = Cpu(u16::try_from(cursor.varint()?).ok()?);
                let owner = match cursor.byte()? {
                    0 => Owner::Nobody,
                    1 => Owner::Shared,
                    2 => Owner::Unknown,
                    3 => Owner::Job(JobId::new(cursor.text()?).ok()?),
                    _ => return None,
                };
                threads.push(ThreadReading { cpu, ticks: Ticks::default(), owner });
            }
            let same_cpus = threads.len() == self.threads.len()
                && threads.iter().zip(&self.threads).all(|(a, b)| a.cpu == b.cpu);
            if same_cpus {
                threads.iter_mut().zip(&self.threads).for_each(|(now, last)| now.ticks = last.ticks);
            }
            self.threads = threads;
        }
        for thread in &mut self.threads {
            let changed = cursor.byte()?;
            for mode in Mode::ALL.into_iter().filter(|mode| changed & (1 << *mode as u8) != 0) {
                let difference = unzigzag(cursor.varint()?);
                thread.ticks[mode] = thread.ticks[mode].wrapping_add(difference as u64);
            }
        }
        let n_jobs = cursor.varint()?;
        let mut jobs = Vec::new();
        for _ in 0..n_jobs {
            jobs.push(match flags & NUMBERED_JOBS {
                0 => whole_job(cursor)?,
                _ => self.numbered_job(cursor)?,
            });
        }
        Some((&self.threads, jobs))
    }

    fn numbered_job(&mut self, cursor: &mut Cursor<'_>) -> Option<JobReading> {
        let number = usize::try_from(cursor.varint()?).ok()?;
        if number == self.jobs.len() {
            self.jobs.push((JobId::new(cursor.text()?).ok()?, Counts::default()));
        }
        let (job, counts) = self.jobs.get_mut(number)?;
        let changed = cursor.varint()?;
        for (_, count) in counts.iter_mut().enumerate().filter(|(at, _)| changed >> at & 1 == 1) {
            *count = count.wrapping_add(unzigzag(cursor.varint()?) as u64);
        }
        Some(JobReading::from_counts(job.clone(), counts.map(|count| count.checked_sub(1))))
    }
}

fn whole_job(cursor: &mut Cursor<'_>) -> Option<JobReading> {
    let job = JobId::new(cursor.text()?).ok()?;
    let mut counts = [None; JobReading::N_COUNTS];
    for count in &mut counts[..JobReading::N_FIRST_COUNTS] {
        *count = cursor.varint()?.checked_sub(1);
    }
    Some(JobReading::from_counts(job, counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Measure, Millis, ModeSet};
    use proptest::prelude::*;

    fn source(ticks_per_second: u32) -> Source {
        Source {
            origin: "test".into(),
            measure: Measure::Counter,
            ticks_per_second,
            modes: ModeSet::ALL,
            period: Millis::SECOND,
        }
    }

    fn any_owner() -> impl Strategy<Value = Owner> {
        prop_oneof![
            Just(Owner::Nobody),
            Just(Owner::Shared),
            Just(Owner::Unknown),
            "[a-z0-9_.]{1,12}".prop_map(|job| Owner::Job(JobId::new(job).unwrap())),
        ]
    }

    prop_compose! {
        fn any_thread()(cpu in 0u16..4, ticks in prop::array::uniform8(any::<u64>()), owner in any_owner())
            -> ThreadReading {
            ThreadReading { cpu: Cpu(cpu), ticks: Ticks(ticks), owner }
        }
    }

    prop_compose! {
        fn any_reading()(
            node in "[ab]", time in any::<i64>(), threads in prop::collection::vec(any_thread(), 0..4),
            job in "[a-z]{1,3}", memory in prop::option::of(0..u64::MAX - 1),
            pressure in prop::option::of(0..u64::MAX - 1), n_jobs in 0usize..2,
        ) -> NodeReading {
            let mut reading = JobReading::empty(JobId::new(job).unwrap());
            reading.memory_bytes = memory;
            reading.io_pressure.full_usec = pressure;
            NodeReading {
                node: NodeName::new(node).unwrap(), time: Timestamp(time), threads,
                jobs: vec![reading; n_jobs],
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(readings in prop::collection::vec((any_reading(), 0u32..2), 1..30)) {
            let mut encoder = Encoder::default();
            let mut names = Names::default();
            let mut decoders: HashMap<usize, NodeDecoder> = HashMap::new();
            for (reading, tick) in &readings {
                let mut bytes = Vec::new();
                encoder.encode(reading, &source(tick + 1), &mut bytes);
                let mut cursor = Cursor(&bytes);
                let opening = names.opening(&mut cursor).unwrap();
                let (threads, jobs) =
                    decoders.entry(opening.node).or_default().decode(&mut cursor).unwrap();
                prop_assert_eq!(threads, &reading.threads[..]);
                prop_assert_eq!(&jobs, &reading.jobs);
                prop_assert_eq!(&names.nodes[opening.node], &reading.node);
                prop_assert_eq!(names.sources[opening.source].ticks_per_second, tick + 1);
                prop_assert_eq!(opening.time, reading.time);
                prop_assert!(cursor.0.is_empty());
            }
        }

        #[test]
        fn altered_records_are_refused_or_decoded_without_panic(
            readings in prop::collection::vec(any_reading(), 1..8),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut encoder = Encoder::default();
            let mut records: Vec<Vec<u8>> = Vec::new();
            for reading in &readings {
                records.push(Vec::new());
                encoder.encode(reading, &source(100), records.last_mut().unwrap());
            }
            for (at, byte) in changes {
                // Past the name and the source of the first record, so that its body is reached.
                let record = at.get(&records).clone();
                let start = if record == records[0] { record.len() / 2 } else { 0 };
                let position = start + at.index(record.len() - start);
                let index = at.index(records.len());
                records[index][position] = byte;
            }
            let mut names = Names::default();
            let mut decoders: HashMap<usize, NodeDecoder> = HashMap::new();
            for record in &records {
                let mut cursor = Cursor(record);
                let Some(opening) = names.opening(&mut cursor) else { continue };
                let _ = decoders.entry(opening.node).or_default().decode(&mut cursor);
            }
        }
    }

    #[test]
    fn a_record_with_an_impossible_source_is_refused() {
        let reading = NodeReading {
            node: NodeName::new("n1").unwrap(),
            time: Timestamp(0),
            threads: Vec::new(),
            jobs: Vec::new(),
        };
        for (period, is_refused) in [(Millis(0), true), (Millis(-1_000), true), (Millis::SECOND, false)] {
            let mut bytes = Vec::new();
            Encoder::default().encode(&reading, &Source { period, ..source(100) }, &mut bytes);
            assert_eq!(Names::default().opening(&mut Cursor(&bytes)).is_none(), is_refused);
        }
    }

    #[test]
    fn jobs_are_still_read_as_they_were_written_first() {
        let mut bytes = vec![SAME_THREADS];
        put_varint(&mut bytes, 1);
        put_text(&mut bytes, "42");
        (0..9).for_each(|count| put_varint(&mut bytes, count));
        let mut decoder = NodeDecoder::default();
        let (threads, jobs) = decoder.decode(&mut Cursor(&bytes)).unwrap();
        assert!(threads.is_empty());
        assert_eq!(jobs[0].job.as_str(), "42");
        assert_eq!(jobs[0].counts()[..3], [None, Some(0), Some(1)]);
    }

    #[test]
    fn an_idle_thread_takes_two_bytes_per_second() {
        let mut encoder = Encoder::default();
        let thread = |idle| ThreadReading {
            cpu: Cpu(0),
            ticks: Ticks([0, 0, 0, idle, 0, 0, 0, 0]),
            owner: Owner::Nobody,
        };
        let reading = |second: u64| NodeReading {
            node: NodeName::new("n1").unwrap(),
            time: Timestamp(second as i64 * 1_000),
            threads: (0..100).map(|cpu| ThreadReading { cpu: Cpu(cpu), ..thread(second * 60) }).collect(),
            jobs: Vec::new(),
        };
        let mut bytes = Vec::new();
        encoder.encode(&reading(1), &source(100), &mut bytes);
        bytes.clear();
        encoder.encode(&reading(2), &source(100), &mut bytes);
        assert!(bytes.len() < 310, "{} bytes", bytes.len());
    }
}
