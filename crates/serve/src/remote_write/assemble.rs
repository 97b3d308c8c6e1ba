//! Puts samples together to readings of nodes.
//!
//! Requests split a scrape in any way and may come in any order. A reading is complete when every series that its node
//! had before has arrived, or when later readings have been coming for a while.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_write::{Damaged, Sample, TimeSeries};
use workload::{
    Cpu, JobId, JobReading, Measure, Millis, Mode, ModeSet, NodeName, NodeReading, Owner, Source,
    ThreadReading, Ticks, Timestamp,
};

use super::meaning::Meaning;
use crate::counts::Ignored;

/// A reading is given out at the latest when the node has sent samples that are this much later.
const REORDER_WITHIN: Millis = Millis(10_000);
/// Or after this time, if the node sends nothing more.
pub const MAX_WAIT: Duration = Duration::from_secs(30);
/// Series whose meaning is remembered; all are forgotten beyond this.
const MAX_SERIES: usize = 8_000_000;
/// Readings of a node that are put together at a time.
const MAX_OPEN: usize = 64;
/// The kernel's clock ticks, and the resolution for counters that are finer.
const KERNEL_TICKS: u32 = 100;
const FINE_TICKS: u32 = 1_000_000;
/// The sampling interval of a node until its second reading.
const FIRST_PERIOD: Millis = Millis(1_000);
/// A job that has not been heard of for this long has ended.
const JOB_ENDED_AFTER: Millis = Millis(120_000);

/// A reading that is complete, and its source.
pub type Assembled = (Arc<Source>, NodeReading);

/// Puts samples together.
#[derive(Debug, Default)]
pub struct Assembler {
    hasher: RandomState,
    /// The meaning of each series, by the hash of its labels. Hashes have a random key, so nobody can make two series
    /// collide on purpose.
    series: HashMap<u64, Meaning>,
    nodes: BTreeMap<NodeName, NodeState>,
    ignored: BTreeMap<Ignored, u64>,
}

/// What is known about a node.
#[derive(Debug)]
struct NodeState {
    open: BTreeMap<Timestamp, Partial>,
    /// The modes that each thread has had.
    modes: BTreeMap<Cpu, ModeSet>,
    owners: BTreeMap<Cpu, (Timestamp, Owner)>,
    jobs: BTreeMap<JobId, JobState>,
    memory_bytes: Option<u64>,
    ticks_per_second: u32,
    /// The last reading that was given out.
    given: Option<Timestamp>,
    newest: Timestamp,
    source: Arc<Source>,
}

#[derive(Debug)]
struct JobState {
    counts: [Option<u64>; JobReading::N_COUNTS],
    changed: Timestamp,
    is_new: bool,
}

/// The samples of one time.
#[derive(Debug)]
struct Partial {
    threads: BTreeMap<Cpu, (Ticks, Vec<Mode>)>,
    n_samples: usize,
    begun: Instant,
}

impl Assembler {
    /// An assembler that ignores what the archive has: `archived` is the last reading of each node.
    pub fn after(archived: BTreeMap<NodeName, Timestamp>) -> Self {
        let node = |(name, last)| (name, NodeState { given: Some(last), ..NodeState::new() });
        Self { nodes: archived.into_iter().map(node).collect(), ..Self::default() }
    }

    /// Takes the samples of a series.
    pub fn push<'a>(&mut self, series: &impl TimeSeries<'a>) -> Result<(), Damaged> {
        let mut hasher = self.hasher.build_hasher();
        for label in series.labels() {
            let (name, value) = label?;
            hasher.write(name);
            hasher.write_u8(0xff);
            hasher.write(value);
            hasher.write_u8(0xff);
        }
        let hash = hasher.finish();
        if self.series.len() >= MAX_SERIES {
            self.series.clear();
        }
        let meaning = self.series.entry(hash).or_insert_with(|| Meaning::of(series.labels().flatten()));
        if let Meaning::Ignored(reason) = meaning {
            *self.ignored.entry(*reason).or_default() += series.n_samples() as u64;
            return Ok(());
        }
        let Some(name) = meaning.node() else { return Ok(()) };
        let node = match self.nodes.get_mut(name) {
            Some(node) => node,
            None => self.nodes.entry(name.clone()).or_insert_with(NodeState::new),
        };
        for sample in series.samples() {
            let sample = sample?;
            if let Some(reason) = node.take(meaning, &sample) {
                *self.ignored.entry(reason).or_default() += 1;
            }
        }
        Ok(())
    }

    /// The readings that are complete, in order of time for each node.
    pub fn complete(&mut self) -> Vec<Assembled> {
        let mut complete = Vec::new();
        for (name, node) in &mut self.nodes {
            node.give_out(name, &mut complete);
        }
        complete
    }

    /// What was not used since the last call.
    pub fn take_ignored(&mut self) -> BTreeMap<Ignored, u64> {
        std::mem::take(&mut self.ignored)
    }
}

impl NodeState {
    fn new() -> Self {
        Self {
            open: BTreeMap::new(),
            modes: BTreeMap::new(),
            owners: BTreeMap::new(),
            jobs: BTreeMap::new(),
            memory_bytes: None,
            ticks_per_second: KERNEL_TICKS,
            given: None,
            newest: Timestamp::MIN,
            source: source(KERNEL_TICKS, FIRST_PERIOD),
        }
    }

