//! Evidence: the measurements of one window batch that can speak for an anomaly of a job, of a node's unowned threads,
//! of a node or of the cluster.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};
use workload::{JobId, Millis, NodeName, Owner, Timestamp};

use crate::channel::N_RATES;
use crate::detector::{Finding, Level};
use crate::regions::Regions;
use crate::window::WindowBatch;

/// A source of evidence. Each measures something that grows with the strength of an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The largest reconstruction error of a thread.
    Error,
    /// How much the reconstruction error exceeds that of similar windows.
    Excess,
    /// How far a thread is from every group of normal windows.
    Thread,
    /// How far a thread is from the other threads of its job.
    Peers,
    /// How far all threads of a job are from normal jobs.
    Job,
    /// How far the jobs of a node are from normal, in the same way.
    Node,
    /// How far the jobs of the cluster are from normal, in the same way.
    Cluster,
    /// How unlikely the reconstruction error, the thread, its peers and its job are together.
    Combined,
    /// How fast a job uses up its memory.
    Memory,
    /// The fraction of the time of a job's threads that others use.
    ForeignCpu,
    /// How busy a thread is that no job owns.
    Unowned,
    /// How surely windows are of a kind that is known to be bad.
    Region,
    /// As [`Self::Error`], for longer than a window.
    LastingError,
    /// As [`Self::Thread`], for longer than a window.
    LastingThread,
    /// As [`Self::Job`], for longer than a window.
    LastingJob,
    /// As [`Self::Combined`], for longer than a window.
    LastingCombined,
}

/// How long evidence has to last before it opens an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmation {
    pub brief: Millis,
    /// Longer than a window: a disturbance that is over soon is in many windows, but not in all of that time, so that
    /// normal jobs have much smaller values.
    pub lasting: Millis,
}

impl Confirmation {
    fn of(self, evidence: Evidence) -> Millis {
        if evidence.is_lasting() { self.lasting } else { self.brief }
    }
}

