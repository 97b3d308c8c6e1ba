//! Generators of synthetic job traces: one module each, behind the trait [`Generator`].

mod encoding;
mod gan;
mod gaussian_copula;
mod output;
mod private;
mod sampling;
mod sequence;
mod sessions;
mod trained;
mod tvae;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use learn::artifact::Tensors;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use self::encoding::Encoder;
pub use self::sampling::{Condition, LoadFactor, SampleExtent, SampleRequest, TimeSpan};
pub use self::trained::{MIN_JOBS, Origin, TrainedGenerator};

/// A fitted generator.
trait Generator: Send + Sync {
    /// Samples the features of consecutive jobs, as one column per feature; the interval first.
    fn sample(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped>;

    fn tensors(&self) -> Tensors;

    /// What has to be stored besides tensors.
    fn settings(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Rows that a network generates at a time.
const CHUNK_ROWS: usize = 512;

/// Samples the raw output of a network in parallel chunks and decodes it. The result does not depend on the number of threads.
fn sample_in_chunks(
    n_jobs: usize,
    seed: u64,
    stop: &Stop,
    encoder: &Encoder,
    std_devs: Option<&[f32]>,
    generate: impl Fn(usize, &mut Xoshiro256PlusPlus) -> Vec<f32> + Sync,
) -> Result<Vec<Vec<f64>>, Stopped> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let chunks: Vec<(usize, u64)> = (0..n_jobs.div_ceil(CHUNK_ROWS))
        .map(|chunk| (CHUNK_ROWS.min(n_jobs - chunk * CHUNK_ROWS), rng.random()))
        .collect();
    let chunk = |(n_rows, seed): (usize, u64)| {
        stop.check()?;
        let mut columns = vec![Vec::with_capacity(n_rows); encoder.n_features()];
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut raw = generate(n_rows, &mut rng);
        encoder.sample(&mut raw, std_devs, &mut columns, &mut rng);
        Ok(columns)
    };
    let parts: Result<Vec<Vec<Vec<f64>>>, Stopped> = chunks.into_par_iter().map(chunk).collect();
    let parts = parts?;
    let column = |at: usize| parts.iter().flat_map(|part| &part[at]).copied().collect();
    Ok((0..encoder.n_features()).into_par_iter().map(column).collect())
}

learn::family! {
    /// The generators that can be trained.
    pub enum GeneratorKind("generator", domain "jobs") {
        Ctgan = "ctgan": "Conditional GAN with mode-specific normalisation",
        Tvae = "tvae": "Variational autoencoder of rows",
        Copulagan = "copulagan": "CTGAN on normal scores of numbers",
        SequenceCopulagan = "sequence-copulagan": "CopulaGAN with a learnt order of jobs",
        Gan = "gan": "Plain GAN (baseline)",
        GaussianCopula = "gaussian-copula": "Empirical distributions and a Gaussian copula (baseline)",
        Private = "private": "Histograms with noise, differentially private (epsilon 4 per job)",
        Sessions = "sessions": "Resampled sessions of users along the timeline of the trace",
    }
    best Sessions
}

impl GeneratorKind {
    /// Whether columns that are multiples of others are modelled as ratios. `sessions` resamples whole requests, and the bins
    /// of `private` are those of sizes.
    fn models_ratios(self) -> bool {
        !matches!(self, Self::Sessions | Self::Private)
    }
}

/// How to train. Every value of this type is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrainingConfig {
    /// Epochs of networks; none is the default of the generator. Other generators ignore it.
    pub n_epochs: Option<NonZeroUsize>,
    pub seed: u64,
}

impl TrainingConfig {
    fn epochs_or(&self, default: usize) -> usize {
        self.n_epochs.map_or(default, NonZeroUsize::get)
    }
}

/// Reported after each epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrainingProgress {
    pub epoch: usize,
    pub n_epochs: usize,
    pub loss: f64,
    pub remaining: Duration,
}

impl TrainingProgress {
    fn new(epoch: usize, n_epochs: usize, loss: f64, started: Instant) -> Self {
        let remaining = started.elapsed() / epoch.max(1) as u32 * (n_epochs - epoch) as u32;
        Self { epoch, n_epochs, loss, remaining }
    }
}
