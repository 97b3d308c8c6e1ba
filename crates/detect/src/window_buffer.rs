//! Windows from a stream of readings: keeps the last steps of every thread and emits window batches when they are
//! complete.
//!
//! Every node has a watermark: the time up to which its steps are known. Nodes whose watermarks agree share batches,
//! which wait for the last of them. A node whose clock is ahead or behind gets batches of its own, so that it neither
//! holds up nor hides the others; a node that stopped sending holds them up for [`TOLERANCE`] at most.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use workload::derive::Scale;
use workload::{Cpu, Derivation, Deriver, Millis, NodeName, NodeReading, ThreadId, Timestamp, Trace};

use crate::node_windows::{JOB_MARGIN, NodeWindows, cut};
use crate::progress::Progress;
use crate::split::WindowFilter;
use crate::usage::JobReadings;
use crate::window::{WindowBatch, WindowSpec};

/// Nodes whose watermarks are within this, or within two sampling periods, of the median share batches.
const TOLERANCE: Millis = Millis(10_000);
/// A node that is this far behind the others is forgotten.
const FORGOTTEN_AFTER: Millis = Millis::HOUR;
/// A reading that is this much older than the last one comes from a clock that was set back.
const CLOCK_JUMP: Millis = Millis(60_000);
/// So many readings in a row have to be older before a clock was set back.
const N_OLDER: u32 = 3;

/// Turns readings into window batches.
#[derive(Debug)]
pub struct WindowBuffer {
    spec: WindowSpec,
    filter: WindowFilter,
    tolerance: Millis,
    nodes: BTreeMap<NodeName, NodeBuffer>,
    progress: Progress,
    /// The median watermark of the nodes that send, once there is one.
    reference: Option<Timestamp>,
    n_out_of_order: u64,
    n_clock_jumps: u64,
    n_slow: u64,
}

/// The state of a buffer's nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BufferStatus {
    pub n_nodes: usize,
    /// Nodes that send, but whose readings are ahead of or behind those of most nodes, with the seconds they are ahead.
    pub off_clock: Vec<ClockDifference>,
    /// Nodes that stopped sending, with minus the seconds since their last reading.
    pub missing: Vec<ClockDifference>,
    /// Readings that were not later than the one before, and ignored.
    pub n_out_of_order: u64,
    /// Clocks that were set back.
    pub n_clock_jumps: u64,
    /// Readings of nodes that are read less often than the detector needs, and ignored.
    pub n_slow: u64,
}

/// A node whose readings end at another time than those of most nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClockDifference {
    pub node: NodeName,
    /// Positive if its readings end later than those of most nodes.
    pub ahead_seconds: f64,
}

#[derive(Debug)]
struct NodeBuffer {
    threads: BTreeMap<Cpu, ThreadBuffer>,
    readings: JobReadings,
    /// The last reading.
    latest: Timestamp,
    /// The start of the next window.
    next_start: Timestamp,
    n_older: u32,
}

#[derive(Debug)]
struct ThreadBuffer {
    deriver: Deriver,
    trace: Trace,
}

impl WindowBuffer {
    /// A buffer for windows of the jobs that pass a filter.
    pub fn new(spec: WindowSpec, filter: WindowFilter) -> Self {
        let tolerance = Millis(TOLERANCE.0.max(2 * spec.period.0));
        let progress = Progress::new(Millis(tolerance.0 + spec.stride_length().0));
        Self {
            spec,
            filter,
            tolerance,
            nodes: BTreeMap::new(),
            progress,
            reference: None,
            n_out_of_order: 0,
            n_clock_jumps: 0,
            n_slow: 0,
        }
    }

    /// The length and spacing of its windows.
    pub fn spec(&self) -> &WindowSpec {
        &self.spec
    }