impl Evidence {
    pub const ALL: [Self; 16] = [
        Self::Error,
        Self::Excess,
        Self::Thread,
        Self::Peers,
        Self::Job,
        Self::Node,
        Self::Cluster,
        Self::Combined,
        Self::Memory,
        Self::ForeignCpu,
        Self::Unowned,
        Self::Region,
        Self::LastingError,
        Self::LastingThread,
        Self::LastingJob,
        Self::LastingCombined,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Excess => "excess",
            Self::Thread => "thread",
            Self::Peers => "peers",
            Self::Job => "job",
            Self::Node => "node",
            Self::Cluster => "cluster",
            Self::Combined => "combined",
            Self::Memory => "memory",
            Self::ForeignCpu => "foreign-cpu",
            Self::Unowned => "unowned",
            Self::Region => "region",
            Self::LastingError => "lasting-error",
            Self::LastingThread => "lasting-thread",
            Self::LastingJob => "lasting-job",
            Self::LastingCombined => "lasting-combined",
        }
    }

    /// Whether it is about what threads do. Memory is not; CPU time of others on the threads of a job is.
    pub const fn is_of_windows(self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// Whether it has to last for longer than a window.
    pub const fn is_lasting(self) -> bool {
        matches!(self, Self::LastingError | Self::LastingThread | Self::LastingJob | Self::LastingCombined)
    }

    /// The same measurement that has to last for longer than a window, if that is used.
    const fn lasting(self) -> Option<Self> {
        match self {
            Self::Error => Some(Self::LastingError),
            Self::Thread => Some(Self::LastingThread),
            Self::Job => Some(Self::LastingJob),
            Self::Combined => Some(Self::LastingCombined),
            _ => None,
        }
    }

    /// Its part of the budget of false events. Sources that a cluster does not have leave theirs to the others.
    pub const fn weight(self) -> f64 {
        match self {
            Self::Combined => 0.2,
            Self::LastingCombined => 0.15,
            Self::LastingThread | Self::LastingJob | Self::Memory | Self::ForeignCpu => 0.1,
            Self::Job | Self::Unowned | Self::Region => 0.05,
            Self::Thread => 0.03,
            Self::Error => 0.015,
            Self::Excess | Self::Peers | Self::Node => 0.0125,
            Self::LastingError => 0.01,
            Self::Cluster => 0.0075,
        }
    }

    /// The mean by which the largest tenth of normal values exceed the others, as a part of those, before any is known.
    pub const fn prior_excess(self) -> f64 {
        match self {
            // A logarithm varies less.
            Self::Combined | Self::LastingCombined => 0.1,
            _ => 0.25,
        }
    }

    /// The smallest threshold, as a multiple of the one that most validation jobs give. Validation data does not contain
    /// every disturbance that is normal, such as a stall of storage. Those are over soon, so brief evidence has to be
    /// much stronger than the budget asks for.
    pub const fn margin(self) -> f64 {
        match self {
            Self::Excess | Self::Thread | Self::Peers | Self::Job | Self::Node | Self::Cluster => 5.0,
            Self::Error => 3.0,
            // A logarithm.
            Self::Combined => 1.2,
            _ => 1.0,
        }
    }

    /// Added to its measurements, so that their logarithms do not separate nothing from next to nothing.
    pub const fn floor(self) -> f64 {
        match self {
            Self::Error | Self::LastingError => 5e-4,
            // Parts of the largest normal distance.
            Self::Thread | Self::Job | Self::LastingThread | Self::LastingJob => 0.25,
            // Squared standard deviations.
            Self::Excess | Self::Peers | Self::Node | Self::Cluster => 1.0,
            // Decimal logarithms of probabilities.
            Self::Combined | Self::LastingCombined => 1.0,
            // Per hour.
            Self::Memory => 0.05,
            // Fractions of a thread's time.
            Self::ForeignCpu | Self::Unowned => 0.02,
            // Odds.
            Self::Region => 0.3,
        }
    }

    /// A measurement that is anomalous whatever few normal jobs say: where the budget asks for more, there is too little
    /// data for it.
    pub const fn ceiling(self) -> f64 {
        match self {
            Self::Error | Self::LastingError => 0.2,
            Self::Memory => 10.0,
            Self::ForeignCpu => 0.4,
            Self::Unowned => 0.5,
            Self::Region => 99.0,
            _ => f64::INFINITY,
        }
    }

    /// The level of the hierarchical detector that explains it.
    pub const fn level(self) -> Option<Level> {
        match self {
            Self::Excess => Some(Level::Reconstruction),
            Self::Thread | Self::LastingThread => Some(Level::Thread),
            Self::Peers => Some(Level::Peers),
            Self::Job | Self::LastingJob => Some(Level::Job),
            Self::Node => Some(Level::Node),
            Self::Cluster => Some(Level::Cluster),
            Self::Combined | Self::LastingCombined => Some(Level::Combined),
            Self::Error
            | Self::LastingError
            | Self::Memory
            | Self::ForeignCpu
            | Self::Unowned
            | Self::Region => None,
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an observation is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The threads of a job on a node.
    Job {
        node: NodeName,
        job: JobId,
    },
    /// The threads of a node that no job owns.
    Unowned {
        node: NodeName,
    },
    /// The threads of a node whose job is not known, because jobs share them or run without a cpuset.
    Unattributed {
        node: NodeName,
    },
    Node {
        node: NodeName,
    },
    Cluster,
}

impl Subject {
    fn of(node: &NodeName, owner: &Owner) -> Self {
        let node = node.clone();
        match owner {
            Owner::Job(job) => Self::Job { node, job: job.clone() },
            Owner::Nobody => Self::Unowned { node },
            Owner::Shared | Owner::Unknown => Self::Unattributed { node },
        }
    }

    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Job { node, .. }
            | Self::Unowned { node }
            | Self::Unattributed { node }
            | Self::Node { node } => Some(node),
            Self::Cluster => None,
        }
    }

    pub fn job(&self) -> Option<&JobId> {
        match self {
            Self::Job { job, .. } => Some(job),
            _ => None,
        }
    }
}

