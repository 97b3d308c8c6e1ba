//! What is usual: the delays of every kind of task in healthy runs. It needs no labels, and every verdict is explained by it.

use std::collections::{BTreeMap, BTreeSet};

use crate::workflow::{Delays, TaskAttempt, WorkflowRun};
use learn::artifact::Tensors;
use learn::stats::{mad_std, median, quantile, softmax};
use serde::{Deserialize, Serialize};

use super::{Classifier, Evidence};
use crate::features::{Feature, Quantity, Statistic, View, by_kind, says_staging};

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
    /// Above which one task in ten of a run is, in the middle, and how far runs are from that.
    #[serde(default)]
    pub high_of_runs: Option<(f64, f64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usual {
    /// In the order of kinds and quantities.
    ranges: Vec<(String, Quantity, Range)>,
    /// How far healthy runs that were not learnt from are from the usual, nineteen in twenty of them.
    #[serde(default)]
    reach: f64,
}

/// The least deviation at which a run is as likely unusual as not, in usual deviations.
const THRESHOLD: f64 = 5.0;
/// Parts of the runs, each of which is held against the others to find how far healthy runs reach.
const N_PARTS: usize = 5;
/// Half a second and a twentieth are no trouble, however regular a task is.
const LEAST_SPREAD: f64 = 0.05;

/// The median, and the median distance from it in units of a standard deviation.
fn centre(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (median(values.to_vec()), mad_std(values.to_vec()))
}

impl Usual {
    /// The kinds of task that are known.
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.ranges.iter().map(|(kind, _, _)| kind.as_str()).collect()
    }

    /// To judge by: how far healthy runs reach is found by holding parts of them against the others.
    pub fn with_reach(runs: &[&WorkflowRun]) -> Self {
        let mut apart: Vec<f64> = Vec::new();
        for part in (0..N_PARTS).filter(|_| runs.len() >= 2 * N_PARTS) {
            let (held, others): (Vec<_>, Vec<_>) =
                runs.iter().enumerate().partition(|(at, _)| at % N_PARTS == part);
            let others = Self::of(&others.into_iter().map(|(_, run)| *run).collect::<Vec<_>>());
            apart.extend(held.into_iter().map(|(_, run)| others.most(run)));
        }
        apart.sort_by(f64::total_cmp);
        let reach = if apart.is_empty() { 0.0 } else { quantile(&apart, 0.95) };
        Self { reach, ..Self::of(runs) }
    }

    pub fn of(runs: &[&WorkflowRun]) -> Self {
        let mut all: BTreeMap<(String, Quantity), Vec<f64>> = BTreeMap::new();
        let mut of_runs: BTreeMap<(String, Quantity), (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for run in runs {
            for ((kind, quantity), mut values) in by_kind(run, &Quantity::ALL) {
                let key = (kind.to_owned(), quantity);
                let (medians, highs) = of_runs.entry(key.clone()).or_default();
                medians.push(centre(&mut values).0);
                highs.push(Statistic::High.of(&values));
                all.entry(key).or_default().extend(values);
            }
        }
        let ranges = all.into_iter().map(|((kind, quantity), mut values)| {
            let (median, spread) = centre(&mut values);
            let (mut medians, mut highs) = of_runs.remove(&(kind.clone(), quantity)).unwrap_or_default();
            let (high, high_spread) = centre(&mut highs);
            let floor =
                if quantity.is_logarithm() { LEAST_SPREAD } else { LEAST_SPREAD * median.abs() + 0.5 };
            let range = Range {
                median,
                high: quantile(&values, 0.95),
                spread: spread.max(floor),
                run_spread: centre(&mut medians).1.max(floor),
                high_of_runs: Some((high, high_spread.max(floor))),
            };
            (kind, quantity, range)
        });
        Self { ranges: ranges.collect(), reach: 0.0 }
    }

    pub fn range(&self, kind: &str, quantity: Quantity) -> Option<&Range> {
        let order = |(of, what, _): &(String, Quantity, Range)| (of.as_str(), *what).cmp(&(kind, quantity));
        self.ranges.binary_search_by(order).ok().map(|at| &self.ranges[at].2)
    }

    /// How far the tasks of every kind are above the usual, in usual deviations of whole runs: those in the middle, and
    /// the slowest tenth.
    pub fn deviations(&self, run: &WorkflowRun) -> Vec<(Feature, f64)> {
        let known = self.ranges.iter().filter(|(_, quantity, _)| Quantity::WEEKLESS.contains(quantity));
        let usual = known.flat_map(|(kind, quantity, range)| {
            let feature =
                |statistic: Statistic| Feature { kind: kind.clone(), quantity: *quantity, statistic };
            let middle = (feature(Statistic::Median), (range.median, range.run_spread));
            [Some(middle), range.high_of_runs.map(|high| (feature(Statistic::High), high))]
                .into_iter()
                .flatten()
        });
        let (features, usual): (Vec<Feature>, Vec<(f64, f64)>) = usual.unzip();
        let view = View { features };
        let row = view.row(run);
        let off = |(value, (usual, spread)): (f32, (f64, f64))| {
            if value.is_nan() { 0.0 } else { (f64::from(value) - usual) / spread }
        };
        view.features.into_iter().zip(row.into_iter().zip(usual).map(off)).collect()
    }

    /// The most of it.
    fn most(&self, run: &WorkflowRun) -> f64 {
        self.deviations(run).into_iter().map(|(_, off)| off).fold(0.0, f64::max)
    }

    /// A run held against it, task by task.
    pub fn beside<'a>(&'a self, run: &'a WorkflowRun) -> Contrast<'a> {
        Contrast { usual: self, run, delays: run.delays(), says_staging: says_staging(run) }
    }
}

/// A run beside what is usual.
pub struct Contrast<'a> {
    pub usual: &'a Usual,
    pub run: &'a WorkflowRun,
    pub delays: Vec<Delays>,
    says_staging: bool,
}

