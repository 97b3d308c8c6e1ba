//! The baseline: delays of every kind of task in healthy runs. Every verdict is explained by comparison with it, and it
//! is a classifier of its own, which needs no labels of faults.

use std::collections::{BTreeMap, BTreeSet};

use crate::workflow::{TaskAttempt, WorkflowRun};
use learn::artifact::Tensors;
use learn::artifact::restore::{RestoreError, ensure};
use learn::stats::{MAD_TO_STD, quantile, softmax};
use serde::{Deserialize, Serialize};

use super::{Classifier, Evidence};
use crate::features::{Feature, FeatureSet, Quantity, RunSummary, Statistic};

/// The class of runs that deviate from the baseline, without a name for the fault.
pub const ANOMALOUS: &str = "anomalous";

/// The index of a class among `classes`. Where faults have no names, every fault is anomalous.
pub fn class_index(classes: &[String], class: &str) -> Option<usize> {
    let index = |class: &str| classes.iter().position(|known| known == class);
    index(class).or_else(|| index(ANOMALOUS))
}

/// The distribution of a quantity over the tasks of one kind. Stored models have the names in the attributes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub median: f64,
    /// The 95th percentile of tasks.
    #[serde(rename = "high")]
    pub p95: f64,
    /// Robust standard deviation of tasks.
    #[serde(rename = "spread")]
    pub task_std: f64,
    /// Robust standard deviation of the medians of runs.
    #[serde(rename = "run_spread")]
    pub run_std: f64,
    /// The median over runs of the 90th percentile of their tasks, and its robust standard deviation.
    #[serde(rename = "high_of_runs", default)]
    pub run_p90: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Sorted by kind and quantity.
    ranges: Vec<(String, Quantity, Range)>,
    /// The 95th percentile of the largest deviation of healthy runs that the baseline was not fitted to.
    #[serde(rename = "reach", default)]
    threshold: f64,
}

/// The smallest threshold, in standard deviations.
const MIN_THRESHOLD: f64 = 5.0;
/// Folds of the cross-validation that finds the threshold.
const N_FOLDS: usize = 5;
/// The smallest standard deviation, relative to the median: a difference of a twentieth and half a second is not a fault,
/// however regular a task is.
const MIN_RELATIVE_STD: f64 = 0.05;

impl Baseline {
    /// The kinds of task in the runs that it was fitted to.
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.ranges.iter().map(|(kind, _, _)| kind.as_str()).collect()
    }

    /// A baseline that can classify: its threshold is found by cross-validation on the healthy runs.
    pub fn with_threshold(runs: &[&RunSummary<'_>]) -> Self {
        let mut deviations: Vec<f64> = Vec::new();
        for fold in (0..N_FOLDS).filter(|_| runs.len() >= 2 * N_FOLDS) {
            let (held_out, others): (Vec<_>, Vec<_>) =
                runs.iter().enumerate().partition(|(at, _)| at % N_FOLDS == fold);
            let others = Self::of(others.into_iter().map(|(_, run)| *run));
            deviations.extend(held_out.into_iter().map(|(_, run)| others.max_deviation(run)));
        }
        deviations.sort_by(f64::total_cmp);
        let threshold = quantile(&deviations, 0.95);
        Self { threshold, ..Self::of(runs.iter().copied()) }
    }

    /// The delays of some runs.
    pub fn of<'r, 'a: 'r>(runs: impl IntoIterator<Item = &'r RunSummary<'a>>) -> Self {
        let mut tasks: BTreeMap<(&str, Quantity), Vec<f64>> = BTreeMap::new();
        let mut medians: BTreeMap<(&str, Quantity), Vec<f64>> = BTreeMap::new();
        let mut p90s: BTreeMap<(&str, Quantity), Vec<f64>> = BTreeMap::new();
        for run in runs {
            for (key, values) in &run.by_kind {
                medians.entry(*key).or_default().push(quantile(values, 0.5));
                p90s.entry(*key).or_default().push(Statistic::P90.of(values));
                tasks.entry(*key).or_default().extend(values);
            }
        }
        let mut ranges = Vec::new();
        for ((kind, quantity), mut values) in tasks {
            let (median, task_std) = centre(&mut values);
            let (_, run_std) = centre(&mut medians.remove(&(kind, quantity)).unwrap_or_default());
            let (p90, p90_std) = centre(&mut p90s.remove(&(kind, quantity)).unwrap_or_default());
            let floor = if quantity.is_logarithm() {
                MIN_RELATIVE_STD
            } else {
                MIN_RELATIVE_STD * median.abs() + 0.5
            };
            let range = Range {
                median,
                p95: quantile(&values, 0.95),
                task_std: task_std.max(floor),
                run_std: run_std.max(floor),
                run_p90: Some((p90, p90_std.max(floor))),
            };
            ranges.push((kind.to_owned(), quantity, range));
        }
        Self { ranges, threshold: 0.0 }
    }

    /// Checks a baseline that was read from a file.
    pub fn check(&self) -> Result<(), RestoreError> {
        let is_sorted = self.ranges.is_sorted_by(|a, b| (&a.0, a.1) <= (&b.0, b.1));
        ensure(is_sorted, "the ranges of its baseline are not in order")?;
        let is_valid = |(_, _, range): &(String, Quantity, Range)| {
            let std_devs = [range.task_std, range.run_std, range.run_p90.map_or(1.0, |(_, std)| std)];
            std_devs.iter().all(|std_dev| *std_dev > 0.0)
        };
        ensure(self.ranges.iter().all(is_valid), "a standard deviation of its baseline is not positive")
    }

    pub fn range(&self, kind: &str, quantity: Quantity) -> Option<&Range> {
        let order = |(of, what, _): &(String, Quantity, Range)| (of.as_str(), *what).cmp(&(kind, quantity));
        self.ranges.binary_search_by(order).ok().map(|at| &self.ranges[at].2)
    }

    /// How far the median and the 90th percentile of every kind of task lie above the baseline, in standard deviations
    /// of runs.
    pub fn deviations(&self, run: &RunSummary<'_>) -> Vec<(Feature, f64)> {
        let known =
            self.ranges.iter().filter(|(_, quantity, _)| Quantity::BATCH_INVARIANT.contains(quantity));
        let expected = known.flat_map(|(kind, quantity, range)| {
            let feature =
                |statistic: Statistic| Feature { kind: kind.clone(), quantity: *quantity, statistic };
            let median = (feature(Statistic::Median), (range.median, range.run_std));
            [Some(median), range.run_p90.map(|p90| (feature(Statistic::P90), p90))].into_iter().flatten()
        });
        let (features, expected): (Vec<Feature>, Vec<(f64, f64)>) = expected.unzip();
        let features = FeatureSet { features };
        let row = features.row(run);
        let deviation = |(value, (expected, std)): (f32, (f64, f64))| {
            if value.is_nan() { 0.0 } else { (f64::from(value) - expected) / std }
        };
        features.features.into_iter().zip(row.into_iter().zip(expected).map(deviation)).collect()
    }

    fn max_deviation(&self, run: &RunSummary<'_>) -> f64 {
        self.deviations(run).into_iter().map(|(_, deviation)| deviation).fold(0.0, f64::max)
    }

    /// Compares every attempt of a run with the baseline.
    pub fn compare<'a>(&'a self, summary: &'a RunSummary<'a>) -> BaselineComparison<'a> {
        BaselineComparison { baseline: self, run: summary.run, summary }
    }
}

