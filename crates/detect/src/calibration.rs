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
use workload::{Millis, Timestamp};

use crate::detector::Finding;
use crate::evidence::{Evidence, Observation, Subject, Sustained};

/// The fraction of units in the tail, and how many there are at least and at most.
const TAIL_FRACTION: f64 = 0.1;
const MIN_TAIL: usize = 3;
const MAX_TAIL: usize = 100;
/// What is assumed about a tail before any unit was seen: the mean excess as a fraction of the value at which it begins,
/// with the weight of this many units. It keeps thresholds of few units high.
const PRIOR_EXCESS: f64 = 0.25;
const PRIOR_WEIGHT: f64 = 3.0;
/// A job, or the threads of a node without a job, count as one unit for each hour they were observed in.
const UNIT_LENGTH: Millis = Millis::HOUR;
const N_RESAMPLED: usize = 200;
/// Subjects that have ended are forgotten every so many batches.
const FORGET_EVERY: usize = 100;
/// With fewer jobs, a calibration is called uncertain.
const ENOUGH_JOBS: usize = 50;
/// A kind needs this many units for thresholds of its own.
const MIN_UNITS_OF_KIND: usize = 20;
/// No threshold is set for a probability above this.
const MAX_PROBABILITY: f64 = 0.5;
/// The standard deviation of the logarithm of a threshold that no unit supports.
const UNKNOWN_STD_ERROR: f64 = 0.5;
/// No threshold is larger.
const MAX_THRESHOLD: f64 = 1e12;
/// The budgets whose cost is reported, in false events per day.
pub const BUDGETS: [f64; 3] = [0.1, 1.0, 10.0];

/// The upper tail of positive values of normal units. Excesses are modelled as exponential with an uncertain mean: few
/// values give a heavy tail.
#[derive(Debug, Clone, PartialEq)]
pub struct TailFit {
    /// Largest first.
    sorted: Vec<f64>,
    n_tail: usize,
    /// The value at which the tail begins.
    start: f64,
    /// The sum of the excesses, with those of the prior.
    excess: f64,
    /// The number of excesses, with those of the prior.
    weight: f64,
}

impl TailFit {
    /// `None` without a positive value.
    pub fn new(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> =
            values.iter().copied().filter(|value| *value > 0.0 && value.is_finite()).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let last = sorted.len().checked_sub(1)?;
        let n_tail = ((sorted.len() as f64 * TAIL_FRACTION).round() as usize).clamp(MIN_TAIL, MAX_TAIL);
        let n_tail = n_tail.min(sorted.len());
        let start = sorted[n_tail.min(last)];
        let excess = sorted[..n_tail].iter().map(|value| value - start).sum::<f64>();
        // If all values are in the tail, the smallest is its start and has no excess.
        let n_excesses = n_tail.min(last);
        Some(Self {
            excess: excess + PRIOR_WEIGHT * PRIOR_EXCESS * start,
            weight: n_excesses as f64 + PRIOR_WEIGHT,
            sorted,
            n_tail,
            start,
        })
    }

    fn tail_fraction(&self) -> f64 {
        self.n_tail as f64 / self.sorted.len() as f64
    }

    /// The value that a unit exceeds with a probability. It is not below the largest value if that is rarer than one of
    /// the units.
    pub fn threshold(&self, probability: f64) -> f64 {
        let n_units = self.sorted.len() as f64;
        if probability >= self.tail_fraction() {
            let rank = ((probability * n_units) as usize).min(self.sorted.len() - 1);
            return self.sorted[rank];
        }
        let ratio = (self.tail_fraction() / probability).powf(1.0 / self.weight);
        let modelled = (self.start + self.excess * (ratio - 1.0)).min(MAX_THRESHOLD);
        if probability * n_units < 1.0 { modelled.max(self.sorted[0]) } else { modelled }
    }