/// One measurement of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub subject: Subject,
    pub evidence: Evidence,
    /// The measurement and [`Evidence::floor`]: greater than zero, larger is more anomalous.
    pub value: f64,
    /// The window of the batch with this value, or that represents the subject.
    pub window: usize,
}

/// All measurements of a batch.
pub fn observe(batch: &WindowBatch, findings: &[Finding], regions: Option<&Regions>) -> Vec<Observation> {
    let mut all = Observations(Vec::new());
    for group in batch.groups() {
        let thread = &batch.threads()[group.start];
        let subject = Subject::of(&thread.node, &thread.owner);
        let of = |value: &dyn Fn(usize) -> f64| largest(group.clone(), value);
        all.add(&subject, Evidence::Error, of(&|window| findings[window].error()));
        let is_job = subject.job().is_some();
        if !findings[group.start].distances.is_empty() {
            let at = |level: Level| of(&|window| findings[window].distances[level as usize]);
            all.add(&subject, Evidence::Excess, at(Level::Reconstruction));
            all.add(&subject, Evidence::Thread, at(Level::Thread));
            // Threads without a common job need not resemble each other.
            if is_job {
                all.add(&subject, Evidence::Peers, at(Level::Peers));
                all.add(&subject, Evidence::Job, at(Level::Job));
                all.add(&subject, Evidence::Combined, at(Level::Combined));
            }
        }
        if thread.owner == Owner::Nobody {
            let busy =
                |window: usize| computing_fraction(&batch.threads()[window].values, batch.n_channels());
            all.add(&subject, Evidence::Unowned, of(&busy));
        }
        let usage = batch.usage_of(thread);
        // A job does not vouch for itself.
        let is_fresh = |regions: &&Regions| subject.job().is_some_and(|job| !regions.contains(job));
        if let Some(regions) = regions.filter(is_fresh) {
            let odds: Vec<f64> = group.clone().map(|window| regions.odds(&findings[window], usage)).collect();
            all.add(&subject, Evidence::Region, (group.start, learn::stats::median(odds)));
        }
        if let Some(memory) = usage.and_then(|usage| usage.memory) {
            all.add(&subject, Evidence::Memory, (group.start, memory.exhaustions_per_hour()));
        }
        if let Some((foreign, n_threads)) =
            usage.and_then(|usage| Some((usage.foreign_cpu?, usage.n_threads)))
        {
            // A large job has more of everything, so its size must not count.
            all.add(&subject, Evidence::ForeignCpu, (group.start, foreign / n_threads.max(1) as f64));
        }
    }
    if findings.first().is_some_and(|finding| !finding.distances.is_empty()) {
        for windows in batch.nodes() {
            let subject = Subject::Node { node: batch.threads()[windows.start].node.clone() };
            let distance = |window: usize| findings[window].distances[Level::Node as usize];
            all.add(&subject, Evidence::Node, largest(windows, distance));
        }
        // A node that is scored by its own clock is not the cluster.
        if batch.nodes().len() > 1 {
            let distance = |window: usize| findings[window].distances[Level::Cluster as usize];
            all.add(&Subject::Cluster, Evidence::Cluster, largest(0..findings.len(), distance));
        }
    }
    all.0
}

struct Observations(Vec<Observation>);

impl Observations {
    fn add(&mut self, subject: &Subject, evidence: Evidence, (window, value): (usize, f64)) {
        // A level with too few jobs to compare has the distance zero.
        let is_absent = value <= 0.0 && matches!(evidence, Evidence::Node | Evidence::Cluster);
        let value = value + evidence.floor();
        if !is_absent && value > 0.0 && value.is_finite() {
            for evidence in [Some(evidence), evidence.lasting()].into_iter().flatten() {
                self.0.push(Observation { subject: subject.clone(), evidence, value, window });
            }
        }
    }
}

