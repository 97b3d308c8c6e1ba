//! Thresholds for a budget of false events per day.
//!
//! The independent units are jobs, not windows: of each normal job, the largest value of each source of evidence that
//! lasted is kept. A threshold is the value that a normal job exceeds with the probability that the budget leaves to the
//! source, by a tail model where there are too few jobs to count. Jobs are resampled (bootstrap) to see how much the
//! thresholds depend on which of them were recorded.

use std::collections::{BTreeMap, BTreeSet};

use learn::artifact::restore::{RestoreError, ensure};
use learn::stats::{quantile, std_dev};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::detector::Finding;
use crate::evidence::{Evidence, Subject};
use crate::tail::TailFit;
use crate::units::Units;

const N_RESAMPLED: usize = 200;
/// With fewer jobs, a calibration is called uncertain.
const ENOUGH_JOBS: usize = 50;
/// A kind needs this many units for thresholds of its own.
const MIN_UNITS_OF_KIND: usize = 20;
/// The part of the values that a margin refers to. The others may come from a disturbance of several jobs at once.
const BULK: f64 = 0.95;
/// No threshold is set for a probability above this.
const MAX_PROBABILITY: f64 = 0.5;
/// The standard deviation of the logarithm of a threshold that no unit supports.
const UNKNOWN_STD_ERROR: f64 = 0.5;
/// The budgets whose cost is reported, in false events per day.
pub const BUDGETS: [f64; 3] = [0.1, 1.0, 10.0];
/// The budgets whose thresholds are kept. Others are interpolated.
const KEPT_BUDGETS: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];

/// The threshold of one source of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    pub value: f64,
    /// The standard deviation of its logarithm over resampled jobs.
    pub log_std_error: f64,
    pub n_units: usize,
    /// The probability that a normal unit exceeds it.
    pub probability: f64,
}

pub type Thresholds = BTreeMap<Evidence, Threshold>;

/// The kind of a subject, if it is known.
pub type KindOf<'a> = &'a dyn Fn(&Subject) -> Option<String>;

/// How often anomalies of a kind are found at each of [`BUDGETS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundAtBudgets {
    pub kind: String,
    /// Whether the anomalies were injected into normal jobs, and not recorded.
    pub is_injected: bool,
    pub n_jobs: usize,
    pub n_found: [usize; BUDGETS.len()],
}

/// The thresholds that another budget would have given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtBudget {
    pub false_events_per_day: f64,
    pub values: BTreeMap<Evidence, f64>,
}

/// The thresholds of a detector. [`Calibration::threshold`] is the only rule for which one applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The budget: false events per day for the whole cluster.
    pub false_events_per_day: f64,
    /// The 5th and 95th percentile of the rate that the thresholds give, over resampled jobs.
    pub plausible_events_per_day: [f64; 2],
    /// How much time of validation data there was, and how many jobs.
    pub days: f64,
    pub n_jobs: usize,
    /// Units per day of jobs, for sources that are calibrated later.
    pub jobs_per_day: f64,
    pub thresholds: Thresholds,
    /// For kinds of jobs with enough of them; only if configured.
    #[serde(default)]
    pub for_kind: BTreeMap<String, Thresholds>,
    /// What the budget costs.
    #[serde(default)]
    pub found: Vec<FoundAtBudgets>,
    /// The thresholds of other budgets, in order; empty in models that were calibrated before they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_budgets: Vec<AtBudget>,
}

