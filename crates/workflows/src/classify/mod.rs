//! Classifiers of workflow runs: which fault a run shows, and why.
//!
//! [`TrainedClassifier::judge`] is the entry point: it checks whether a classifier applies to a run, and judges it.

mod applicability;
pub mod baseline;
pub mod centroid;
mod certainty;
mod kind;
pub mod picture;
pub mod slowdown;
mod trained;
mod training;
pub mod trees;

use learn::artifact::Tensors;

pub use self::applicability::{MissingInput, NotApplicable};
pub use self::kind::ClassifierKind;
pub use self::trained::{Origin, TrainedClassifier, Verdict};
pub use self::training::{ClassifierSettings, EpochProgress, TrainingPlan, TrainingSet};
use crate::features::{Feature, RunSummary};

/// A fitted classifier.
pub trait Classifier: Send + Sync {
    /// The probability of every class. The first class is the healthy one; the sum is one.
    fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64>;

    /// How certain the verdict is, between 0 and 1: by default, the largest probability.
    fn confidence(&self, run: &RunSummary<'_>) -> f64 {
        self.probabilities(run).into_iter().fold(0.0, f64::max)
    }

    /// The evidence for a class, from the same part of the classifier that [`Self::probabilities`] relied on.
    fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Evidence;

    /// The weights.
    fn tensors(&self) -> Tensors;

    fn n_classes(&self) -> usize;

    /// What has to be stored besides the weights.
    fn settings(&self) -> serde_json::Value;
}

/// What a verdict is based on. Positive weights are evidence for the class.
#[derive(Debug, Clone, PartialEq)]
pub enum Evidence {
    /// The weight of each feature.
    Features(Vec<(Feature, f64)>),
    /// The weight of each attempt, in the order of the run.
    Attempts(Vec<f64>),
}

/// The index of the largest probability.
pub fn most_likely(probabilities: &[f64]) -> usize {
    let best = probabilities.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(0, |(class, _)| class)
}
