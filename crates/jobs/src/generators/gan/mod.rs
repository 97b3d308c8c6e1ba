//! Generative adversarial networks for tables: a generator network produces rows, a critic judges them.
//!
//! - CTGAN (Xu et al., "Modeling tabular data using conditional GAN", 2019): mode-specific normalisation, conditions on one
//!   value of one category, training by sampling, packs of ten rows (PacGAN; Lin et al., 2018), Wasserstein loss with a
//!   gradient penalty. Departure: numbers are transformed by `log(1 + x)` before their modes are fitted.
//! - CopulaGAN: CTGAN on normal scores of numbers.
//! - Sequence CopulaGAN: CopulaGAN that is also given the previous job.
//! - Plain GAN: none of this except the logarithm.

mod conditions;
mod net;
mod train;

use learn::artifact::Tensors;
use learn::artifact::restore::{self, RestoreError};
use learn::nn::parameters::Parameters;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use self::conditions::Transitions;
use self::net::GeneratorNetwork;
use super::encoding::{Encoder, TransformKind};
use super::output::sample_hard;
use super::{Generator, TrainingConfig, TrainingProgress, sample_in_chunks};
use crate::features::{FeatureSpec, FeatureTable};

/// Sequences that are sampled in parallel if a row depends on the previous one.
const N_CHAINS: usize = 64;
/// Rows at the start of each sequence that are discarded.
const WARM_UP_ROWS: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Wasserstein,
    Logistic,
}

/// The variants of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GanConfig {
    transform: TransformKind,
    /// Whether numbers have several modes.
    has_modes: bool,
    has_conditions: bool,
    /// Whether the network is given the previous job.
    has_previous: bool,
    /// Rows that the critic judges together.
    pack: usize,
    loss: Loss,
}

impl GanConfig {
    pub const CTGAN: Self = Self {
        transform: TransformKind::Log,
        has_modes: true,
        has_conditions: true,
        has_previous: false,
        pack: 10,
        loss: Loss::Wasserstein,
    };
    pub const COPULAGAN: Self = Self { transform: TransformKind::NormalScores, ..Self::CTGAN };
    pub const SEQUENCE_COPULAGAN: Self = Self { has_previous: true, ..Self::COPULAGAN };
    pub const PLAIN: Self = Self {
        transform: TransformKind::Log,
        has_modes: false,
        has_conditions: false,
        has_previous: false,
        pack: 1,
        loss: Loss::Logistic,
    };
}

/// What the generator network is given and produces.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RowLayout {
    encoder: Encoder,
    has_conditions: bool,
    has_previous: bool,
    /// Which values follow which; empty without a previous job.
    transitions: Transitions,
}

impl RowLayout {
    fn n_conditions(&self) -> usize {
        if self.has_conditions { self.encoder.condition_width() } else { 0 }
    }

    /// Numbers that the network is given besides noise: the condition, then the previous row.
    fn n_context(&self) -> usize {
        self.n_conditions() + if self.has_previous { self.encoder.width() } else { 0 }
    }
}

pub struct Gan {
    layout: RowLayout,
    network: GeneratorNetwork,
    parameters: Parameters,
}

impl Gan {
    pub fn fit(
        jobs: &FeatureTable,
        gan: GanConfig,
        config: TrainingConfig,
        stop: &Stop,
        report: &mut impl FnMut(TrainingProgress),
    ) -> Result<Self, Stopped> {
        let encoder = Encoder::fit(jobs, gan.transform, gan.has_modes, config.seed, stop)?;
        let transitions =
            if gan.has_previous { Transitions::fit(&encoder, jobs) } else { Transitions::default() };
        let GanConfig { has_conditions, has_previous, .. } = gan;
        let layout = RowLayout { encoder, has_conditions, has_previous, transitions };
        let (network, parameters) = train::train(jobs, &layout, gan, config, stop, report)?;
        Ok(Self { layout, network, parameters })
    }