impl Calibration {
    /// Fits the units of normal jobs; `None` if there are none. With `kind_of`, kinds with enough units get thresholds
    /// of their own.
    pub fn fit(
        units: &Units,
        false_events_per_day: f64,
        kind_of: Option<KindOf<'_>>,
        seed: u64,
    ) -> Option<Self> {
        let days = units.days();
        let sources = Sources::of(units, &|_| true);
        if sources.by_evidence.is_empty() || days <= 0.0 {
            return None;
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let probabilities = sources.probabilities(false_events_per_day, days);
        let (thresholds, plausible_events_per_day) = sources.calibrate(&probabilities, days, &mut rng);
        let mut for_kind = BTreeMap::new();
        if let Some(kind_of) = kind_of {
            let kinds: BTreeSet<String> = units.subjects().filter_map(kind_of).collect();
            for kind in kinds {
                let mut of_kind = Sources::of(units, &|subject| kind_of(subject).as_ref() == Some(&kind));
                of_kind.by_evidence.retain(|_, values| n_units(values) >= MIN_UNITS_OF_KIND);
                let (mut of_kind, _) = of_kind.calibrate(&probabilities, days, &mut rng);
                of_kind.retain(|_, threshold| threshold.n_units > 0);
                for_kind.insert(kind, of_kind);
            }
            for_kind.retain(|_, thresholds: &mut Thresholds| !thresholds.is_empty());
        }
        let n_job_units = units.subjects().filter(|subject| subject.job().is_some()).count();
        Some(Self {
            false_events_per_day,
            plausible_events_per_day,
            days,
            n_jobs: units.of_jobs().len(),
            jobs_per_day: n_job_units as f64 / days,
            thresholds,
            for_kind,
            found: Vec::new(),
            at_budgets: sources.at_budgets(false_events_per_day, days),
        })
    }

    /// The same calibration for another budget; `None` if it is not between those whose thresholds were kept.
    #[must_use]
    pub fn with_budget(&self, false_events_per_day: f64) -> Option<Self> {
        let mut other = self.clone();
        let factors: BTreeMap<Evidence, f64> = self
            .thresholds
            .keys()
            .map(|evidence| {
                let own = self.value_at(*evidence, self.false_events_per_day)?;
                Some((*evidence, self.value_at(*evidence, false_events_per_day)? / own))
            })
            .collect::<Option<_>>()?;
        let all = other.for_kind.values_mut().chain([&mut other.thresholds]);
        for (evidence, threshold) in all.flatten() {
            threshold.value *= factors.get(evidence).copied().unwrap_or(1.0);
            let probability = threshold.probability * false_events_per_day / self.false_events_per_day;
            threshold.probability = probability.min(MAX_PROBABILITY);
        }
        let scaled = |rate: f64| rate * false_events_per_day / self.false_events_per_day;
        other.plausible_events_per_day = other.plausible_events_per_day.map(scaled);
        other.false_events_per_day = false_events_per_day;
        Some(other)
    }

    /// The smallest and the largest budget that [`with_budget`](Self::with_budget) knows.
    pub fn budgets(&self) -> Option<[f64; 2]> {
        let budgets = || self.at_budgets.iter().map(|one| one.false_events_per_day);
        Some([budgets().next()?, budgets().next_back()?])
    }

    /// The threshold of a source at a budget, interpolated between those that were kept.
    fn value_at(&self, evidence: Evidence, false_events_per_day: f64) -> Option<f64> {
        let after =
            self.at_budgets.iter().position(|one| one.false_events_per_day >= false_events_per_day)?;
        let upper = &self.at_budgets[after];
        let value = |one: &AtBudget| one.values.get(&evidence).copied();
        if upper.false_events_per_day == false_events_per_day {
            return value(upper);
        }
        let lower = self.at_budgets.get(after.checked_sub(1)?)?;
        let place = (false_events_per_day / lower.false_events_per_day).ln()
            / (upper.false_events_per_day / lower.false_events_per_day).ln();
        let (low, high) = (value(lower)?, value(upper)?);
        Some((low.ln() + place * (high / low).ln()).exp())
    }

    /// The threshold of a source for a kind of job, if there is one.
    pub fn threshold(&self, evidence: Evidence, kind: Option<&str>) -> Option<&Threshold> {
        let of_kind = kind.and_then(|kind| self.for_kind.get(kind)?.get(&evidence));
        of_kind.or_else(|| self.thresholds.get(&evidence))
    }

    /// The largest ratio of the evidence of a single window to its threshold.
    pub fn strength(&self, finding: &Finding, kind: Option<&str>) -> f64 {
        let ratio = |evidence: Evidence, value: f64| {
            let threshold = self.threshold(evidence, kind);
            threshold.map_or(0.0, |threshold| (value + evidence.floor()) / threshold.value)
        };
        let mut strength = ratio(Evidence::Error, finding.error());
        // Higher levels are not about the window alone.
        for evidence in [Evidence::Excess, Evidence::Thread, Evidence::Peers] {
            if let Some(value) = evidence.level().and_then(|level| finding.distances.get(level as usize)) {
                strength = strength.max(ratio(evidence, *value));
            }
        }
        strength
    }

    /// The probability of a normal job to exceed a source that is calibrated later.
    pub fn probability(&self, evidence: Evidence) -> f64 {
        let share = share(evidence, self.thresholds.keys().copied());
        (self.false_events_per_day * share / self.jobs_per_day.max(1.0)).min(MAX_PROBABILITY)
    }

    /// Whether there were so few jobs that thresholds had to be set by assumption.
    pub fn is_uncertain(&self) -> bool {
        self.n_jobs < ENOUGH_JOBS
    }

    /// Checks a calibration that was read from a file.
    pub fn check(&self) -> Result<(), RestoreError> {
        ensure(self.false_events_per_day > 0.0, "its budget of false events is not positive")?;
        ensure(
            self.days > 0.0 && self.jobs_per_day >= 0.0,
            "the time it was calibrated with is not positive",
        )?;
        let mut all = self.thresholds.values().chain(self.for_kind.values().flat_map(BTreeMap::values));
        let is_valid = |one: &Threshold| one.value > 0.0 && one.value.is_finite() && one.log_std_error >= 0.0;
        ensure(all.all(is_valid), "one of its thresholds is not a positive number")?;
        let is_positive = |value: &f64| *value > 0.0 && value.is_finite();
        let mut budgets = self.at_budgets.iter();
        ensure(
            budgets.all(|one| is_positive(&one.false_events_per_day) && one.values.values().all(is_positive))
                && self.at_budgets.is_sorted_by(|a, b| a.false_events_per_day < b.false_events_per_day),
            "a threshold of another budget is not a positive number, or budgets are not in order",
        )
    }
}

/// The part of the budget that a source gets, given those that there are. [`Evidence::Region`] always has its part,
/// because it may be added later.
fn share(evidence: Evidence, sources: impl Iterator<Item = Evidence>) -> f64 {
    let all: BTreeSet<Evidence> = sources.chain([Evidence::Region]).collect();
    let has_levels = all.iter().any(|one| one.level().is_some());
    let of_levels: f64 =
        Evidence::ALL.iter().filter(|one| one.level().is_some()).map(|one| one.weight()).sum();
    let weight = |one: Evidence| match one {
        // Without a hierarchy, the reconstruction error speaks for all of its levels.
        Evidence::Error | Evidence::LastingError if !has_levels => one.weight() + of_levels / 2.0,
        _ => one.weight(),
    };
    weight(evidence) / all.iter().map(|one| weight(*one)).sum::<f64>()
}

/// The units without which a source is not used. Few hours say nothing about what nodes and the cluster have in common:
/// a stall of shared storage is normal, and rare.
const fn min_units(evidence: Evidence) -> usize {
    match evidence {
        Evidence::Node | Evidence::Cluster => 24,
        _ => 1,
    }
}

/// All values except the largest.
fn bulk(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.truncate((sorted.len() as f64 * BULK).ceil() as usize);
    sorted
}

/// The values of all sources that were observed, by subject.
struct Sources {
    by_evidence: BTreeMap<Evidence, Vec<Vec<f64>>>,
}

impl Sources {
    fn of(units: &Units, is_wanted: &dyn Fn(&Subject) -> bool) -> Self {
        let all = Evidence::ALL.into_iter().map(|evidence| (evidence, units.values(evidence, is_wanted)));
        Self {
            by_evidence: all.filter(|(evidence, values)| n_units(values) >= min_units(*evidence)).collect(),
        }
    }