    /// Takes a reading and returns the batches that it completes, in order of time.
    pub fn push(&mut self, reading: &NodeReading, scale: Scale) -> Vec<WindowBatch> {
        if scale.period > self.spec.period {
            self.n_slow += 1;
            return Vec::new();
        }
        let n_kept = self.n_kept_steps();
        let node = self
            .nodes
            .entry(reading.node.clone())
            .or_insert_with(|| NodeBuffer::new(reading.time, &self.spec));
        if reading.time < node.latest {
            self.n_out_of_order += 1;
            node.n_older += 1;
            if node.n_older >= N_OLDER && reading.time + CLOCK_JUMP < node.latest {
                self.n_clock_jumps += 1;
                *node = NodeBuffer::new(reading.time, &self.spec);
            } else {
                return Vec::new();
            }
        }
        node.n_older = 0;
        let before = node.watermark(&self.spec);
        node.take(reading, scale, &self.spec, n_kept);
        let after = node.watermark(&self.spec);
        self.progress.advance(&reading.node, after);
        // A window can only be complete when the time at which the next one ends has passed.
        let starts = |watermark: Timestamp| (watermark - self.spec.length()).floor(self.spec.stride_length());
        if starts(before) == starts(after) {
            return Vec::new();
        }
        self.ready()
    }

    /// What is late, missing or ignored.
    pub fn status(&self) -> BufferStatus {
        let mut status = BufferStatus {
            n_nodes: self.nodes.len(),
            n_out_of_order: self.n_out_of_order,
            n_clock_jumps: self.n_clock_jumps,
            n_slow: self.n_slow,
            ..BufferStatus::default()
        };
        for (name, node) in &self.nodes {
            let Some(reference) = self.reference else { break };
            let ahead = node.watermark(&self.spec) - reference;
            let difference = ClockDifference { node: name.clone(), ahead_seconds: ahead.as_seconds() };
            if self.is_silent(name) {
                status.missing.push(difference);
            } else if ahead.0.abs() > self.tolerance.0 {
                status.off_clock.push(difference);
            }
        }
        status
    }

    /// The nodes that stopped sending: the clock of the others went on without them.
    pub fn missing(&self) -> BTreeSet<&NodeName> {
        self.nodes.keys().filter(|name| self.is_silent(name)).collect()
    }

    fn is_silent(&self, node: &NodeName) -> bool {
        self.progress.silent_for(node).0 > self.tolerance.0
    }

    /// The steps that are kept of every thread: a window, what others may be late, and what a reading may bridge.
    fn n_kept_steps(&self) -> usize {
        let n_late = (2 * self.tolerance.0 / self.spec.period.0) as usize;
        self.spec.n_steps + n_late + self.spec.stride + Derivation::default().max_missed as usize + 2
    }

    /// The batches that are complete.
    fn ready(&mut self) -> Vec<WindowBatch> {
        self.progress.update();
        for node in self.progress.forget(FORGOTTEN_AFTER) {
            self.nodes.remove(&node);
        }
        let live: Vec<(NodeName, Timestamp)> = self
            .nodes
            .iter()
            .filter(|(name, _)| !self.is_silent(name))
            .map(|(name, node)| (name.clone(), node.watermark(&self.spec)))
            .collect();
        let mut watermarks: Vec<Timestamp> = live.iter().map(|(_, watermark)| *watermark).collect();
        watermarks.sort_unstable();
        let Some(reference) = watermarks.get(watermarks.len() / 2).copied() else { return Vec::new() };
        self.reference = Some(reference);
        let agrees = |watermark: Timestamp| (watermark - reference).0.abs() <= self.tolerance.0;
        let (common, own): (Vec<_>, Vec<_>) = live.into_iter().partition(|(_, watermark)| agrees(*watermark));
        let common: Vec<NodeName> = common.into_iter().map(|(name, _)| name).collect();
        let mut batches = self.emit(&common);
        for (name, _) in own {
            batches.extend(self.emit(&[name]));
        }
        batches.sort_by_key(WindowBatch::start);
        batches
    }

