//! A Gaussian copula: the empirical distribution of every feature, and the correlations of their normal scores.

use learn::artifact::restore::{self, RestoreError, ensure, expect_tensor};
use learn::artifact::{Tensor, Tensors, Values};
use nalgebra::{Cholesky, DMatrix};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{Stop, Stopped};

use super::Generator;
use super::encoding::NormalScores;
use crate::error::{Error, Result};
use crate::features::{FeatureSpec, FeatureTable};

/// Added to the diagonal, so that features with a correlation of one do not make the matrix singular.
const RIDGE: f64 = 1e-6;
const FACTOR: &str = "mixing";
/// Jobs between two checks of whether to stop.
const JOBS_PER_CHECK: usize = 1_024;

pub struct GaussianCopula {
    scores: NormalScores,
    /// The Cholesky factor of the correlation matrix: its rows turn independent numbers into correlated ones.
    factor: DMatrix<f64>,
}

impl GaussianCopula {
    pub fn fit(jobs: &FeatureTable, seed: u64, stop: &Stop) -> Result<Self> {
        let scores = NormalScores::fit(jobs);
        let columns = scores.scores(jobs, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
        stop.check()?;
        let size = columns.len();
        let cell = |a: usize, b: usize| {
            if a == b {
                return 1.0 + RIDGE;
            }
            let pairs = columns[a].iter().copied().zip(columns[b].iter().copied());
            let correlation = learn::stats::correlation(pairs);
            if correlation.is_finite() { correlation * (1.0 - RIDGE) } else { 0.0 }
        };
        let factor = Cholesky::new(DMatrix::from_fn(size, size, cell)).ok_or(Error::Correlations)?.l();
        Ok(Self { scores, factor })
    }

    pub fn restore(
        specs: &[FeatureSpec],
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> Result<Self, RestoreError> {
        let scores: NormalScores = restore::settings(settings)?;
        scores.check(specs)?;
        let tensor = expect_tensor(tensors, FACTOR)?;
        let size = specs.len();
        ensure(tensor.shape() == [size, size], "its correlations are those of other features")?;
        let values: Vec<f64> = match tensor.values() {
            Values::F64(values) => values.clone(),
            // Version 1 of the format.
            Values::F32(values) => values.iter().map(|value| f64::from(*value)).collect(),
            _ => return Err(RestoreError::Type { name: FACTOR.to_owned(), expected: "f64" }),
        };
        Ok(Self { scores, factor: DMatrix::from_row_iterator(size, size, values) })
    }
}

impl Generator for GaussianCopula {
    fn sample(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let size = self.factor.nrows();
        let mut columns = vec![Vec::with_capacity(n_jobs); size];
        for job in 0..n_jobs {
            if job % JOBS_PER_CHECK == 0 {
                stop.check()?;
            }
            let independent: Vec<f64> = (0..size).map(|_| rng.sample(StandardNormal)).collect();
            for (feature, values) in columns.iter_mut().enumerate() {
                let score = (0..=feature).map(|at| self.factor[(feature, at)] * independent[at]).sum();
                values.push(self.scores.value(feature, score, &mut rng));
            }
        }
        Ok(columns)
    }

    fn tensors(&self) -> Tensors {
        let size = self.factor.nrows();
        let values: Vec<f64> = self.factor.transpose().iter().copied().collect();
        Tensors::from([(FACTOR.to_owned(), Tensor::new(vec![size, size], values))])
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.scores).unwrap_or_default()
    }
}