/// The median and the robust standard deviation; sorts the values.
fn centre(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let median = quantile(values, 0.5);
    let mut distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    distances.sort_by(f64::total_cmp);
    (median, quantile(&distances, 0.5) * MAD_TO_STD)
}

/// The attempts of a run next to the baseline.
pub struct BaselineComparison<'a> {
    pub baseline: &'a Baseline,
    pub run: &'a WorkflowRun,
    summary: &'a RunSummary<'a>,
}

impl BaselineComparison<'_> {
    /// A quantity of the attempt at a place and its range in the baseline; `None` if they cannot be compared.
    pub fn of(&self, place: usize, quantity: Quantity) -> Option<(f64, &Range)> {
        let attempt = &self.run.attempts[place];
        // A runtime that includes staging cannot be compared with one that does not.
        let is_incomparable = !self.summary.has_staging
            && quantity.excludes_staging()
            && self.baseline.range(&attempt.kind, Quantity::StageIn).is_some();
        let value = quantity.of(attempt, &self.summary.delays[place]).filter(|_| !is_incomparable)?;
        Some((value, self.baseline.range(&attempt.kind, quantity)?))
    }

    /// The same for all attempts that can be compared.
    pub fn all(&self, quantity: Quantity) -> impl Iterator<Item = (&TaskAttempt, f64, &Range)> {
        let attempts = self.run.attempts.iter().enumerate();
        attempts.filter_map(move |(place, attempt)| {
            self.of(place, quantity).map(|(value, range)| (attempt, value, range))
        })
    }

    /// How far a quantity of an attempt lies above the median of its kind, in standard deviations of tasks.
    pub fn deviation(&self, place: usize, quantity: Quantity) -> Option<f64> {
        let (value, range) = self.of(place, quantity)?;
        Some((value - range.median) / range.task_std)
    }

    /// The largest deviation of an attempt.
    pub fn task_deviation(&self, place: usize) -> f64 {
        let deviation = |quantity: Quantity| self.deviation(place, quantity);
        Quantity::BATCH_INVARIANT.into_iter().filter_map(deviation).fold(0.0, f64::max)
    }
}

impl Classifier for Baseline {
    fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64> {
        let threshold = self.threshold.max(MIN_THRESHOLD);
        softmax(&[0.0, (self.max_deviation(run) / threshold - 1.0) * MIN_THRESHOLD])
    }

    fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Evidence {
        let sign = if class == 0 { -1.0 } else { 1.0 };
        let deviations = self.deviations(run).into_iter();
        Evidence::Features(deviations.map(|(feature, deviation)| (feature, sign * deviation)).collect())
    }

    fn n_classes(&self) -> usize {
        2
    }

    fn tensors(&self) -> Tensors {
        Tensors::new()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
