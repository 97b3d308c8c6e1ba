//! Puts samples together to readings of nodes.
//!
//! Requests split a scrape in any way and may come in any order. A reading is complete when every series that its node
//! had before has arrived, or when later readings have been coming for a while.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
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
/// How often nodes are looked at that have sent nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Series whose meaning is remembered; all are forgotten beyond this.
const MAX_SERIES: usize = 8_000_000;
/// Nodes that are known at a time. Series of more are not used.
const MAX_NODES: usize = 100_000;
/// Readings of a node that are put together at a time.
const MAX_OPEN: usize = 64;
/// A thread that is missing in so many readings in turn is no longer waited for.
const MAX_MISSING: u32 = 30;
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
    /// What each series is, with the hash of its labels, in the order in which they were first seen. Hashes have a random
    /// key, so nobody can make two series collide on purpose.
    series: Vec<(u64, Known)>,
    /// The place in `series` of each hash.
    places: HashMap<u64, usize, BuildHasherDefault<HashedBefore>>,
    /// Senders repeat series in the same order: this is the place of the one that should come next. Looking there first
    /// avoids most accesses to `places`, which does not fit into the processor's caches.
    next: usize,
    nodes: Vec<NodeState>,
    numbers: BTreeMap<NodeName, u32>,
    /// Nodes that have sent samples since the last call of [`complete`](Self::complete).
    changed: Vec<u32>,
    looked: Option<Instant>,
    ignored: BTreeMap<Ignored, u64>,
}

/// What a series is. Nearly all are counters of threads, whose entry is small: there may be millions of them.
#[derive(Debug)]
enum Known {
    Cpu {
        node: u32,
        /// The number of the thread in its node.
        thread: u16,
        mode: Mode,
    },
    Other {
        node: u32,
        meaning: Box<Meaning>,
    },
    Ignored(Ignored),
}

/// Passes on a number that is a hash.
#[derive(Debug, Default)]
struct HashedBefore(u64);

impl Hasher for HashedBefore {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// What is known about a node.
#[derive(Debug)]
struct NodeState {
    name: NodeName,
    threads: Vec<ThreadState>,
    numbers: BTreeMap<Cpu, u16>,
    /// The samples that a whole reading has.
    n_expected: usize,
    /// Readings that are being put together, in order of time.
    open: Vec<Partial>,
    is_changed: bool,
    jobs: BTreeMap<JobId, JobState>,
    memory_bytes: Option<u64>,
    ticks_per_second: u32,
    /// The last reading that was given out.
    given: Option<Timestamp>,
    newest: Timestamp,
    source: Arc<Source>,
}

#[derive(Debug)]
struct ThreadState {
    cpu: Cpu,
    /// The modes that it has had.
    modes: ModeSet,
    owner: Option<(Timestamp, Owner)>,
    /// The readings in turn that it was missing in.
    n_missing: u32,
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
    time: Timestamp,
    /// By the number of the thread.
    threads: Vec<(Ticks, ModeSet)>,
    n_samples: usize,
    begun: Instant,
}

impl Assembler {
    /// An assembler that ignores what the archive has: `archived` is the last reading of each node.
    pub fn after(archived: BTreeMap<NodeName, Timestamp>) -> Self {
        let mut assembler = Self::default();
        for (name, last) in archived {
            if let Some(number) = assembler.number(&name) {
                assembler.nodes[number as usize].given = Some(last);
            }
        }
        assembler
    }

    /// The number of a node, unless there are too many.
    fn number(&mut self, name: &NodeName) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.nodes.len() >= MAX_NODES {
            return None;
        }
        let number = self.nodes.len() as u32;
        self.nodes.push(NodeState::new(name.clone()));
        self.numbers.insert(name.clone(), number);
        Some(number)
    }

    /// Finds out what a new series is.
    fn learn(&mut self, meaning: Meaning) -> Known {
        if let Meaning::Ignored(reason) = meaning {
            return Known::Ignored(reason);
        }
        let Some(node) = meaning.node().and_then(|name| self.number(name)) else {
            return Known::Ignored(Ignored::Labels);
        };
        match meaning {
            Meaning::Cpu { cpu, mode, .. } => {
                Known::Cpu { node, thread: self.nodes[node as usize].number(cpu), mode }
            }
            meaning => Known::Other { node, meaning: Box::new(meaning) },
        }
    }

