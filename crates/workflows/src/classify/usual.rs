//! What is usual: the delays of every kind of task in healthy runs. It needs no labels, and every verdict is explained by it.

use std::collections::{BTreeMap, BTreeSet};

use learn::artifact::Tensors;
use serde::{Deserialize, Serialize};
use workload::workflow::{Delays, TaskAttempt, WorkflowRun};

use super::{Classifier, Evidence, shares_of};
use crate::features::{Feature, Quantity, Statistic, View, by_kind};

/// What runs are that are not as usual, where no trouble has a name.
pub const UNUSUAL: &str = "unusual";

/// A quantity of the tasks of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub median: f64,
    /// Above which one task in twenty is.
    pub high: f64,
    /// How far tasks are from the median, usually.
    pub spread: f64,
    /// How far the medians of whole runs are from each other, usually.
    pub run_spread: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usual {
    ranges: Vec<(String, Quantity, Range)>,
}

/// A deviation at which a run is as likely unusual as not, in usual deviations.
const THRESHOLD: f64 = 5.0;
/// Half a second and a twentieth are no trouble, however regular a task is.
const LEAST_SPREAD: f64 = 0.05;

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// The median, and the median distance from it in units of a standard deviation.
fn centre(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let median = quantile(values, 0.5);
    let mut off: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    off.sort_by(f64::total_cmp);
    (median, quantile(&off, 0.5) * 1.4826)
}

impl Usual {
    /// The kinds of task that are known.
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.ranges.iter().map(|(kind, _, _)| kind.as_str()).collect()
    }

    pub fn of(runs: &[&WorkflowRun]) -> Self {
        let mut all: BTreeMap<(String, Quantity), Vec<f64>> = BTreeMap::new();
        let mut of_runs: BTreeMap<(String, Quantity), Vec<f64>> = BTreeMap::new();
        for run in runs {
            for ((kind, quantity), mut values) in by_kind(run, &Quantity::ALL) {
                let key = (kind.to_owned(), quantity);
                of_runs.entry(key.clone()).or_default().push(centre(&mut values).0);
                all.entry(key).or_default().extend(values);
            }
        }
        let ranges = all.into_iter().map(|((kind, quantity), mut values)| {
            let (median, spread) = centre(&mut values);
            let mut medians = of_runs.remove(&(kind.clone(), quantity)).unwrap_or_default();
            let run_spread = if medians.is_empty() { spread } else { centre(&mut medians).1 };
            let floor =
                if quantity.is_logarithm() { LEAST_SPREAD } else { LEAST_SPREAD * median.abs() + 0.5 };
            let range = Range {
                median,
                high: quantile(&values, 0.95),
                spread: spread.max(floor),
                run_spread: run_spread.max(floor),
            };
            (kind, quantity, range)
        });
        Self { ranges: ranges.collect() }
    }

    pub fn range(&self, kind: &str, quantity: Quantity) -> Option<&Range> {
        self.ranges.iter().find(|(of, what, _)| of == kind && *what == quantity).map(|(.., range)| range)
    }

    /// How far the tasks of every kind are above the usual, in usual deviations of whole runs.
    pub fn deviations(&self, run: &WorkflowRun) -> Vec<(Feature, f64)> {
        let known = self.ranges.iter().filter(|(_, quantity, _)| Quantity::WEEKLESS.contains(quantity));
        let features: Vec<Feature> = known
            .clone()
            .map(|(kind, quantity, _)| Feature {
                kind: kind.clone(),
                quantity: *quantity,
                statistic: Statistic::Median,
            })
            .collect();
        let view = View { features };
        let row = view.row(run);
        let off = |((feature, value), (.., range)): ((Feature, f32), &(String, Quantity, Range))| {
            let off = (f64::from(value) - range.median) / range.run_spread;
            (feature, if value.is_nan() { 0.0 } else { off })
        };
        view.features.into_iter().zip(row).zip(known).map(off).collect()
    }

    /// How far a quantity of a single task is above the usual of its kind, in usual deviations.
    pub fn deviation(&self, attempt: &TaskAttempt, delays: &Delays, quantity: Quantity) -> Option<f64> {
        let (value, range) = (quantity.of(attempt, delays)?, self.range(&attempt.kind, quantity)?);
        Some((value - range.median) / range.spread)
    }

    /// The most of it over all that trouble shows in.
    pub fn task_deviation(&self, attempt: &TaskAttempt, delays: &Delays) -> f64 {
        let off = |quantity: Quantity| self.deviation(attempt, delays, quantity);
        Quantity::WEEKLESS.into_iter().filter_map(off).fold(0.0, f64::max)
    }
}

impl Classifier for Usual {
    fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let most = self.deviations(run).into_iter().map(|(_, off)| off).fold(0.0, f64::max);
        shares_of(&[0.0, most - THRESHOLD])
    }

    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence {
        let sign = if class == 0 { -1.0 } else { 1.0 };
        Evidence::Features(
            self.deviations(run).into_iter().map(|(feature, off)| (feature, sign * off)).collect(),
        )
    }

    fn tensors(&self) -> Tensors {
        Tensors::new()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
