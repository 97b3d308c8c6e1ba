//! The view that is comparable between batches: how much slower tasks are than their work explains, with trees that are
//! monotone in it.

use learn::Matrix;
use learn::artifact::restore::{self, RestoreError, ensure};
use learn::artifact::{Tensors, part_of, within};
use learn::boost::{BoostSettings, BoostedTrees, restore_all, tensors_of};
use learn::extra_trees::{ExtraTrees, ExtraTreesSettings, LabelledPoints};
use learn::stats::softmax;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::Stop;

use super::SlowdownSettings;
use crate::classify::TrainingSet;
use crate::error::Result;
use crate::features::{Feature, FeatureSet, Quantity, RunSummary, Statistic};
use crate::workflow::TaskRole;

/// Added to the probability of every fault, so that none is excluded.
const MIN_FAULT_PROBABILITY: f64 = 0.02;
/// Interpolated runs lie at least this far from the healthy run towards the faulty one.
const MIN_INTERPOLATION: f32 = 0.3;

pub struct BatchInvariant {
    features: FeatureSet,
    /// One ensemble for each class but the healthy one: this fault against healthy runs.
    by_fault: Vec<BoostedTrees>,
    /// Which fault it is, given that there is one.
    fault_classifier: ExtraTrees,
}

impl BatchInvariant {
    pub fn fit(
        training: &TrainingSet<'_>,
        settings: SlowdownSettings,
        seed: u64,
        stop: &Stop,
    ) -> Result<Self> {
        let features = features(training);
        let rows = features.rows(&training.runs);
        let mut by_fault = Vec::new();
        for class in 1..training.n_classes {
            stop.check()?;
            by_fault.push(fit_fault(training, &rows, class, settings, seed)?);
        }
        let faulty: Vec<usize> = (0..training.runs.len()).filter(|at| training.classes[*at] > 0).collect();
        let weights = training.class_weights();
        let sample = LabelledPoints {
            points: &rows.select(&faulty),
            classes: &faulty.iter().map(|at| training.classes[*at] - 1).collect::<Vec<_>>(),
            weights: &faulty.iter().map(|at| weights[*at]).collect::<Vec<_>>(),
            n_classes: training.n_classes - 1,
        };
        let settings = ExtraTreesSettings { seed, ..ExtraTreesSettings::default() };
        let fault_classifier = ExtraTrees::fit(sample, settings, stop)?;
        Ok(Self { features, by_fault, fault_classifier })
    }

    pub fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64> {
        let row = self.features.row(run);
        let given_fault = self.fault_classifier.probabilities(&row);
        let log_odds: Vec<f64> = self.by_fault.iter().map(|trees| trees.score(&row)).collect();
        let largest = log_odds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let any_fault = 1.0 / (1.0 + (-largest).exp());
        let scores: Vec<f64> = log_odds
            .iter()
            .zip(given_fault)
            .map(|(log_odds, probability)| log_odds + (probability + MIN_FAULT_PROBABILITY).ln())
            .collect();
        let faults = softmax(&scores).into_iter().map(|probability| probability * any_fault);
        [1.0 - any_fault].into_iter().chain(faults).collect()
    }

    /// The contribution of each feature to a class. Evidence for health is evidence against every fault.
    pub fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Vec<(Feature, f64)> {
        let row = self.features.row(run);
        let contributions = match class.checked_sub(1) {
            Some(fault) => self.by_fault[fault].contributions(&row),
            None => {
                let mut sum = vec![0.0; row.len() + 1];
                for trees in &self.by_fault {
                    for (sum, contribution) in sum.iter_mut().zip(trees.contributions(&row)) {
                        *sum -= contribution;
                    }
                }
                sum
            }
        };
        self.features.features.iter().cloned().zip(contributions).collect()
    }

    pub fn n_classes(&self) -> usize {
        self.by_fault.len() + 1
    }

    pub fn settings(&self) -> serde_json::Value {
        serde_json::json!(self.features)
    }

    pub fn tensors(&self) -> Tensors {
        let mut tensors = tensors_of(BY_FAULT, &self.by_fault);
        tensors.extend(within(FAULT_CLASSIFIER, self.fault_classifier.tensors()));
        tensors
    }