    /// The batches of nodes that share them, up to the first watermark.
    fn emit(&mut self, names: &[NodeName]) -> Vec<WindowBatch> {
        let of = |nodes: &BTreeMap<NodeName, NodeBuffer>| -> Option<(Timestamp, Timestamp)> {
            let nodes = names.iter().filter_map(|name| nodes.get(name));
            let known = nodes.clone().map(|node| node.watermark(&self.spec)).min()?;
            Some((known, nodes.map(|node| node.next_start).min()?))
        };
        let mut batches = Vec::new();
        while let Some((known, start)) = of(&self.nodes)
            && start + self.spec.length() <= known
        {
            let mut all = NodeWindows::default();
            for name in names {
                let Some(node) = self.nodes.get_mut(name).filter(|node| node.next_start == start) else {
                    continue;
                };
                let traces = node.threads.values().map(|thread| &thread.trace);
                let NodeWindows { threads, usage } =
                    cut(traces, &node.readings, &self.filter, &self.spec, start);
                all.threads.extend(threads);
                all.usage.extend(usage);
                node.next_start = start + self.spec.stride_length();
            }
            if !all.threads.is_empty() {
                let batch = WindowBatch::new(start, self.spec.n_channels(), all.threads);
                batches.push(batch.with_usage(all.usage));
            }
        }
        batches
    }
}

impl NodeBuffer {
    fn new(time: Timestamp, spec: &WindowSpec) -> Self {
        Self {
            threads: BTreeMap::new(),
            readings: JobReadings::new(),
            latest: time,
            next_start: spec.next_start(time.floor(spec.period)),
            n_older: 0,
        }
    }

    /// The step of the last reading may still be incomplete, all before it are not.
    fn watermark(&self, spec: &WindowSpec) -> Timestamp {
        self.latest.floor(spec.period)
    }

    fn take(&mut self, reading: &NodeReading, scale: Scale, spec: &WindowSpec, n_kept: usize) {
        let derivation = Derivation { period: spec.period, ..Derivation::default() };
        // The newest step is the last one of the trace.
        let start = reading.time.floor(spec.period) - Millis(spec.period.0 * (n_kept as i64 - 1));
        // After a gap, the next window is one that the kept steps contain.
        self.next_start = self.next_start.max(spec.next_start(start));
        for thread in &reading.threads {
            let buffer = self.threads.entry(thread.cpu).or_insert_with(|| {
                let id = ThreadId { node: reading.node.clone(), cpu: thread.cpu };
                let trace = Trace::new(id, start, spec.period, n_kept);
                ThreadBuffer { deriver: Deriver::new(&derivation), trace }
            });
            if (start - buffer.trace.start()).0 > 0 {
                buffer.trace.advance(start);
            }
            let owner = buffer.trace.owner_number(&thread.owner);
            buffer.deriver.push(&mut buffer.trace, reading.time, &thread.ticks, owner, scale);
        }
        for job in &reading.jobs {
            self.readings.entry(job.job.clone()).or_default().push((reading.time, job.clone()));
        }
        self.latest = self.latest.max(reading.time);
        self.forget(spec);
    }

