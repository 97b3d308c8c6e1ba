//! Generative adversarial networks for tables: a generator network produces rows, a critic judges them.
//!
//! - CTGAN (Xu et al., "Modeling tabular data using conditional GAN", 2019): mode-specific normalisation, conditions on one
//!   value of one category, training by sampling, packs of ten rows (PacGAN; Lin et al., 2018), Wasserstein loss with a
//!   gradient penalty. Departure: numbers are transformed by `log(1 + x)` before their modes are fitted.
//! - CopulaGAN: CTGAN on normal scores of numbers.
//! - Plain GAN: none of this except the logarithm.

mod conditions;
mod net;
mod train;

use learn::artifact::Tensors;
use learn::artifact::restore::{self, RestoreError};
use learn::nn::parameters::Parameters;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use self::conditions::Transitions;
use self::net::{Contexts, GeneratorNetwork, Sampler};
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
    /// Rows that the critic judges together.
    pack: usize,
    loss: Loss,
}

impl GanConfig {
    pub const CTGAN: Self = Self {
        transform: TransformKind::Log,
        has_modes: true,
        has_conditions: true,
        pack: 10,
        loss: Loss::Wasserstein,
    };
    pub const COPULAGAN: Self = Self { transform: TransformKind::NormalScores, ..Self::CTGAN };
    pub const PLAIN: Self = Self {
        transform: TransformKind::Log,
        has_modes: false,
        has_conditions: false,
        pack: 1,
        loss: Loss::Logistic,
    };
}

/// What the generator network is given and produces.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RowLayout {
    encoder: Encoder,
    has_conditions: bool,
    /// Whether the network is given the previous job: only in older models of the kind `sequence-copulagan`.
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
        let has_conditions = gan.has_conditions;
        let layout =
            RowLayout { encoder, has_conditions, has_previous: false, transitions: Transitions::default() };
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

    /// Whether a job depends on the previous one.
    pub fn has_previous(&self) -> bool {
        self.layout.has_previous
    }

    /// Adds a condition to the context of one row: a random category column, and one of its values. The value is drawn from
    /// its frequency, or, given the previous row, from the values that followed the previous one in the training trace.
    fn push_condition(
        &self,
        contexts: &mut Contexts,
        previous: Option<&[f32]>,
        rng: &mut Xoshiro256PlusPlus,
    ) {
        let encoder = &self.layout.encoder;
        if !self.layout.has_conditions || encoder.conditions().is_empty() {
            return;
        }
        let column = rng.random_range(0..encoder.conditions().len());
        let first: usize =
            encoder.conditions()[..column].iter().map(|condition| condition.fractions.len()).sum();
        let following =
            previous.and_then(|previous| self.layout.transitions.next(encoder, column, previous, rng));
        let value = following.unwrap_or_else(|| pick(&encoder.conditions()[column].fractions, rng));
        contexts.push(first + value, 1.0);
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
        let sampler = Sampler::new(&self.network, &self.parameters);
        let length = n_jobs.div_ceil(N_CHAINS);
        let mut chains: Vec<Vec<f32>> = vec![Vec::new(); N_CHAINS];
        let mut previous = vec![0.0; N_CHAINS * width];
        for step in 0..WARM_UP_ROWS + length {
            stop.check()?;
            let mut contexts = Contexts::default();
            for previous in previous.chunks_exact(width) {
                self.push_condition(&mut contexts, Some(previous), rng);
                for (at, value) in previous.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                    contexts.push(n_conditions + at, *value);
                }
                contexts.end_row();
            }
            previous = sampler.generate(&contexts, rng);
            sample_hard(&mut previous, encoder, rng);
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
        let sampler = Sampler::new(&self.network, &self.parameters);
        sample_in_chunks(n_jobs, seed, stop, &self.layout.encoder, None, |n_rows, rng| {
            let mut contexts = Contexts::default();
            for _ in 0..n_rows {
                self.push_condition(&mut contexts, None, rng);
                contexts.end_row();
            }
            sampler.generate(&contexts, rng)
        })
    }

    fn tensors(&self) -> Tensors {
        self.parameters.to_tensors()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.layout).unwrap_or_default()
    }
}
