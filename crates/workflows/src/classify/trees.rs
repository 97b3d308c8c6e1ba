//! Gradient-boosted trees on delays by kind of task: one ensemble per class, against all other classes.

use learn::artifact::Tensors;
use learn::artifact::restore::{self, RestoreError};
use learn::boost::{BoostSettings, BoostedTrees, restore_all, tensors_of};
use workload::Stop;

use super::{Classifier, Evidence, TrainingSet};
use crate::error;
use crate::features::{Feature, FeatureSet, Quantity, RunSummary, Statistic};

const QUANTITIES: [Quantity; 7] = [
    Quantity::Runtime,
    Quantity::StageIn,
    Quantity::StageOut,
    Quantity::Cpu,
    Quantity::Queue,
    Quantity::RuntimePerCpuTime,
    Quantity::StageInPerByte,
];
const STATISTICS: [Statistic; 5] =
    [Statistic::Mean, Statistic::Median, Statistic::StdDev, Statistic::Min, Statistic::Max];

pub struct Trees {
    features: FeatureSet,
    by_class: Vec<BoostedTrees>,
}

impl Trees {
    pub fn fit(training: &TrainingSet<'_>, seed: u64, stop: &Stop) -> error::Result<Self> {
        let features = FeatureSet::of(&training.runs, &QUANTITIES, &STATISTICS);
        let rows = features.rows(&training.runs);
        let weights = vec![1.0; rows.n_rows()];
        let mut by_class = Vec::new();
        for class in 0..training.n_classes {
            stop.check()?;
            let is_class: Vec<bool> = training.classes.iter().map(|of| *of == class).collect();
            let settings =
                BoostSettings { n_trees: 200, rate: 0.08, least_leaf: 0.5, seed, ..BoostSettings::default() };
            by_class.push(BoostedTrees::fit_weighted(&rows, &is_class, &weights, settings)?);
        }
        Ok(Self { features, by_class })
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Result<Self, RestoreError> {
        let features: FeatureSet = restore::settings(settings)?;
        let by_class = restore_all("class", tensors, features.features.len())?;
        Ok(Self { features, by_class })
    }

    pub fn features(&self) -> &FeatureSet {
        &self.features
    }

    pub fn row_probabilities(&self, row: &[f32]) -> Vec<f64> {
        let probability = |trees: &BoostedTrees| 1.0 / (1.0 + (-trees.score(row)).exp());
        let each: Vec<f64> = self.by_class.iter().map(probability).collect();
        let sum: f64 = each.iter().sum();
        each.into_iter().map(|probability| probability / sum.max(1e-12)).collect()
    }

    /// The contribution of each feature to the score of a class.
    pub fn contributions(&self, row: &[f32], class: usize) -> Vec<(Feature, f64)> {
        let contributions = self.by_class[class].contributions(row);
        self.features.features.iter().cloned().zip(contributions).collect()
    }
}

impl Classifier for Trees {
    fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64> {
        self.row_probabilities(&self.features.row(run))
    }

    fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Evidence {
        Evidence::Features(self.contributions(&self.features.row(run), class))
    }

    fn n_classes(&self) -> usize {
        self.by_class.len()
    }

    fn tensors(&self) -> Tensors {
        tensors_of("class", &self.by_class)
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(self.features)
    }
}