    /// The place of a series, which may be new.
    fn place<'a>(&mut self, hash: u64, series: &impl TimeSeries<'a>) -> usize {
        if let Some(place) = self.places.get(&hash) {
            return *place;
        }
        if self.series.len() >= MAX_SERIES {
            self.series.clear();
            self.places.clear();
        }
        let known = self.learn(Meaning::of(series.labels().flatten()));
        self.series.push((hash, known));
        self.places.insert(hash, self.series.len() - 1);
        self.series.len() - 1
    }

    /// Takes the samples of a series.
    pub fn push<'a>(&mut self, series: &impl TimeSeries<'a>) -> Result<(), Damaged> {
        let mut hasher = self.hasher.build_hasher();
        series.hash_labels(&mut hasher)?;
        let hash = hasher.finish();
        let place = match self.series.get(self.next) {
            Some((expected, _)) if *expected == hash => self.next,
            _ => self.place(hash, series),
        };
        self.next = place + 1;
        let known = &self.series[place].1;
        let number = match known {
            Known::Ignored(reason) => {
                *self.ignored.entry(*reason).or_default() += series.n_samples() as u64;
                return Ok(());
            }
            Known::Cpu { node, .. } | Known::Other { node, .. } => *node,
        };
        let node = &mut self.nodes[number as usize];
        if !node.is_changed {
            node.is_changed = true;
            self.changed.push(number);
        }
        for sample in series.samples() {
            let sample = sample?;
            if sample.is_stale() || !sample.value.is_finite() || sample.value < 0.0 {
                continue;
            }
            let refused = match known {
                Known::Cpu { thread, mode, .. } => node.take_cpu(*thread, *mode, &sample),
                Known::Other { meaning, .. } => {
                    node.take(meaning, &sample);
                    None
                }
                Known::Ignored(_) => None,
            };
            if let Some(reason) = refused {
                *self.ignored.entry(reason).or_default() += 1;
            }
        }
        Ok(())
    }

    /// The readings that are complete, in order of time for each node.
    pub fn complete(&mut self) -> Vec<Assembled> {
        let mut complete = Vec::new();
        for number in self.changed.drain(..) {
            let node = &mut self.nodes[number as usize];
            node.is_changed = false;
            node.give_out(&mut complete);
        }
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            self.looked = Some(Instant::now());
            self.nodes.iter_mut().for_each(|node| node.give_out(&mut complete));
        }
        complete
    }

    /// What was not used since the last call.
    pub fn take_ignored(&mut self) -> BTreeMap<Ignored, u64> {
        std::mem::take(&mut self.ignored)
    }
}

impl NodeState {
    fn new(name: NodeName) -> Self {
        Self {
            name,
            threads: Vec::new(),
            numbers: BTreeMap::new(),
            n_expected: 0,
            open: Vec::new(),
            is_changed: false,
            jobs: BTreeMap::new(),
            memory_bytes: None,
            ticks_per_second: KERNEL_TICKS,
            given: None,
            newest: Timestamp::MIN,
            source: source(KERNEL_TICKS, FIRST_PERIOD),
        }
    }

    /// The number of a thread.
    fn number(&mut self, cpu: Cpu) -> u16 {
        if let Some(number) = self.numbers.get(&cpu) {
            return *number;
        }
        // There are as many numbers as there can be threads.
        let number = self.threads.len() as u16;
        self.threads.push(ThreadState { cpu, modes: ModeSet::EMPTY, owner: None, n_missing: 0 });
        self.numbers.insert(cpu, number);
        number
    }