impl Contrast<'_> {
    /// A quantity of an attempt, by its place, and what is usual of it; nothing where they cannot be compared.
    pub fn of(&self, at: usize, quantity: Quantity) -> Option<(f64, &Range)> {
        let attempt = &self.run.attempts[at];
        let is_unlike = !self.says_staging
            && quantity.is_without_staging()
            && self.usual.range(&attempt.kind, Quantity::StageIn).is_some();
        let value = quantity.of(attempt, &self.delays[at]).filter(|_| !is_unlike)?;
        Some((value, self.usual.range(&attempt.kind, quantity)?))
    }

    /// The same for all attempts of which it is known.
    pub fn all(&self, quantity: Quantity) -> impl Iterator<Item = (&TaskAttempt, f64, &Range)> {
        let attempts = self.run.attempts.iter().enumerate();
        attempts.filter_map(move |(at, attempt)| {
            self.of(at, quantity).map(|(value, range)| (attempt, value, range))
        })
    }

    /// How far a quantity of an attempt is above the usual of its kind, in usual deviations.
    pub fn deviation(&self, at: usize, quantity: Quantity) -> Option<f64> {
        let (value, range) = self.of(at, quantity)?;
        Some((value - range.median) / range.spread)
    }

    /// The most of it over all that trouble shows in.
    pub fn task_deviation(&self, at: usize) -> f64 {
        let off = |quantity: Quantity| self.deviation(at, quantity);
        Quantity::WEEKLESS.into_iter().filter_map(off).fold(0.0, f64::max)
    }
}

impl Classifier for Usual {
    fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let threshold = self.reach.max(THRESHOLD);
        softmax(&[0.0, (self.most(run) / threshold - 1.0) * THRESHOLD])
    }

    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence {
        let sign = if class == 0 { -1.0 } else { 1.0 };
        Evidence::Features(
            self.deviations(run).into_iter().map(|(feature, off)| (feature, sign * off)).collect(),
        )
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