    /// The probability with which a unit may exceed the threshold of each source.
    fn probabilities(&self, budget: f64, days: f64) -> BTreeMap<Evidence, f64> {
        let sources = || self.by_evidence.keys().copied();
        let probability = |(evidence, values): (&Evidence, &Vec<Vec<f64>>)| {
            let per_day = budget * share(*evidence, sources()) / (n_units(values) as f64 / days);
            (*evidence, per_day.min(MAX_PROBABILITY))
        };
        self.by_evidence.iter().map(probability).collect()
    }

    /// The value of each threshold.
    fn values(&self, probabilities: &BTreeMap<Evidence, f64>) -> BTreeMap<Evidence, f64> {
        let value = |(evidence, probability): (&Evidence, &f64)| {
            let all: Vec<f64> = self.by_evidence.get(evidence)?.iter().flatten().copied().collect();
            let threshold_of =
                |values: &[f64]| Some(TailFit::new(values, evidence.prior_excess())?.threshold(*probability));
            // Disturbances that the data contains are in the tail already, and need no margin.
            let value = threshold_of(&all)?.max(evidence.margin() * threshold_of(&bulk(&all))?);
            Some((*evidence, value.min(evidence.ceiling() + evidence.floor())))
        };
        let mut values: BTreeMap<Evidence, f64> = probabilities.iter().filter_map(value).collect();
        // A cluster without free threads in the validation data may have some later.
        values.entry(Evidence::Unowned).or_insert(Evidence::Unowned.ceiling() + Evidence::Unowned.floor());
        values
    }

