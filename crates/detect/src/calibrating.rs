//! Sets the thresholds of a detector with held-out jobs, and finds out what the budget costs.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::label::family;
use workload::{Millis, Set, Stop, Timestamp};

use crate::calibration::{BudgetCosts, Calibration, FoundAtBudgets, KindOf};
use crate::config::ValidConfig;
use crate::data::{HeldOut, KnownJobs};
use crate::detector::Detector;
use crate::error::DetectError;
use crate::evidence::{Evidence, Observation, Subject, observe};
use crate::inject::{Fault, into_job};
use crate::units::Units;
use crate::window::WindowBatch;

/// Faults that show what the budget costs where there are no labelled anomalies, and their strength.
const FAULTS: [Fault; 4] = [Fault::SlowStorage, Fault::SystemTime, Fault::Starved, Fault::StuckRank];
const STRENGTH: f32 = 0.3;
/// The number of normal jobs that faults are injected into, and of their batches.
const MAX_INJECTED_JOBS: usize = 40;
const N_INJECTED_BATCHES: usize = 5;

/// Calibrates a detector.
pub struct Calibrating<'a> {
    pub config: &'a ValidConfig,
    pub period: Millis,
    pub known: &'a KnownJobs,
    pub seed: u64,
    pub stop: &'a Stop,
}

impl Calibrating<'_> {
    /// Calibrates with the validation set. `judge` is a detector that was not fitted to the batch. `None` if no job is
    /// long enough.
    pub fn run<'d>(
        &self,
        held_out: &HeldOut<'_>,
        judge: &(dyn Fn(Timestamp) -> &'d (dyn Detector + 'd) + Sync),
        detector: &dyn Detector,
    ) -> Result<Option<Calibration>, DetectError> {
        let mut normal = self.units();
        let mut injected = InjectedJobs::default();
        let examine = |batch: &WindowBatch| judge(batch.start()).examine(batch);
        held_out.examine(Set::Validation, &examine, self.stop, |batch, findings| {
            let observations = observe(batch, &findings, None).into_iter();
            let normal_only: Vec<Observation> =
                observations.filter(|one| !self.is_anomalous(&one.subject)).collect();
            normal.add(self.end_of(batch), &normal_only);
            injected.collect(batch, |subject| !self.is_anomalous(subject));
        })?;
        let kind_of = |subject: &Subject| Some(self.known.kind_of_job(subject.job()?)?.to_owned());
        let by_kind: Option<KindOf<'_>> = if self.config.threshold_by_kind { Some(&kind_of) } else { None };
        let budget = self.config.false_events_per_day;
        let Some(mut calibration) = Calibration::fit(&normal, budget, by_kind, self.seed) else {
            return Ok(None);
        };
        let costs = BudgetCosts::new(&normal);
        calibration.found = self.labelled(held_out, detector, &costs)?;
        calibration.found.extend(self.injected(&injected, judge, &costs)?);
        Ok(Some(calibration))
    }

    fn units(&self) -> Units {
        Units::new(self.config.confirmation(self.period), self.config.event_spec(self.period).stride_length())
    }

    fn end_of(&self, batch: &WindowBatch) -> Timestamp {
        batch.start() + self.config.window_spec(self.period, 1).length()
    }

    fn is_anomalous(&self, subject: &Subject) -> bool {
        subject.job().is_some_and(|job| self.known.is_anomalous_job(job))
    }

    /// How many of the labelled anomalies of the test set are found.
    fn labelled(
        &self,
        held_out: &HeldOut<'_>,
        detector: &dyn Detector,
        costs: &BudgetCosts,
    ) -> Result<Vec<FoundAtBudgets>, DetectError> {
        if !self.known.has_anomalies() {
            return Ok(Vec::new());
        }
        let mut units = self.units();
        let examine = |batch: &WindowBatch| detector.examine(batch);
        held_out.examine(Set::Test, &examine, self.stop, |batch, findings| {
            let observations = observe(batch, &findings, None).into_iter();
            let anomalous: Vec<Observation> =
                observations.filter(|one| self.is_anomalous(&one.subject)).collect();
            units.add(self.end_of(batch), &anomalous);
        })?;
        let mut by_kind: BTreeMap<String, Vec<BTreeMap<Evidence, f64>>> = BTreeMap::new();
        for (subject, values) in units.of_jobs() {
            let kind = subject.job().and_then(|job| self.known.kind_of_job(job)).unwrap_or_default();
            by_kind.entry(family(kind).to_owned()).or_default().push(values);
        }
        Ok(by_kind.iter().map(|(kind, jobs)| costs.found(kind, false, jobs)).collect())
    }

    /// How many faults are found that are injected into normal jobs.
    fn injected<'d>(
        &self,
        injected: &InjectedJobs,
        judge: &(dyn Fn(Timestamp) -> &'d (dyn Detector + 'd) + Sync),
        costs: &BudgetCosts,
    ) -> Result<Vec<FoundAtBudgets>, DetectError> {
        let mut found = Vec::new();
        for fault in FAULTS {
            let mut jobs = Vec::new();
            for (number, batches) in injected.jobs.values().enumerate() {
                self.stop.check()?;
                let mut units = self.units();
                let mut is_changed = false;
                for batch in batches {
                    let mut batch = batch.clone();
                    let n_channels = batch.n_channels();
                    let n_windows = batch.threads().len();
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed.wrapping_add(number as u64));
                    let mut threads = batch.values_mut(0..n_windows);
                    is_changed |=
                        into_job(fault, STRENGTH, &mut threads, n_channels, &mut rng).contains(&true);
                    let findings = judge(batch.start()).examine(&batch);
                    units.add(self.end_of(&batch), &observe(&batch, &findings, None));
                }
                // A job without time to move cannot have the fault.
                if is_changed {
                    jobs.extend(units.of_jobs().into_values());
                }
            }
            if !jobs.is_empty() {
                found.push(costs.found(fault.name(), true, &jobs));
            }
        }
        Ok(found)
    }
}

/// The first batches of some normal jobs, each alone.
#[derive(Default)]
struct InjectedJobs {
    jobs: BTreeMap<Subject, Vec<WindowBatch>>,
}

impl InjectedJobs {
    fn collect(&mut self, batch: &WindowBatch, is_normal: impl Fn(&Subject) -> bool) {
        for group in batch.groups() {
            let thread = &batch.threads()[group.start];
            let Some(job) = thread.job() else { continue };
            let subject = Subject::Job { node: thread.node.clone(), job: job.clone() };
            let is_full = self.jobs.len() >= MAX_INJECTED_JOBS && !self.jobs.contains_key(&subject);
            if is_full || !is_normal(&subject) {
                continue;
            }
            let batches = self.jobs.entry(subject).or_default();
            if batches.len() < N_INJECTED_BATCHES {
                batches.push(batch.filtered(|one| one.node == thread.node && one.owner == thread.owner));
            }
        }
    }
}