/// The window with the largest value.
fn largest(windows: std::ops::Range<usize>, value: impl Fn(usize) -> f64) -> (usize, f64) {
    let first = windows.start;
    let all = windows.map(|window| (window, value(window)));
    all.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((first, 0.0))
}

/// The fraction of its time that a thread computed.
pub fn computing_fraction(window: &[f32], n_channels: usize) -> f64 {
    debug_assert!(n_channels >= N_RATES);
    let steps = window.chunks_exact(n_channels);
    let n_steps = steps.len().max(1) as f64;
    steps.map(|step| f64::from(step[0] + step[1])).sum::<f64>() / n_steps
}

/// Keeps the last values of every measurement, so that only those that last count.
#[derive(Debug)]
pub struct Sustained {
    confirmation: Confirmation,
    recent: BTreeMap<(Subject, Evidence), VecDeque<(Timestamp, f64)>>,
}

impl Sustained {
    pub fn new(confirmation: Confirmation) -> Self {
        Self { confirmation, recent: BTreeMap::new() }
    }

    /// Takes a measurement of the window that ends at `time`; returns the smallest value since the confirmation began,
    /// or `None` if the measurement is younger than that.
    pub fn push(&mut self, time: Timestamp, observation: &Observation) -> Option<f64> {
        let confirmation = self.confirmation.of(observation.evidence);
        let key = (observation.subject.clone(), observation.evidence);
        let recent = self.recent.entry(key).or_default();
        // Two groups of threads may belong to one subject.
        if let Some((_, value)) = recent.back_mut().filter(|(last, _)| *last == time) {
            *value = value.max(observation.value);
            return None;
        }
        // After a pause, the measurement begins anew.
        if recent.back().is_some_and(|(last, _)| (time - *last).0 > 2 * confirmation.0 || time <= *last) {
            recent.clear();
        }
        recent.push_back((time, observation.value));
        let begin = time - confirmation;
        while recent.get(1).is_some_and(|(second, _)| *second <= begin) {
            recent.pop_front();
        }
        let has_lasted = recent.front().is_some_and(|(first, _)| *first <= begin);
        has_lasted.then(|| recent.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min))
    }

    /// Forgets subjects that have not been observed since a time, which depends on the subject.
    pub fn forget_before(&mut self, time: impl Fn(&Subject) -> Timestamp) {
        self.recent
            .retain(|(subject, _), recent| recent.back().is_some_and(|(last, _)| *last >= time(subject)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(value: f64) -> Observation {
        Observation { subject: Subject::Cluster, evidence: Evidence::Error, value, window: 0 }
    }

    #[test]
    fn a_value_counts_once_it_has_lasted() {
        let mut sustained = Sustained::new(Confirmation { brief: Millis(20_000), lasting: Millis(140_000) });
        let mut push =
            |second: i64, value| sustained.push(Timestamp::from_seconds(second), &observation(value));
        assert_eq!([push(0, 5.0), push(10, 7.0)], [None, None]);
        assert_eq!([push(20, 9.0), push(30, 1.0), push(40, 8.0)], [Some(5.0), Some(1.0), Some(1.0)]);
        assert_eq!([push(50, 8.0), push(60, 8.0)], [Some(1.0), Some(8.0)]);
        assert_eq!(
            [push(600, 8.0), push(610, 8.0), push(620, 8.0)],
            [None, None, Some(8.0)],
            "after a pause"
        );
        sustained.forget_before(|_| Timestamp::from_seconds(700));
        assert!(sustained.recent.is_empty());
    }

    #[test]
    fn the_budget_is_shared_completely() {
        let total: f64 = Evidence::ALL.iter().map(|evidence| evidence.weight()).sum();
        assert!((total - 1.0).abs() < 1e-12, "{total}");
        let names: std::collections::BTreeSet<&str> = Evidence::ALL.iter().map(|one| one.name()).collect();
        assert_eq!(names.len(), Evidence::ALL.len());
    }

    #[test]
    fn levels_are_found_by_their_number() {
        for (index, level) in Level::ALL.into_iter().enumerate() {
            assert_eq!(level as usize, index);
        }
    }
}