    pub fn restore(
        specs: &[FeatureSpec],
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> Result<Self, RestoreError> {
        let layout: RowLayout = restore::settings(settings)?;
        layout.encoder.check(specs)?;
        layout.transitions.check(&layout.encoder)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let (network, parameters) = Parameters::restore(tensors, |parameters| {
            GeneratorNetwork::new(parameters, layout.n_context(), layout.encoder.width(), &mut rng)
        })?;
        Ok(Self { layout, network, parameters })
    }

    /// Encoded rows, one per context.
    fn rows(&self, contexts: &[f32], n_rows: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let n_context = self.layout.n_context();
        let mut input = Vec::with_capacity(n_rows * (net::N_NOISE + n_context));
        for row in 0..n_rows {
            input.extend((0..net::N_NOISE).map(|_| rng.sample::<f32, _>(StandardNormal)));
            input.extend_from_slice(&contexts[row * n_context..(row + 1) * n_context]);
        }
        let mut rows = self.network.generate(&self.parameters, &input);
        sample_hard(&mut rows, &self.layout.encoder, rng);
        rows
    }

    /// One condition vector per row: a random category column, and one of its values. The value is drawn from its
    /// frequency, or, given the previous row, from the values that followed the previous one in the training trace.
    fn conditions(&self, n_rows: usize, previous: Option<&[f32]>, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        if !self.layout.has_conditions {
            return Vec::new();
        }
        let encoder = &self.layout.encoder;
        let (size, width) = (encoder.condition_width(), encoder.width());
        let mut conditions = vec![0.0; n_rows * size];
        if encoder.conditions().is_empty() {
            return conditions;
        }
        for (row, vector) in conditions.chunks_exact_mut(size).enumerate() {
            let column = rng.random_range(0..encoder.conditions().len());
            let first: usize =
                encoder.conditions()[..column].iter().map(|condition| condition.fractions.len()).sum();
            let previous = previous.map(|previous| &previous[row * width..(row + 1) * width]);
            let following =
                previous.and_then(|previous| self.layout.transitions.next(encoder, column, previous, rng));
            let value = following.unwrap_or_else(|| pick(&encoder.conditions()[column].fractions, rng));
            vector[first + value] = 1.0;
        }
        conditions
    }

    /// Samples several sequences in parallel, row by row, and puts one after the other.
    fn sample_sequences(
        &self,
        n_jobs: usize,
        rng: &mut Xoshiro256PlusPlus,
        stop: &Stop,
    ) -> Result<Vec<Vec<f64>>, Stopped> {
        let encoder = &self.layout.encoder;
        let (width, n_conditions) = (encoder.width(), self.layout.n_conditions());
        let length = n_jobs.div_ceil(N_CHAINS);
        let mut chains: Vec<Vec<f32>> = vec![Vec::new(); N_CHAINS];
        let mut previous = vec![0.0; N_CHAINS * width];
        for step in 0..WARM_UP_ROWS + length {
            stop.check()?;
            let conditions = self.conditions(N_CHAINS, Some(&previous), rng);
            let mut contexts = Vec::with_capacity(N_CHAINS * self.layout.n_context());
            for chain in 0..N_CHAINS {
                contexts.extend_from_slice(&conditions[chain * n_conditions..(chain + 1) * n_conditions]);
                contexts.extend_from_slice(&previous[chain * width..(chain + 1) * width]);
            }
            previous = self.rows(&contexts, N_CHAINS, rng);
            if step >= WARM_UP_ROWS {
                for (chain, row) in chains.iter_mut().zip(previous.chunks_exact(width)) {
                    chain.extend_from_slice(row);
                }
            }
        }
        let mut columns = vec![Vec::with_capacity(n_jobs); encoder.n_features()];
        let rows: Vec<f32> = chains.concat();
        encoder.decode(&rows[..n_jobs * width], &mut columns);
        Ok(columns)
    }
}

pub fn gumbel(rng: &mut Xoshiro256PlusPlus) -> f32 {
    -(-(rng.random::<f32>().max(1e-12)).ln()).max(1e-12).ln()
}

/// Samples an index in proportion to its weight.
fn pick(weights: &[f64], rng: &mut Xoshiro256PlusPlus) -> usize {
    let mut left = rng.random::<f64>() * weights.iter().sum::<f64>();
    for (at, weight) in weights.iter().enumerate() {
        left -= weight;
        if left <= 0.0 {
            return at;
        }
    }
    weights.len() - 1
}

impl Generator for Gan {
    fn sample(&self, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped> {
        if self.layout.has_previous {
            return self.sample_sequences(n_jobs, &mut Xoshiro256PlusPlus::seed_from_u64(seed), stop);
        }
        sample_in_chunks(n_jobs, seed, stop, &self.layout.encoder, |n_rows, rng| {
            let contexts = self.conditions(n_rows, None, rng);
            self.rows(&contexts, n_rows, rng)
        })
    }

    fn tensors(&self) -> Tensors {
        self.parameters.to_tensors()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.layout).unwrap_or_default()
    }
}