    /// The thresholds of other budgets, and of the one in force.
    fn at_budgets(&self, own: f64, days: f64) -> Vec<AtBudget> {
        let mut budgets: Vec<f64> = KEPT_BUDGETS.into_iter().chain([own]).collect();
        budgets.sort_by(f64::total_cmp);
        budgets.dedup();
        let at = |false_events_per_day: f64| {
            let values = self.values(&self.probabilities(false_events_per_day, days));
            AtBudget { false_events_per_day, values }
        };
        budgets.into_iter().map(at).collect()
    }

    /// Thresholds with their uncertainty, and the plausible range of the rate of events that they give.
    fn calibrate(
        &self,
        probabilities: &BTreeMap<Evidence, f64>,
        days: f64,
        rng: &mut Xoshiro256PlusPlus,
    ) -> (Thresholds, [f64; 2]) {
        let mut rates = vec![0.0; N_RESAMPLED];
        let mut thresholds = Thresholds::new();
        for (evidence, value) in self.values(probabilities) {
            let mut threshold = Threshold {
                value,
                log_std_error: UNKNOWN_STD_ERROR,
                n_units: 0,
                probability: MAX_PROBABILITY,
            };
            if let (Some(values), Some(probability)) =
                (self.by_evidence.get(&evidence), probabilities.get(&evidence))
            {
                let tails = resampled_tails(values, evidence.prior_excess(), rng);
                let logs: Vec<f64> = tails.iter().map(|tail| tail.threshold(*probability).ln()).collect();
                threshold.log_std_error = std_dev(&logs);
                threshold.n_units = n_units(values);
                threshold.probability = *probability;
                for (rate, tail) in rates.iter_mut().zip(tails) {
                    *rate += threshold.n_units as f64 / days * tail.probability(value);
                }
            }
            thresholds.insert(evidence, threshold);
        }
        rates.sort_by(f64::total_cmp);
        (thresholds, [0.05, 0.95].map(|fraction| quantile(&rates, fraction)))
    }
}

fn n_units(values: &[Vec<f64>]) -> usize {
    values.iter().map(Vec::len).sum()
}

/// The tails of resampled subjects.
fn resampled_tails(values: &[Vec<f64>], prior_excess: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<TailFit> {
    let mut tails = Vec::with_capacity(N_RESAMPLED);
    for _ in 0..N_RESAMPLED {
        let drawn = (0..values.len()).flat_map(|_| &values[rng.random_range(0..values.len())]);
        tails.extend(TailFit::new(&drawn.copied().collect::<Vec<f64>>(), prior_excess));
    }
    tails
}

/// The thresholds of [`BUDGETS`] for the same normal units.
#[derive(Debug)]
pub struct BudgetCosts([BTreeMap<Evidence, f64>; BUDGETS.len()]);

impl BudgetCosts {
    pub fn new(units: &Units) -> Self {
        let sources = Sources::of(units, &|_| true);
        Self(BUDGETS.map(|budget| sources.values(&sources.probabilities(budget, units.days()))))
    }

    /// How many jobs of an anomalous kind exceed the thresholds of each budget.
    pub fn found(&self, kind: &str, is_injected: bool, jobs: &[BTreeMap<Evidence, f64>]) -> FoundAtBudgets {
        let n_found = self.0.each_ref().map(|thresholds| {
            let exceeds = |(evidence, value): (&Evidence, &f64)| {
                thresholds.get(evidence).is_some_and(|threshold| value > threshold)
            };
            jobs.iter().filter(|job| job.iter().any(exceeds)).count()
        });
        FoundAtBudgets { kind: kind.to_owned(), is_injected, n_jobs: jobs.len(), n_found }
    }
}

#[cfg(test)]
mod tests {
    use rand_distr::StandardNormal;
    use workload::{JobId, Millis, NodeName, Timestamp};

    use super::*;
    use crate::evidence::{Confirmation, Observation};

    fn units(n_jobs: usize, sources: &[Evidence], seed: u64) -> Units {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let confirmation = Confirmation { brief: Millis(20_000), lasting: Millis(40_000) };
        let mut units = Units::new(confirmation, Millis(10_000));
        for job in 0..n_jobs {
            let subject = Subject::Job {
                node: NodeName::new("n1").unwrap(),
                job: JobId::new(job.to_string()).unwrap(),
            };
            let values: Vec<f64> =
                sources.iter().map(|_| (0.3 * rng.sample::<f64, _>(StandardNormal)).exp()).collect();
            for batch in 0..6 {
                let end = Timestamp::from_seconds(1_800_000_000 + job as i64 * 60 + batch * 10);
                let observations: Vec<Observation> = sources
                    .iter()
                    .zip(&values)
                    .map(|(evidence, value)| Observation {
                        subject: subject.clone(),
                        evidence: *evidence,
                        value: *value,
                        window: 0,
                    })
                    .collect();
                units.add(end, &observations);
            }
        }
        units
    }

    /// The events per day of other jobs from the same distribution.
    fn events_per_day(calibration: &Calibration, sources: &[Evidence]) -> f64 {
        let fresh = units(40_000, sources, 99);
        let exceeds = |job: &BTreeMap<Evidence, f64>| {
            job.iter().any(|(evidence, value)| *value > calibration.thresholds[evidence].value)
        };
        fresh.of_jobs().values().filter(|job| exceeds(job)).count() as f64 / fresh.days()
    }

    #[test]
    fn the_budget_holds_however_many_sources_share_it() {
        // Sources without a margin.
        let few = [Evidence::LastingJob];
        let many =
            [Evidence::LastingJob, Evidence::Memory, Evidence::LastingThread, Evidence::LastingCombined];
        for sources in [&few[..], &many[..]] {
            for n_jobs in [60, 2_000] {
                let calibration = Calibration::fit(&units(n_jobs, sources, 5), 10.0, None, 1).unwrap();
                let found = events_per_day(&calibration, sources);
                assert!(found < 25.0, "{n_jobs} jobs, {} sources: {found} events per day", sources.len());
                let [low, high] = calibration.plausible_events_per_day;
                assert!(low <= high && high > 0.0);
            }
        }
    }

    #[test]
    fn another_budget_has_other_thresholds_and_its_own_has_the_same() {
        let units = units(120, &[Evidence::Error, Evidence::LastingError], 3);
        let fitted = Calibration::fit(&units, 2.0, None, 1).unwrap();
        assert_eq!(fitted.budgets(), Some([0.1, 10.0]));
        let value = |calibration: &Calibration| calibration.thresholds[&Evidence::Error].value;
        let same = fitted.with_budget(2.0).unwrap();
        assert!((value(&same) / value(&fitted) - 1.0).abs() < 1e-9);
        // Fitting again with that budget gives the same value.
        for budget in [0.1, 1.0, 10.0] {
            let again = Calibration::fit(&units, budget, None, 1).unwrap();
            let other = fitted.with_budget(budget).unwrap();
            assert!((value(&other) / value(&again) - 1.0).abs() < 1e-9, "{budget}");
            assert_eq!(other.false_events_per_day, budget);
        }
        let values = [0.1, 0.2, 0.5, 2.0, 5.0].map(|budget| value(&fitted.with_budget(budget).unwrap()));
        assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
        assert!(fitted.with_budget(0.01).is_none() && fitted.with_budget(100.0).is_none());
        let old = Calibration { at_budgets: Vec::new(), ..fitted };
        assert!(old.with_budget(1.0).is_none() && old.budgets().is_none());
    }

    #[test]
    fn a_larger_budget_finds_more() {
        let costs = BudgetCosts::new(&units(500, &[Evidence::LastingJob], 5));
        let jobs: Vec<BTreeMap<Evidence, f64>> =
            (0..100).map(|at| [(Evidence::LastingJob, 1.0 + 0.05 * f64::from(at))].into()).collect();
        let found = costs.found("leak", false, &jobs);
        assert!(found.n_found.is_sorted() && found.n_found[0] < found.n_found[2], "{found:?}");
        assert!(found.n_found[0] > 10 && found.n_jobs == 100, "{found:?}");
    }

    #[test]
    fn brief_evidence_has_a_margin_unless_the_data_contain_a_disturbance() {
        let usual = units(200, &[Evidence::Job], 5);
        let threshold =
            |units: &Units| Calibration::fit(units, 1.0, None, 1).unwrap().thresholds[&Evidence::Job].value;
        let brief = threshold(&usual);
        let lasting = Calibration::fit(&units(200, &[Evidence::LastingJob], 5), 1.0, None, 1).unwrap();
        assert!(brief > 3.0 * lasting.thresholds[&Evidence::LastingJob].value, "{brief}");
        // Three jobs at once.
        let mut disturbed = units(200, &[Evidence::Job], 5);
        for batch in 0..6 {
            let job = |number: i64| Observation {
                subject: Subject::Job {
                    node: NodeName::new("n1").unwrap(),
                    job: JobId::new(number.to_string()).unwrap(),
                },
                evidence: Evidence::Job,
                value: 12.0,
                window: 0,
            };
            let end = Timestamp::from_seconds(1_800_100_000 + batch * 10);
            disturbed.add(end, &[job(1_000), job(1_001), job(1_002)]);
        }
        let with = threshold(&disturbed);
        assert!(with >= 12.0 && with < 2.0 * brief, "{with} {brief}");
    }

    #[test]
    fn few_jobs_are_uncertain() {
        let few = Calibration::fit(&units(8, &[Evidence::Job], 5), 1.0, None, 1).unwrap();
        let many = Calibration::fit(&units(2_000, &[Evidence::Job], 5), 1.0, None, 1).unwrap();
        assert!(few.is_uncertain() && !many.is_uncertain());
        let [few, many] = [few, many].map(|one| one.thresholds[&Evidence::Job]);
        assert!(few.value > many.value && few.log_std_error > many.log_std_error, "{few:?} {many:?}");
        assert!(Calibration::fit(&units(0, &[], 5), 1.0, None, 1).is_none());
    }

    #[test]
    fn a_kind_with_enough_jobs_has_its_own_thresholds() {
        let units = units(100, &[Evidence::Job], 5);
        let kind_of = |subject: &Subject| {
            let number: usize = subject.job()?.as_str().parse().ok()?;
            Some(if number < 90 { "np" } else { "rare" }.to_owned())
        };
        let calibration = Calibration::fit(&units, 1.0, Some(&kind_of), 1).unwrap();
        assert_eq!(calibration.for_kind.keys().collect::<Vec<_>>(), ["np"]);
        let general = calibration.threshold(Evidence::Job, None).unwrap();
        assert_eq!(calibration.threshold(Evidence::Job, Some("rare")), Some(general));
        assert_ne!(calibration.threshold(Evidence::Job, Some("np")), Some(general));
        assert_eq!(calibration.check(), Ok(()));
        let mut damaged = calibration.clone();
        damaged.thresholds.get_mut(&Evidence::Job).unwrap().value = 0.0;
        assert!(damaged.check().is_err());
    }
}