    /// Takes a sample that is not a counter of a thread.
    fn take(&mut self, meaning: &Meaning, sample: &Sample) {
        let time = Timestamp(sample.timestamp);
        match meaning {
            Meaning::Owner { cpu, owner, .. } => {
                let number = self.number(*cpu);
                let known = &mut self.threads[usize::from(number)].owner;
                let is_newer = known.as_ref().is_none_or(|(known, _)| time >= *known);
                if is_newer && sample.value == 1.0 {
                    match known {
                        Some((known, same)) if same == owner => *known = time,
                        _ => *known = Some((time, owner.clone())),
                    }
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
            Meaning::Cpu { .. } | Meaning::Ignored(_) => {}
        }
    }

    /// Takes a counter of a thread; returns why it is not used.
    fn take_cpu(&mut self, thread: u16, mode: Mode, sample: &Sample) -> Option<Ignored> {
        let time = Timestamp(sample.timestamp);
        if self.given.is_some_and(|given| time <= given) {
            return Some(if self.given == Some(time) { Ignored::Late } else { Ignored::Duplicate });
        }
        let mut exact = sample.value * f64::from(self.ticks_per_second);
        if self.ticks_per_second == KERNEL_TICKS && (exact - exact.round()).abs() > 1e-3 {
            // Its counters are finer than the kernel's.
            self.ticks_per_second = FINE_TICKS;
            self.open.clear();
            exact = sample.value * f64::from(FINE_TICKS);
        }
        self.newest = self.newest.max(time);
        let thread = usize::from(thread);
        let partial = self.partial(time);
        if partial.threads.len() <= thread {
            partial.threads.resize(thread + 1, (Ticks::default(), ModeSet::EMPTY));
        }
        let (ticks, modes) = &mut partial.threads[thread];
        if modes.contains(mode) {
            return Some(Ignored::Duplicate);
        }
        ticks[mode] = exact.round() as u64;
        *modes = modes.with(mode);
        partial.n_samples += 1;
        let state = &mut self.threads[thread];
        if !state.modes.contains(mode) {
            state.modes = state.modes.with(mode);
            self.n_expected += 1;
        }
        None
    }

    /// The samples of a time, which is nearly always the last one.
    fn partial(&mut self, time: Timestamp) -> &mut Partial {
        let after = self.open.iter().rposition(|partial| partial.time <= time).map_or(0, |at| at + 1);
        let is_known = after > 0 && self.open[after - 1].time == time;
        if !is_known {
            let threads = Vec::with_capacity(self.threads.len());
            self.open.insert(after, Partial { time, threads, n_samples: 0, begun: Instant::now() });
        }
        &mut self.open[if is_known { after - 1 } else { after }]
    }

    /// Gives out the readings that are complete.
    fn give_out(&mut self, complete: &mut Vec<Assembled>) {
        while let Some(first) = self.open.first() {
            let is_crowded = self.open.len() > MAX_OPEN;
            let is_old = (self.newest - first.time).0 >= REORDER_WITHIN.0 || first.begun.elapsed() > MAX_WAIT;
            // The first reading shows which series there are: it has to wait for the second.
            let is_whole =
                first.n_samples >= self.n_expected && (self.given.is_some() || self.open.len() > 1);
            if !(is_old || is_whole || is_crowded) {
                break;
            }
            let partial = self.open.remove(0);
            complete.push(self.reading(partial));
        }
    }

    fn reading(&mut self, partial: Partial) -> Assembled {
        let time = partial.time;
        let mut threads = Vec::with_capacity(self.threads.len());
        let missing = std::iter::repeat((Ticks::default(), ModeSet::EMPTY));
        for (state, (ticks, modes)) in self.threads.iter_mut().zip(partial.threads.into_iter().chain(missing))
        {
            if modes == ModeSet::EMPTY {
                state.n_missing += 1;
                if state.n_missing == MAX_MISSING {
                    self.n_expected -= state.modes.count();
                    state.modes = ModeSet::EMPTY;
                }
                continue;
            }
            state.n_missing = 0;
            // A thread without all of its modes would seem to have slept.
            if modes == state.modes {
                let owner = state.owner.as_ref().map_or(Owner::Unknown, |(_, owner)| owner.clone());
                threads.push(ThreadReading { cpu: state.cpu, ticks, owner });
            }
        }
        threads.sort_by_key(|thread| thread.cpu);
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
        (self.source.clone(), NodeReading { node: self.name.clone(), time, threads, jobs })
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