    pub fn restore(
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> std::result::Result<Self, RestoreError> {
        let features: FeatureSet = restore::settings(settings)?;
        let n_columns = features.features.len();
        let by_fault = restore_all(BY_FAULT, tensors, n_columns)?;
        let fault_classifier = ExtraTrees::restore(&part_of(tensors, FAULT_CLASSIFIER), n_columns)?;
        ensure(fault_classifier.n_classes() == by_fault.len(), "its parts are for different faults")?;
        Ok(Self { features, by_fault, fault_classifier })
    }
}

/// The names of the parts in stored models.
const BY_FAULT: &str = "trouble";
const FAULT_CLASSIFIER: &str = "names";

/// Medians of all batch-invariant quantities. The execution as a whole is used only where its parts are unknown.
fn features(training: &TrainingSet<'_>) -> FeatureSet {
    let all = FeatureSet::of(&training.runs, &Quantity::BATCH_INVARIANT, &[Statistic::Median]);
    let has_cpu_time = |kind: &str| {
        let of_kind = all.features.iter().filter(|feature| feature.kind == kind);
        of_kind.into_iter().any(|feature| feature.quantity == Quantity::RuntimePerCpuTime)
    };
    let is_needed = |feature: &&Feature| {
        feature.quantity != Quantity::Execution
            || !has_cpu_time(&feature.kind)
            || !is_compute(training, &feature.kind)
    };
    FeatureSet { features: all.features.iter().filter(is_needed).cloned().collect() }
}

fn is_compute(training: &TrainingSet<'_>, kind: &str) -> bool {
    let mut attempts = training.runs.iter().flat_map(|run| &run.run.attempts);
    attempts.find(|attempt| attempt.kind == kind).is_some_and(|attempt| attempt.role == TaskRole::Compute)
}

/// Monotone trees that separate one fault from healthy runs.
fn fit_fault(
    training: &TrainingSet<'_>,
    rows: &Matrix,
    class: usize,
    settings: SlowdownSettings,
    seed: u64,
) -> Result<BoostedTrees> {
    let of_class = |class: usize| -> Vec<usize> {
        (0..training.runs.len()).filter(|at| training.classes[*at] == class).collect()
    };
    let (healthy, faulty) = (of_class(0), of_class(class));
    let mut values: Vec<f32> = Vec::new();
    let (mut weights, mut is_faulty) = (Vec::new(), Vec::new());
    // Healthy and faulty runs have the same total weight. Interpolated runs have half of the weight of faulty runs.
    let n_all = (healthy.len() + faulty.len()) as f64;
    let has_weaker = settings.n_weaker > 0;
    let faulty_weight = n_all / 2.0 * if has_weaker { 0.5 } else { 1.0 };
    for (members, sum, is_fault) in [(&healthy, n_all / 2.0, false), (&faulty, faulty_weight, true)] {
        let batch_weights = training.batch_weights(members);
        for (member, weight) in members.iter().zip(batch_weights) {
            values.extend_from_slice(rows.row(*member));
            weights.push(weight * sum);
            is_faulty.push(is_fault);
        }
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (class as u64) << 20);
    let n_weaker = faulty.len() * settings.n_weaker;
    for _ in 0..n_weaker {
        let from = rows.row(healthy[rng.random_range(0..healthy.len())]);
        let to = rows.row(faulty[rng.random_range(0..faulty.len())]);
        let fraction: f32 = rng.random_range(MIN_INTERPOLATION..1.0);
        values.extend(from.iter().zip(to).map(|(from, to)| from + fraction * (to - from)));
        weights.push(n_all / 4.0 / n_weaker as f64);
        is_faulty.push(true);
    }
    let boost = BoostSettings {
        n_trees: settings.n_trees,
        depth: settings.depth,
        // The minimum sum of Hessians (p(1 − p) ≤ ¼ per point) of a hundredth of the points; 20 points are enough.
        least_leaf: (n_all as f32 / 100.0).clamp(0.25, 5.0),
        is_monotone: true,
        seed,
        ..BoostSettings::default()
    };
    let points = Matrix::new(values, rows.n_columns());
    Ok(BoostedTrees::fit_weighted(&points, &is_faulty, &weights, boost)?)
}