    /// The probability that a unit exceeds a value.
    fn probability(&self, value: f64) -> f64 {
        let over = value - self.start;
        if over <= 0.0 {
            let n_above = self.sorted.partition_point(|one| *one > value);
            return n_above as f64 / self.sorted.len() as f64;
        }
        self.tail_fraction() * (1.0 + over / self.excess).powf(-self.weight)
    }
}

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
    pub fn new(confirmation: Millis, stride: Millis) -> Self {
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
    fn days(&self) -> f64 {
        self.times.len() as f64 * self.stride.as_seconds() / 86_400.0
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
    fn values(&self, evidence: Evidence, is_wanted: impl Fn(&Subject) -> bool) -> Vec<Vec<f64>> {
        let mut by_subject: BTreeMap<&Subject, Vec<f64>> = BTreeMap::new();
        for ((subject, _), unit) in self.largest.iter().filter(|((subject, _), _)| is_wanted(subject)) {
            if let Some(value) = unit.get(&evidence) {
                by_subject.entry(subject).or_default().push(*value);
            }
        }
        by_subject.into_values().collect()
    }
}

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
        let (thresholds, plausible_events_per_day) = sources.calibrate(false_events_per_day, days, &mut rng);
        let mut for_kind = BTreeMap::new();
        if let Some(kind_of) = kind_of {
            let kinds: BTreeSet<String> =
                units.largest.keys().filter_map(|(subject, _)| kind_of(subject)).collect();
            for kind in kinds {
                let of_kind = Sources::of(units, &|subject| kind_of(subject).as_ref() == Some(&kind));
                for_kind.insert(kind, of_kind.with_probabilities_of(&thresholds, &mut rng));
            }
            for_kind.retain(|_, thresholds: &mut Thresholds| !thresholds.is_empty());
        }
        let n_job_units = units.largest.keys().filter(|(subject, _)| subject.job().is_some()).count();
        Some(Self {
            false_events_per_day,
            plausible_events_per_day,
            days,
            n_jobs: units.of_jobs().len(),
            jobs_per_day: n_job_units as f64 / days,
            thresholds,
            for_kind,
            found: Vec::new(),
        })
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
        let share = evidence.weight() / total_weight(self.thresholds.keys().copied());
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
        ensure(all.all(is_valid), "one of its thresholds is not a positive number")
    }
}

/// The weights of some sources, and always of [`Evidence::Region`], which may be added later.
fn total_weight(sources: impl Iterator<Item = Evidence>) -> f64 {
    let all: BTreeSet<Evidence> = sources.chain([Evidence::Region]).collect();
    all.into_iter().map(Evidence::weight).sum()
}

/// The units without which a source is not used. Few hours say nothing about what nodes and the cluster have in common:
/// a stall of shared storage is normal, and rare.
const fn min_units(evidence: Evidence) -> usize {
    match evidence {
        Evidence::Node | Evidence::Cluster => 24,
        _ => 1,
    }
}

/// The values of all sources that were observed, by subject.
struct Sources {
    by_evidence: BTreeMap<Evidence, Vec<Vec<f64>>>,
}

impl Sources {
    fn of(units: &Units, is_wanted: &dyn Fn(&Subject) -> bool) -> Self {
        let all = Evidence::ALL.into_iter().map(|evidence| (evidence, units.values(evidence, is_wanted)));
        let n_units = |values: &Vec<Vec<f64>>| values.iter().map(Vec::len).sum::<usize>();
        Self {
            by_evidence: all.filter(|(evidence, values)| n_units(values) >= min_units(*evidence)).collect(),
        }
    }

    /// Thresholds for a budget, and the plausible range of the rate of events that they give.
    fn calibrate(&self, budget: f64, days: f64, rng: &mut Xoshiro256PlusPlus) -> (Thresholds, [f64; 2]) {
        let total_weight = total_weight(self.by_evidence.keys().copied());
        let mut rates = vec![0.0; N_RESAMPLED];
        let mut thresholds = Thresholds::new();
        for (evidence, values) in &self.by_evidence {
            let units_per_day = values.iter().map(Vec::len).sum::<usize>() as f64 / days;
            let share = budget * evidence.weight() / total_weight;
            let probability = (share / units_per_day).min(MAX_PROBABILITY);
            let Some((threshold, tails)) = fit_threshold(*evidence, values, probability, rng) else {
                continue;
            };
            for (rate, tail) in rates.iter_mut().zip(tails) {
                *rate += units_per_day * tail.probability(threshold.value);
            }
            thresholds.insert(*evidence, threshold);
        }
        // A cluster without free threads in the validation data may have some later.
        thresholds.entry(Evidence::Unowned).or_insert_with(|| Threshold {
            value: Evidence::Unowned.ceiling() + Evidence::Unowned.floor(),
            log_std_error: UNKNOWN_STD_ERROR,
            n_units: 0,
            probability: MAX_PROBABILITY,
        });
        rates.sort_by(f64::total_cmp);
        (thresholds, [0.05, 0.95].map(|fraction| quantile(&rates, fraction)))
    }

    /// Thresholds that are exceeded as rarely as others.
    fn with_probabilities_of(&self, others: &Thresholds, rng: &mut Xoshiro256PlusPlus) -> Thresholds {
        let mut thresholds = Thresholds::new();
        for (evidence, values) in &self.by_evidence {
            let n_units = values.iter().map(Vec::len).sum::<usize>();
            let Some(other) = others.get(evidence).filter(|_| n_units >= MIN_UNITS_OF_KIND) else { continue };
            if let Some((threshold, _)) = fit_threshold(*evidence, values, other.probability, rng) {
                thresholds.insert(*evidence, threshold);
            }
        }
        thresholds
    }
}