    /// Takes a sample; returns why it is not used.
    fn take(&mut self, meaning: &Meaning, sample: &Sample) -> Option<Ignored> {
        let time = Timestamp(sample.timestamp);
        if sample.is_stale() || !sample.value.is_finite() || sample.value < 0.0 {
            return None;
        }
        match meaning {
            Meaning::Cpu { cpu, mode, .. } => return self.take_cpu(*cpu, *mode, time, sample.value),
            Meaning::Owner { cpu, owner, .. } => {
                let is_newer = self.owners.get(cpu).is_none_or(|(known, _)| time >= *known);
                if is_newer && sample.value == 1.0 {
                    self.owners.insert(*cpu, (time, owner.clone()));
                }
            }
            Meaning::Job { job, index, .. } => {
                let empty = JobState { counts: [None; JobReading::N_COUNTS], changed: time, is_new: true };
                let state = self.jobs.entry(job.clone()).or_insert(empty);
                let factor = if JobReading::COUNTS[*index].ends_with("_usec") { 1e6 } else { 1.0 };
                state.counts[*index] = Some((sample.value * factor).round() as u64);
                (state.changed, state.is_new) = (state.changed.max(time), true);
            }
            Meaning::NodeMemory { .. } => self.memory_bytes = Some(sample.value as u64),
            Meaning::Ignored(_) => {}
        }
        None
    }

    fn take_cpu(&mut self, cpu: Cpu, mode: Mode, time: Timestamp, seconds: f64) -> Option<Ignored> {
        if self.given.is_some_and(|given| time <= given) {
            return Some(if self.given == Some(time) { Ignored::Late } else { Ignored::Duplicate });
        }
        let mut exact = seconds * f64::from(self.ticks_per_second);
        if self.ticks_per_second == KERNEL_TICKS && (exact - exact.round()).abs() > 1e-3 {
            // Its counters are finer than the kernel's.
            self.ticks_per_second = FINE_TICKS;
            self.open.clear();
            exact = seconds * f64::from(FINE_TICKS);
        }
        self.newest = self.newest.max(time);
        let empty = || Partial { threads: BTreeMap::new(), n_samples: 0, begun: Instant::now() };
        let partial = self.open.entry(time).or_insert_with(empty);
        let (ticks, modes) = partial.threads.entry(cpu).or_default();
        if modes.contains(&mode) {
            return Some(Ignored::Duplicate);
        }
        ticks[mode] = exact.round() as u64;
        modes.push(mode);
        partial.n_samples += 1;
        let known = self.modes.entry(cpu).or_insert(ModeSet::EMPTY);
        if !known.contains(mode) {
            *known = known.iter().chain([mode]).collect();
        }
        None
    }

    /// Gives out the readings that are complete.
    fn give_out(&mut self, name: &NodeName, complete: &mut Vec<Assembled>) {
        let n_expected: usize = self.modes.values().map(|modes| modes.iter().count()).sum();
        loop {
            let has_more = self.open.len() > 1;
            let is_crowded = self.open.len() > MAX_OPEN;
            let Some(first) = self.open.first_entry() else { break };
            let is_old =
                (self.newest - *first.key()).0 >= REORDER_WITHIN.0 || first.get().begun.elapsed() > MAX_WAIT;
            // The first reading shows which series there are: it has to wait for the second.
            let is_whole = first.get().n_samples >= n_expected && (self.given.is_some() || has_more);
            if !(is_old || is_whole || is_crowded) {
                break;
            }
            let (time, partial) = first.remove_entry();
            complete.push(self.reading(name, time, partial));
        }
    }

    fn reading(&mut self, name: &NodeName, time: Timestamp, partial: Partial) -> Assembled {
        let mut threads = Vec::new();
        for (cpu, (ticks, modes)) in partial.threads {
            // A thread without all of its modes would seem to have slept.
            let n_modes = self.modes.get(&cpu).map_or(0, |modes| modes.iter().count());
            if modes.len() == n_modes {
                let owner = self.owners.get(&cpu).map_or(Owner::Unknown, |(_, owner)| owner.clone());
                threads.push(ThreadReading { cpu, ticks, owner });
            }
        }
        self.jobs.retain(|_, job| (time - job.changed).0 < JOB_ENDED_AFTER.0);
        let mut jobs = Vec::new();
        for (job, state) in self.jobs.iter_mut().filter(|(_, state)| state.is_new) {
            state.is_new = false;
            let reading = JobReading::from_counts(job.clone(), state.counts);
            jobs.push(JobReading { node_memory_bytes: self.memory_bytes, ..reading });
        }
        if let Some(given) = self.given {
            self.update_source(time - given);
        }
        self.given = Some(time);
        (self.source.clone(), NodeReading { node: name.clone(), time, threads, jobs })
    }

    /// Follows the interval at which the node sends, rounded to what people configure.
    fn update_source(&mut self, interval: Millis) {
        let rounded =
            if interval.0 < 950 { (interval.0 + 50) / 100 * 100 } else { (interval.0 + 500) / 1_000 * 1_000 };
        let period = Millis(rounded.max(100));
        let is_new = self.source.ticks_per_second != self.ticks_per_second;
        // A missed scrape does not make the interval longer.
        if is_new
            || period < self.source.period
            || self.source.period == FIRST_PERIOD && period > FIRST_PERIOD
        {
            self.source = source(self.ticks_per_second, period);
        }
    }
}

fn source(ticks_per_second: u32, period: Millis) -> Arc<Source> {
    let origin = "remote write".into();
    Arc::new(Source { origin, measure: Measure::Counter, ticks_per_second, modes: ModeSet::ALL, period })
}
