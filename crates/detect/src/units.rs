//! Units of normal behaviour: of each job, for each hour, the largest value of each source of evidence that lasted.

use std::collections::{BTreeMap, BTreeSet};

use workload::{Millis, Timestamp};

use crate::evidence::{Confirmation, Evidence, Observation, Subject, Sustained};

/// A job, or the threads of a node without a job, count as one unit for each hour they were observed in.
const UNIT_LENGTH: Millis = Millis::HOUR;
/// Subjects that have ended are forgotten every so many batches.
const FORGET_EVERY: usize = 100;

/// The largest values that lasted, of every unit.
#[derive(Debug)]
pub struct Units {
    sustained: Sustained,
    stride: Millis,
    largest: BTreeMap<(Subject, i64), BTreeMap<Evidence, f64>>,
    /// The ends of all windows.
    times: BTreeSet<Timestamp>,
}

impl Units {
    /// `stride` is the time from one batch to the next.
    pub fn new(confirmation: Confirmation, stride: Millis) -> Self {
        let sustained = Sustained::new(confirmation);
        Self { sustained, stride, largest: BTreeMap::new(), times: BTreeSet::new() }
    }

    /// Adds the observations of a batch whose windows end at `end`.
    pub fn add(&mut self, end: Timestamp, observations: &[Observation]) {
        self.times.insert(end);
        let hour = end.0.div_euclid(UNIT_LENGTH.0);
        if self.times.len().is_multiple_of(FORGET_EVERY) {
            self.sustained.forget_before(|_| end - UNIT_LENGTH);
        }
        for observation in observations {
            let Some(value) = self.sustained.push(end, observation) else { continue };
            let unit = self.largest.entry((observation.subject.clone(), hour)).or_default();
            let largest = unit.entry(observation.evidence).or_insert(value);
            *largest = largest.max(value);
        }
    }

    /// How much time was observed.
    pub fn days(&self) -> f64 {
        self.times.len() as f64 * self.stride.as_seconds() / 86_400.0
    }

    /// The subject of every unit.
    pub fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.largest.keys().map(|(subject, _)| subject)
    }

    /// The largest value of each source that a job had in any hour.
    pub fn of_jobs(&self) -> BTreeMap<&Subject, BTreeMap<Evidence, f64>> {
        let mut jobs: BTreeMap<&Subject, BTreeMap<Evidence, f64>> = BTreeMap::new();
        for ((subject, _), unit) in self.largest.iter().filter(|((subject, _), _)| subject.job().is_some()) {
            let job = jobs.entry(subject).or_default();
            for (evidence, value) in unit {
                let largest = job.entry(*evidence).or_insert(*value);
                *largest = largest.max(*value);
            }
        }
        jobs
    }

    /// The values of one source, by subject.
    pub fn values(&self, evidence: Evidence, is_wanted: impl Fn(&Subject) -> bool) -> Vec<Vec<f64>> {
        let mut by_subject: BTreeMap<&Subject, Vec<f64>> = BTreeMap::new();
        for ((subject, _), unit) in self.largest.iter().filter(|((subject, _), _)| is_wanted(subject)) {
            if let Some(value) = unit.get(&evidence) {
                by_subject.entry(subject).or_default().push(*value);
            }
        }
        by_subject.into_values().collect()
    }
}
