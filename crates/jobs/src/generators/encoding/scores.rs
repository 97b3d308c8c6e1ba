//! Normal scores of features, for copulas.

use learn::artifact::restore::{RestoreError, ensure};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::column::{MAX_DISTINCT_FRACTION, nearest};
use super::transform::{Transform, TransformKind, normal_probability, normal_quantile};
use crate::features::{FeatureSpec, FeatureTable};

/// Transforms between the values of features and normal scores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NormalScores {
    transforms: Vec<Transform>,
    missing_fractions: Vec<f64>,
    /// By feature: all values in order, for numbers with few of them; empty otherwise.
    distinct_values: Vec<Vec<f64>>,
}

impl NormalScores {
    pub fn fit(jobs: &FeatureTable) -> Self {
        let mut scores =
            Self { transforms: Vec::new(), missing_fractions: Vec::new(), distinct_values: Vec::new() };
        for (spec, values) in jobs.specs().iter().zip(jobs.columns()) {
            let known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
            let mut distinct = known.clone();
            distinct.sort_by(f64::total_cmp);
            distinct.dedup();
            let is_few = (distinct.len() as f64) < MAX_DISTINCT_FRACTION * values.len() as f64;
            scores.missing_fractions.push(1.0 - known.len() as f64 / values.len() as f64);
            scores.transforms.push(if spec.is_category() {
                Transform::intervals(&known)
            } else {
                Transform::fit(&known, TransformKind::NormalScores)
            });
            let has_list = is_few && !spec.is_category();
            scores.distinct_values.push(if has_list { distinct } else { Vec::new() });
        }
        scores
    }

    /// Checks scores that were read from a file, against the features they are for.
    pub fn check(&self, specs: &[FeatureSpec]) -> Result<(), RestoreError> {
        let lengths = [self.transforms.len(), self.missing_fractions.len(), self.distinct_values.len()];
        ensure(lengths == [specs.len(); 3], "its scores are for other features")?;
        for (at, (spec, transform)) in specs.iter().zip(&self.transforms).enumerate() {
            ensure(self.distinct_values[at].is_sorted(), "the values of a number are not in order")?;
            match transform {
                Transform::Intervals { values, .. } => spec.check_values(values)?,
                _ => ensure(!spec.is_category(), "a category has no intervals")?,
            }
            // A feature that is never known has no quantiles.
            if self.missing_fractions[at] < 1.0 {
                transform.check()?;
            }
        }
        Ok(())
    }

    /// One column of scores per feature. Unknown values have the score 0.
    pub fn scores(&self, jobs: &FeatureTable, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<f64>> {
        let mut columns = Vec::new();
        for (transform, values) in self.transforms.iter().zip(jobs.columns()) {
            let mut score = |value: &f64| {
                if value.is_nan() {
                    return 0.0;
                }
                let transformed = transform.apply(*value, rng.random());
                if matches!(transform, Transform::Intervals { .. }) {
                    normal_quantile(transformed)
                } else {
                    transformed
                }
            };
            columns.push(values.iter().map(&mut score).collect());
        }
        columns
    }

    pub fn value(&self, feature: usize, score: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let missing = self.missing_fractions[feature];
        if missing > 0.0 && rng.random::<f64>() < missing {
            return f64::NAN;
        }
        match &self.transforms[feature] {
            transform @ Transform::Intervals { .. } => transform.invert(normal_probability(score)),
            transform => nearest(&self.distinct_values[feature], transform.invert(score)),
        }
    }
}