/// The threshold of one source, and the tails of resampled subjects.
fn fit_threshold(
    evidence: Evidence,
    values: &[Vec<f64>],
    probability: f64,
    rng: &mut Xoshiro256PlusPlus,
) -> Option<(Threshold, Vec<TailFit>)> {
    let all: Vec<f64> = values.iter().flatten().copied().collect();
    let value = TailFit::new(&all)?.threshold(probability).min(evidence.ceiling() + evidence.floor());
    let mut tails = Vec::with_capacity(N_RESAMPLED);
    for _ in 0..N_RESAMPLED {
        let drawn = (0..values.len()).flat_map(|_| &values[rng.random_range(0..values.len())]);
        tails.extend(TailFit::new(&drawn.copied().collect::<Vec<f64>>()));
    }
    let logs: Vec<f64> = tails.iter().map(|tail| tail.threshold(probability).ln()).collect();
    let threshold = Threshold { value, log_std_error: std_dev(&logs), n_units: all.len(), probability };
    Some((threshold, tails))
}

/// The calibrations of [`BUDGETS`] for the same normal units.
#[derive(Debug)]
pub struct BudgetCosts([Option<Calibration>; BUDGETS.len()]);

impl BudgetCosts {
    pub fn new(units: &Units, seed: u64) -> Self {
        Self(BUDGETS.map(|budget| Calibration::fit(units, budget, None, seed)))
    }

    /// How many jobs of an anomalous kind exceed the thresholds of each budget.
    pub fn found(&self, kind: &str, is_injected: bool, jobs: &[BTreeMap<Evidence, f64>]) -> FoundAtBudgets {
        let n_found = self.0.each_ref().map(|calibration| {
            let exceeds = |(evidence, value): (&Evidence, &f64)| {
                let threshold = calibration.as_ref().and_then(|one| one.threshold(*evidence, None));
                threshold.is_some_and(|threshold| *value > threshold.value)
            };
            jobs.iter().filter(|job| job.iter().any(exceeds)).count()
        });
        FoundAtBudgets { kind: kind.to_owned(), is_injected, n_jobs: jobs.len(), n_found }
    }
}

#[cfg(test)]
mod tests {
    use rand_distr::{Exp1, StandardNormal};
    use workload::{JobId, NodeName};

    use super::*;

    #[test]
    fn the_threshold_of_many_units_is_the_value_that_so_many_exceed() {
        // Logarithms are exponential, as in the model.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let values: Vec<f64> = (0..50_000).map(|_| rng.sample::<f64, _>(Exp1).exp()).collect();
        let tail = TailFit::new(&values).unwrap();
        for probability in [0.1, 0.01, 1e-3, 1e-4] {
            let exact = -f64::ln(probability);
            let found = tail.threshold(probability).ln();
            assert!((found - exact).abs() < 0.12 * exact, "{probability}: {found} {exact}");
            assert!((tail.probability(tail.threshold(probability)) / probability - 1.0).abs() < 0.25);
        }
    }

    #[test]
    fn few_units_give_a_high_threshold() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let values: Vec<f64> =
            (0..1_000).map(|_| (0.3 * rng.sample::<f64, _>(StandardNormal)).exp()).collect();
        let threshold = |n_units: usize| TailFit::new(&values[..n_units]).unwrap().threshold(1e-3);
        assert!(threshold(5) > 1.2 * threshold(1_000), "{} {}", threshold(5), threshold(1_000));
        assert!(threshold(1_000) > 2.0);
        let one = TailFit::new(&[2.0]).unwrap().threshold(1e-3);
        assert!(one > 4.0 && one.is_finite(), "{one}");
        assert!(TailFit::new(&[]).is_none() && TailFit::new(&[0.0]).is_none());
        assert!(TailFit::new(&[3.0; 40]).unwrap().threshold(1e-3) > 3.0);
    }

    fn units(n_jobs: usize, sources: &[Evidence], seed: u64) -> Units {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut units = Units::new(Millis(20_000), Millis(10_000));
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
        let few = [Evidence::Job];
        let many = [Evidence::Job, Evidence::Memory, Evidence::Excess, Evidence::Thread, Evidence::Peers];
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
    fn a_larger_budget_finds_more() {
        let costs = BudgetCosts::new(&units(500, &[Evidence::Job], 5), 1);
        let jobs: Vec<BTreeMap<Evidence, f64>> =
            (0..100).map(|at| [(Evidence::Job, 1.0 + 0.05 * f64::from(at))].into()).collect();
        let found = costs.found("leak", false, &jobs);
        assert!(found.n_found.is_sorted() && found.n_found[0] < found.n_found[2], "{found:?}");
        assert!(found.n_found[0] > 10 && found.n_jobs == 100, "{found:?}");
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
