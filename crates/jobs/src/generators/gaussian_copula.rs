//! A Gaussian copula: the distribution of every column, and how normal scores of columns are correlated.

use learn::artifact::{Tensor, Tensors};
use nalgebra::{Cholesky, DMatrix};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Generator;
use super::encode::Scores;
use crate::features::Jobs;

/// What is added to the diagonal, so that columns that say the same do not make the matrix singular.
const RIDGE: f64 = 1e-6;

pub struct GaussianCopula {
    scores: Scores,
    /// A lower triangle whose rows turn independent numbers into correlated ones.
    mixing: DMatrix<f64>,
}

impl GaussianCopula {
    pub fn fit(jobs: &Jobs, seed: u64) -> Option<Self> {
        let scores = Scores::fit(jobs);
        let found = scores.scores(jobs, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
        let size = found.len();
        let cell = |a: usize, b: usize| {
            let known = learn::stats::correlation(found[a].iter().copied().zip(found[b].iter().copied()));
            let known = if known.is_finite() { known } else { 0.0 };
            if a == b { 1.0 + RIDGE } else { known * (1.0 - RIDGE) }
        };
        // As it is kept, so that what was on disk makes the same jobs.
        let mixing =
            Cholesky::new(DMatrix::from_fn(size, size, cell))?.l().map(|value| f64::from(value as f32));
        Some(Self { scores, mixing })
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let scores = serde_json::from_value(settings.clone()).ok()?;
        let tensor = tensors.get("mixing")?;
        let [size, _] = *tensor.shape() else { return None };
        let values = tensor.as_f32()?.iter().map(|value| f64::from(*value));
        Some(Self { scores, mixing: DMatrix::from_row_iterator(size, size, values) })
    }
}

impl Generator for GaussianCopula {
    fn sample(&self, n_jobs: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let size = self.mixing.nrows();
        let mut values = vec![Vec::with_capacity(n_jobs); size];
        for _ in 0..n_jobs {
            let independent: Vec<f64> = (0..size).map(|_| rng.sample(StandardNormal)).collect();
            for (feature, values) in values.iter_mut().enumerate() {
                let score = (0..=feature).map(|at| self.mixing[(feature, at)] * independent[at]).sum();
                values.push(self.scores.value(feature, score, &mut rng));
            }
        }
        values
    }

    fn tensors(&self) -> Tensors {
        let size = self.mixing.nrows();
        let values: Vec<f32> = self.mixing.transpose().iter().map(|value| *value as f32).collect();
        Tensors::from([("mixing".to_owned(), Tensor::new(vec![size, size], values))])
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.scores).unwrap_or_default()
    }
}
