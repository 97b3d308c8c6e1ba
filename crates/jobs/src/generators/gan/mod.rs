//! Generative adversarial networks for tables: one network makes rows, another judges them.
//!
//! CTGAN (Xu et al., 2019): mode-specific normalisation, a condition on one value of one category, training by sampling,
//! packs of ten rows (Lin et al., 2018), the distance of Wasserstein with a penalty on the gradient. CopulaGAN: the same on
//! normal scores of numbers. A sequence CopulaGAN sees the job before as well. A plain GAN has none of it.

mod net;
mod train;

use learn::artifact::Tensors;
use learn::nn::parameters::Parameters;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use self::net::Maker;
use super::activate::settle;
use super::encode::{Bend, Encoder};
use super::{FitSettings, Generator, Step, in_chunks};
use crate::features::Jobs;

/// Chains that are made side by side where a row depends on the one before.
const N_CHAINS: usize = 64;
/// Rows of a chain before the first that counts.
const WARM_UP: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    Wasserstein,
    Logistic,
}

/// What tells one kind of adversarial network from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    pub bend: Bend,
    /// Whether numbers have several modes.
    pub has_modes: bool,
    pub has_conditions: bool,
    /// Whether a row is made in view of the one before.
    pub has_past: bool,
    /// Rows that are judged together.
    pub pack: usize,
    pub loss: Loss,
}

impl Recipe {
    pub const CTGAN: Self = Self {
        bend: Bend::Log,
        has_modes: true,
        has_conditions: true,
        has_past: false,
        pack: 10,
        loss: Loss::Wasserstein,
    };
    pub const COPULA: Self = Self { bend: Bend::Scores, ..Self::CTGAN };
    pub const SEQUENCE: Self = Self { has_past: true, ..Self::COPULA };
    pub const PLAIN: Self = Self {
        bend: Bend::Log,
        has_modes: false,
        has_conditions: false,
        has_past: false,
        pack: 1,
        loss: Loss::Logistic,
    };
}

/// What is needed to make rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Form {
    encoder: Encoder,
    has_conditions: bool,
    has_past: bool,
}

impl Form {
    fn n_context(&self) -> usize {
        let conditions = if self.has_conditions { self.encoder.condition_width() } else { 0 };
        conditions + if self.has_past { self.encoder.width } else { 0 }
    }
}

pub struct Gan {
    form: Form,
    maker: Maker,
    parameters: Parameters,
}

impl Gan {
    pub fn fit(jobs: &Jobs, recipe: Recipe, settings: FitSettings, tell: &mut impl FnMut(Step)) -> Self {
        let encoder = Encoder::fit(jobs, recipe.bend, recipe.has_modes, settings.seed);
        let form = Form { encoder, has_conditions: recipe.has_conditions, has_past: recipe.has_past };
        let (maker, parameters) = train::train(jobs, &form, recipe, settings, tell);
        Self { form, maker, parameters }
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let form: Form = serde_json::from_value(settings.clone()).ok()?;
        let mut parameters = Parameters::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let maker = Maker::new(&mut parameters, form.n_context(), form.encoder.width, &mut rng);
        parameters.load(tensors).ok()?;
        Some(Self { form, maker, parameters })
    }

    /// Rows for contexts.
    fn rows(&self, contexts: &[f32], n_rows: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let n_context = self.form.n_context();
        let mut input = Vec::with_capacity(n_rows * (net::N_NOISE + n_context));
        for row in 0..n_rows {
            input.extend((0..net::N_NOISE).map(|_| rng.sample::<f32, _>(StandardNormal)));
            input.extend_from_slice(&contexts[row * n_context..(row + 1) * n_context]);
        }
        let mut rows = self.maker.make(&self.parameters, &input);
        settle(&mut rows, &self.form.encoder, rng);
        rows
    }

    /// Conditions as frequent as they are.
    fn conditions(&self, n_rows: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let encoder = &self.form.encoder;
        if !self.form.has_conditions {
            return Vec::new();
        }
        let size = encoder.condition_width();
        let mut conditions = vec![0.0; n_rows * size];
        if encoder.conditions.is_empty() {
            return conditions;
        }
        for row in conditions.chunks_exact_mut(size) {
            let which = rng.random_range(0..encoder.conditions.len());
            let first: usize = encoder.conditions[..which].iter().map(|(_, shares)| shares.len()).sum();
            row[first + pick(&encoder.conditions[which].1, rng)] = 1.0;
        }
        conditions
    }

    fn chains(&self, n_jobs: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<f64>> {
        let encoder = &self.form.encoder;
        let (width, n_conditions) = (encoder.width, self.form.n_context() - encoder.width);
        let length = n_jobs.div_ceil(N_CHAINS);
        let mut chains: Vec<Vec<f32>> = vec![Vec::new(); N_CHAINS];
        let mut before = vec![0.0; N_CHAINS * width];
        for step in 0..WARM_UP + length {
            let conditions = self.conditions(N_CHAINS, rng);
            let mut contexts = Vec::with_capacity(N_CHAINS * self.form.n_context());
            for chain in 0..N_CHAINS {
                contexts.extend_from_slice(&conditions[chain * n_conditions..(chain + 1) * n_conditions]);
                contexts.extend_from_slice(&before[chain * width..(chain + 1) * width]);
            }
            before = self.rows(&contexts, N_CHAINS, rng);
            if step >= WARM_UP {
                chains
                    .iter_mut()
                    .zip(before.chunks_exact(width))
                    .for_each(|(chain, row)| chain.extend_from_slice(row));
            }
        }
        let mut values = vec![Vec::with_capacity(n_jobs); self.form.encoder.n_features()];
        let rows: Vec<f32> = chains.concat();
        encoder.decode(&rows[..n_jobs * width], &mut values);
        values
    }
}

pub fn gumbel(rng: &mut Xoshiro256PlusPlus) -> f32 {
    -(-(rng.random::<f32>().max(1e-12)).ln()).max(1e-12).ln()
}

/// One of several, as likely as their shares.
fn pick(shares: &[f64], rng: &mut Xoshiro256PlusPlus) -> usize {
    let mut left = rng.random::<f64>() * shares.iter().sum::<f64>();
    for (at, share) in shares.iter().enumerate() {
        left -= share;
        if left <= 0.0 {
            return at;
        }
    }
    shares.len() - 1
}

impl Generator for Gan {
    fn sample(&self, n_jobs: usize, seed: u64) -> Vec<Vec<f64>> {
        if self.form.has_past {
            return self.chains(n_jobs, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
        }
        let encoder = &self.form.encoder;
        in_chunks(n_jobs, seed, encoder, |n_rows, rng| {
            let contexts = self.conditions(n_rows, rng);
            self.rows(&contexts, n_rows, rng)
        })
    }

    fn tensors(&self) -> Tensors {
        self.parameters.to_tensors()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(&self.form).unwrap_or_default()
    }
}