    /// Forgets readings of jobs that no window needs any more, and threads that have gone offline.
    fn forget(&mut self, spec: &WindowSpec) {
        let oldest = self.next_start.min(self.latest - spec.length()) - JOB_MARGIN;
        self.readings.retain(|_, readings| {
            let n_old = readings.partition_point(|(time, _)| *time < oldest);
            // Moving the rest is worth it if there is not much of it.
            if n_old > readings.len() / 2 {
                readings.drain(..n_old);
            }
            !readings.is_empty()
        });
        self.threads.retain(|_, thread| thread.trace.time(thread.trace.len()) > oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::{ControlFlow, Range};

    use archive::{Replay, Selection};
    use workload::{Control, JobId, Measure, Mode, Owner, ThreadReading, Ticks};

    use super::*;
    use crate::archive_windows::Reading;
    use crate::test_archive::{START, TestArchive};

    const SCALE: Scale = Scale { measure: Measure::Counter, ticks_per_second: 100, period: Millis::SECOND };

    fn spec() -> WindowSpec {
        WindowSpec { period: Millis::SECOND, n_steps: 20, stride: 5, job_channels: Vec::new() }
    }

    fn buffer() -> WindowBuffer {
        WindowBuffer::new(spec(), WindowFilter::All)
    }

    fn reading(node: &str, second: i64, job: Option<&str>) -> NodeReading {
        let mut ticks = Ticks::default();
        ticks[Mode::User] = (second + 100_000) as u64 * 100;
        let owner = job.map_or(Owner::Nobody, |job| Owner::Job(JobId::new(job).unwrap()));
        NodeReading {
            node: NodeName::new(node).unwrap(),
            time: Timestamp::from_seconds(START + second),
            threads: vec![ThreadReading { cpu: Cpu(0), ticks, owner }],
            jobs: Vec::new(),
        }
    }

    /// The start (in seconds after [`START`]) and the nodes of each batch.
    fn shown(batches: &[WindowBatch]) -> Vec<(i64, Vec<String>)> {
        let nodes = |batch: &WindowBatch| batch.threads().iter().map(|one| one.node.to_string()).collect();
        batches.iter().map(|batch| (batch.start().0 / 1_000 - START, nodes(batch))).collect()
    }

    fn push_all(buffer: &mut WindowBuffer, nodes: &[&str], seconds: Range<i64>) -> Vec<WindowBatch> {
        let mut batches = Vec::new();
        for second in seconds {
            for node in nodes {
                batches.extend(buffer.push(&reading(node, second, Some("a")), SCALE));
            }
        }
        batches
    }

    #[test]
    fn an_archive_and_its_stream_give_the_same_batches() {
        let mut test = TestArchive::new();
        // Missed readings, a gap that is too long, a change of owner, and memory.
        let is_missed = |second: i64| [33, 34, 57].contains(&second) || (100..109).contains(&second);
        let seconds = (START - 1..START + 180).filter(|second| !is_missed(second - START));
        test.write("n1", seconds, 2, |second, cpu| match cpu {
            0 => Some(if second < START + 70 { "a" } else { "b" }),
            _ => None,
        });
        test.write("n2", START + 7..START + 150, 1, |_, _| Some("c"));
        test.write_memory("n2", START + 7..START + 150, "c", 1 << 20);
        let (spec, filter, control) = (spec(), WindowFilter::All, Control::default());
        let reading = Reading { archive: &test.archive, filter: &filter, spec: &spec, control };
        let mut stored = Vec::new();
        reading
            .for_each_batch::<archive::Error>(|batch| {
                stored.push(batch);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        let snapshot = test.archive.snapshot(Selection::default()).unwrap();
        let mut buffer = buffer();
        let mut streamed = Vec::new();
        for replayed in Replay::new(&snapshot, None).unwrap() {
            let replayed = replayed.unwrap();
            streamed.extend(buffer.push(&replayed.reading, replayed.scale));
        }
        // The last step of a stream may still be incomplete.
        stored.retain(|batch| batch.start() + spec.length() <= Timestamp::from_seconds(START + 149));
        streamed.retain(|batch| batch.start() + spec.length() <= Timestamp::from_seconds(START + 149));
        assert!(stored.len() > 15);
        assert!(stored.iter().any(|batch| !batch.usage().is_empty()));
        assert_eq!(streamed, stored);
    }

    #[test]
    fn windows_of_a_stream_have_job_channels() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 61, 1, |_, _| Some("a"));
        test.write_pressure("n1", START - 1..START + 61, "a");
        let job_channels = vec![crate::channel::JobChannel::IoPressure];
        let mut buffer = WindowBuffer::new(WindowSpec { job_channels, ..spec() }, WindowFilter::All);
        let snapshot = test.archive.snapshot(Selection::default()).unwrap();
        let mut batches = Vec::new();
        for replayed in Replay::new(&snapshot, None).unwrap() {
            let replayed = replayed.unwrap();
            batches.extend(buffer.push(&replayed.reading, replayed.scale));
        }
        assert!(batches.len() >= 7);
        assert!(batches.iter().all(|batch| batch.values().chunks_exact(5).all(|step| step[4] == 0.5)));
    }

    #[test]
    fn a_fast_clock_does_not_hold_up_the_others() {
        let mut buffer = buffer();
        let mut batches = Vec::new();
        for second in 0..61 {
            for node in ["n1", "n2", "n3"] {
                batches.extend(buffer.push(&reading(node, second, Some("a")), SCALE));
            }
            batches.extend(buffer.push(&reading("fast", second + 3_600, Some("a")), SCALE));
        }
        let shown = shown(&batches);
        let of = |names: &[&str]| shown.iter().filter(|(_, nodes)| nodes == names).count();
        assert_eq!((of(&["n1", "n2", "n3"]), of(&["fast"])), (8, 8), "{shown:?}");
        assert_eq!(shown.len(), 16);
        let status = buffer.status();
        assert_eq!((status.n_nodes, status.off_clock.len(), status.missing.len()), (4, 1, 0));
        assert_eq!(status.off_clock[0].ahead_seconds, 3_600.0);
    }

    #[test]
    fn a_late_node_is_waited_for_a_short_time_and_then_gets_its_own_batches() {
        let mut buffer = buffer();
        push_all(&mut buffer, &["n1", "n2", "late"], 0..30);
        // It is silent for 30 seconds.
        let without = push_all(&mut buffer, &["n1", "n2"], 30..60);
        assert!(without.iter().all(|batch| batch.threads().len() == 2));
        assert!(shown(&without).last().unwrap().0 >= 35, "{:?}", shown(&without));
        assert_eq!(buffer.missing().into_iter().map(NodeName::as_str).collect::<Vec<_>>(), ["late"]);
        // Then it delivers what it has kept.
        let own = push_all(&mut buffer, &["late"], 30..60);
        assert!(own.iter().all(|batch| batch.threads().len() == 1) && own.len() >= 4, "{:?}", shown(&own));
        let again = push_all(&mut buffer, &["n1", "n2", "late"], 60..70);
        assert!(again.iter().any(|batch| batch.threads().len() == 3), "{:?}", shown(&again));
        assert!(buffer.missing().is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_is_believed_after_a_few_readings() {
        let mut buffer = buffer();
        push_all(&mut buffer, &["n1"], 5_000..5_040);
        let after = push_all(&mut buffer, &["n1"], 0..60);
        assert_eq!(buffer.status().n_clock_jumps, 1);
        assert!(after.len() >= 6, "{:?}", shown(&after));
    }

    #[test]
    fn a_reading_that_comes_twice_or_late_changes_nothing() {
        let (mut once, mut twice) = (buffer(), buffer());
        let (mut of_once, mut of_twice) = (Vec::new(), Vec::new());
        for second in 0..60 {
            of_once.extend(once.push(&reading("n1", second, Some("a")), SCALE));
            for repeated in [second, second, (second - 4).max(0)] {
                of_twice.extend(twice.push(&reading("n1", repeated, Some("a")), SCALE));
            }
        }
        assert_eq!(of_once, of_twice);
        assert!(twice.status().n_out_of_order > 50);
    }

    #[test]
    fn the_state_does_not_grow_with_the_number_of_jobs() {
        let mut buffer = buffer();
        for second in 0..2_000 {
            let name = (second / 2).to_string();
            let mut reading = reading("n1", second, Some(&name));
            reading.jobs.push(workload::JobReading::empty(JobId::new(&name).unwrap()));
            buffer.push(&reading, SCALE);
        }
        let node = buffer.nodes.values().next().unwrap();
        assert!(node.readings.len() < 100, "{}", node.readings.len());
    }
}
