//! Adversarial training: the critic learns to distinguish real rows from generated ones, the generator to deceive it.

use std::time::Instant;

use learn::nn::adam::Adam;
use learn::nn::critic::{Critic, length_penalty};
use learn::nn::ops::arithmetic::add;
use learn::nn::ops::elementwise::weighted_sum;
use learn::nn::ops::norm::Moments;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value, Var};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::{Stop, Stopped};

use super::net::{GeneratorNetwork, N_NOISE};
use super::{GanConfig, Loss, RowLayout, gumbel, pick};
use crate::features::FeatureTable;
use crate::generators::output::{RequiredValue, activate, condition_loss};
use crate::generators::{TrainingConfig, TrainingProgress};

const N_EPOCHS: usize = 300;
const BATCH_ROWS: usize = 500;
/// Parts of a batch, independent of the number of threads, so that results are reproducible.
const N_SHARDS: usize = 2;
const LEARNING_RATE: f32 = 2e-4;
const ADAM_DECAYS: [f32; 2] = [0.5, 0.9];
const CRITIC_WEIGHT_DECAY: f32 = 1e-6;
const CRITIC_WIDTHS: [usize; 2] = [256, 256];
const DROPOUT: f32 = 0.5;
const GRADIENT_PENALTY: f32 = 10.0;
/// The stored generator is an exponential moving average over about this many steps: a single step is biased towards
/// whatever the critic accepted at that moment.
const AVERAGED_STEPS: f32 = 500.0;

/// Real rows, indexed by the values of condition columns.
struct RealRows<'a> {
    layout: &'a RowLayout,
    values: Vec<f32>,
    n_rows: usize,
    /// For each condition column and each of its values: the rows that have it.
    rows_with: Vec<Vec<Vec<u32>>>,
    /// For each condition column and each of its values: how often training asks for it.
    weights: Vec<Vec<f64>>,
}

/// Real rows with the contexts that the generator is given.
struct Batch {
    contexts: Vec<f32>,
    real: Vec<f32>,
    /// The value that each generated row has to have.
    required: Vec<RequiredValue>,
}

impl<'a> RealRows<'a> {
    fn new(jobs: &FeatureTable, layout: &'a RowLayout, rng: &mut Xoshiro256PlusPlus) -> Self {
        let encoder = &layout.encoder;
        let values = encoder.encode(jobs, rng);
        let mut rows_with = Vec::new();
        for (condition, positions) in encoder.conditions().iter().zip(encoder.condition_values(jobs)) {
            let mut rows = vec![Vec::new(); condition.fractions.len()];
            for (row, position) in positions.into_iter().enumerate() {
                rows[position].push(row as u32);
            }
            rows_with.push(rows);
        }
        // Training by sampling: rare values are asked for more often than they occur.
        let weight = |rows: &Vec<u32>| (rows.len() as f64).ln_1p();
        let weights = rows_with.iter().map(|values| values.iter().map(weight).collect()).collect();
        Self { layout, n_rows: jobs.n_jobs(), values, rows_with, weights }
    }

    fn row(&self, row: usize) -> &[f32] {
        let width = self.layout.encoder.width();
        &self.values[row * width..(row + 1) * width]
    }

    fn batch(&self, n_rows: usize, rng: &mut Xoshiro256PlusPlus) -> Batch {
        let encoder = &self.layout.encoder;
        let mut batch = Batch { contexts: Vec::new(), real: Vec::new(), required: Vec::new() };
        for _ in 0..n_rows {
            let mut row = rng.random_range(0..self.n_rows);
            let start = batch.contexts.len();
            batch.contexts.resize(start + self.layout.n_conditions(), 0.0);
            if self.layout.has_conditions && !self.rows_with.is_empty() {
                let column = rng.random_range(0..self.rows_with.len());
                let position = pick(&self.weights[column], rng);
                let rows = &self.rows_with[column][position];
                row = rows[rng.random_range(0..rows.len())] as usize;
                let first: usize = self.rows_with[..column].iter().map(Vec::len).sum();
                batch.contexts[start + first + position] = 1.0;
                let span = encoder.conditions()[column].span;
                batch.required.push(RequiredValue { span, position });
            }
            batch.real.extend_from_slice(self.row(row));
        }
        batch
    }
}

/// A forward pass of the generator.
struct Generated {
    raw: Var,
    rows: Var,
    moments: Vec<Moments>,
}

fn generate(
    network: &GeneratorNetwork,
    tape: &mut Tape<'_>,
    layout: &RowLayout,
    contexts: &[f32],
    n_rows: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Generated {
    let n_context = layout.n_context();
    let mut input = Vec::with_capacity(n_rows * (N_NOISE + n_context));
    for row in 0..n_rows {
        input.extend((0..N_NOISE).map(|_| rng.sample::<f32, _>(StandardNormal)));
        input.extend_from_slice(&contexts[row * n_context..(row + 1) * n_context]);
    }
    let input = tape.input(Value::plain(input, N_NOISE + n_context));
    let (raw, moments) = network.forward(tape, input);
    let noise: Vec<f32> = (0..n_rows * layout.encoder.width()).map(|_| gumbel(rng)).collect();
    let rows = activate(tape, raw, layout.encoder.spans(), &noise);
    Generated { raw, rows, moments }
}

/// Rows with their contexts, `pack` of them in one input of the critic.
fn packed(rows: &[f32], contexts: &[f32], width: usize, n_context: usize, pack: usize) -> Value {
    let n_rows = rows.len() / width;
    let mut values = Vec::with_capacity(n_rows * (width + n_context));
    for row in 0..n_rows {
        values.extend_from_slice(&rows[row * width..(row + 1) * width]);
        values.extend_from_slice(&contexts[row * n_context..(row + 1) * n_context]);
    }
    Value::plain(values, pack * (width + n_context))
}

struct Game<'a> {
    rows: RealRows<'a>,
    gan: GanConfig,
    generator: GeneratorNetwork,
    critic: Critic,
    generator_parameters: Parameters,
    critic_parameters: Parameters,
}

/// A loss and its gradient by every parameter.
struct LossGradient {
    gradient: Vec<f32>,
    loss: f64,
}

impl Game<'_> {
    fn critic_gradient(&self, n_rows: usize, seed: u64) -> LossGradient {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (layout, pack) = (self.rows.layout, self.gan.pack);
        let (width, n_context) = (layout.encoder.width(), layout.n_context());
        let batch = self.rows.batch(n_rows, &mut rng);
        let generated = {
            let mut tape = Tape::new(&self.generator_parameters);
            let generated = generate(&self.generator, &mut tape, layout, &batch.contexts, n_rows, &mut rng);
            tape.value(generated.rows).data.clone()
        };
        let real = packed(&batch.real, &batch.contexts, width, n_context, pack);
        let generated = packed(&generated, &batch.contexts, width, n_context, pack);
        let n_packs = real.n_samples;
        let mut tape = Tape::new(&self.critic_parameters);
        let both = Value::plain([real.data.as_slice(), &generated.data].concat(), real.n_columns);
        let both = tape.input(both);
        let (judgements, _) = self.critic.forward(&mut tape, both, &mut rng);
        let weight = 1.0 / n_packs as f32;
        let loss = match self.gan.loss {
            Loss::Wasserstein => {
                let weights = [vec![-weight; n_packs], vec![weight; n_packs]].concat();
                let distance = weighted_sum(&mut tape, judgements, weights);
                let mut between = real.data;
                for (real, generated) in
                    between.chunks_exact_mut(real.n_columns).zip(generated.data.chunks_exact(real.n_columns))
                {
                    let part: f32 = rng.random();
                    for (real, generated) in real.iter_mut().zip(generated) {
                        *real = part * *real + (1.0 - part) * generated;
                    }
                }
                let between = tape.input(Value::plain(between, real.n_columns));
                let (_, factors) = self.critic.forward(&mut tape, between, &mut rng);
                let gradient = self.critic.gradient(&mut tape, &factors);
                let penalty = length_penalty(&mut tape, gradient, GRADIENT_PENALTY);
                add(&mut tape, distance, penalty)
            }
            Loss::Logistic => {
                // The derivative of log(1 + exp(∓judgement)) at each judgement.
                let values = &tape.value(judgements).data;
                let derivative = |(at, judgement): (usize, &f32)| {
                    let is_real = at < n_packs;
                    let probability = 1.0 / (1.0 + (-judgement).exp());
                    weight * if is_real { probability - 1.0 } else { probability }
                };
                let weights = values.iter().enumerate().map(derivative).collect();
                weighted_sum(&mut tape, judgements, weights)
            }
        };
        let value = f64::from(tape.scalar(loss));
        let mut gradient = vec![0.0; self.critic_parameters.values().len()];
        tape.backward(loss, &mut gradient);
        LossGradient { gradient, loss: value }
    }

    /// The gradient of the generator, and the batch statistics of its layers.
    fn generator_gradient(&self, n_rows: usize, seed: u64) -> (LossGradient, Vec<Moments>) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (layout, pack) = (self.rows.layout, self.gan.pack);
        let (width, n_context) = (layout.encoder.width(), layout.n_context());
        let batch = self.rows.batch(n_rows, &mut rng);
        let mut tape = Tape::new(&self.generator_parameters);
        let Generated { raw, rows, moments } =
            generate(&self.generator, &mut tape, layout, &batch.contexts, n_rows, &mut rng);
        let judged = packed(&tape.value(rows).data, &batch.contexts, width, n_context, pack);
        let n_packs = judged.n_samples as f32;
        let (judgements, gradient) = self.critic.look(&self.critic_parameters, judged, &mut rng);
        // The gradient of the critic by rows, without that by contexts.
        let mut weights = Vec::with_capacity(n_rows * width);
        for (row, gradient) in gradient.chunks_exact(width + n_context).enumerate() {
            let derivative = match self.gan.loss {
                Loss::Wasserstein => -1.0 / n_packs,
                Loss::Logistic => (1.0 / (1.0 + (-judgements[row / pack]).exp()) - 1.0) / n_packs,
            };
            weights.extend(gradient[..width].iter().map(|gradient| derivative * gradient));
        }
        let mut loss = weighted_sum(&mut tape, rows, weights);
        if !batch.required.is_empty() {
            let missed = condition_loss(&mut tape, raw, layout.encoder.spans(), &batch.required);
            loss = add(&mut tape, loss, missed);
        }
        let mut gradient = vec![0.0; self.generator_parameters.values().len()];
        tape.backward(loss, &mut gradient);
        let mean = judgements.iter().map(|judgement| f64::from(*judgement)).sum::<f64>() / f64::from(n_packs);
        (LossGradient { gradient, loss: -mean }, moments)
    }
}

/// The mean over shards, plus the gradient of weight decay.
fn mean(shards: Vec<LossGradient>, parameters: &Parameters, weight_decay: f32) -> LossGradient {
    let n_shards = shards.len() as f32;
    let mut gradient: Vec<f32> = parameters.values().iter().map(|value| value * weight_decay).collect();
    let mut loss = 0.0;
    for shard in shards {
        for (sum, one) in gradient.iter_mut().zip(shard.gradient) {
            *sum += one / n_shards;
        }
        loss += shard.loss / f64::from(n_shards);
    }
    LossGradient { gradient, loss }
}

pub fn train(
    jobs: &FeatureTable,
    layout: &RowLayout,
    gan: GanConfig,
    config: TrainingConfig,
    stop: &Stop,
    report: &mut impl FnMut(TrainingProgress),
) -> Result<(GeneratorNetwork, Parameters), Stopped> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.seed);
    let (mut generator_parameters, mut critic_parameters) = (Parameters::default(), Parameters::default());
    let width = layout.encoder.width();
    let generator = GeneratorNetwork::new(&mut generator_parameters, layout.n_context(), width, &mut rng);
    let n_inputs = gan.pack * (width + layout.n_context());
    let critic = Critic::new(&mut critic_parameters, n_inputs, &CRITIC_WIDTHS, DROPOUT, &mut rng);
    let rows = RealRows::new(jobs, layout, &mut rng);
    let adam = |parameters: &Parameters| {
        let mut adam = Adam::new(LEARNING_RATE, parameters.values().len());
        adam.decays = ADAM_DECAYS;
        adam
    };
    let (mut generator_adam, mut critic_adam) = (adam(&generator_parameters), adam(&critic_parameters));
    let mut game = Game { rows, gan, generator, critic, generator_parameters, critic_parameters };
    // Whole packs in every shard.
    let unit = N_SHARDS * gan.pack;
    let n_rows = (BATCH_ROWS.min(jobs.n_jobs()) / unit * unit).max(unit) / N_SHARDS;
    let n_steps = (jobs.n_jobs() / (n_rows * N_SHARDS)).max(1);
    let n_epochs = config.epochs_or(N_EPOCHS);
    let started = Instant::now();
    let mut average = game.generator_parameters.values().to_vec();
    let mut n_done = 0.0f32;
    for epoch in 0..n_epochs {
        let mut loss = 0.0;
        for _ in 0..n_steps {
            stop.check()?;
            let seeds: Vec<u64> = (0..N_SHARDS).map(|_| rng.random()).collect();
            let shards = seeds.par_iter().map(|seed| game.critic_gradient(n_rows, *seed)).collect();
            let step = mean(shards, &game.critic_parameters, CRITIC_WEIGHT_DECAY);
            loss += step.loss / n_steps as f64;
            critic_adam.step(&mut game.critic_parameters, &step.gradient);
            let seeds: Vec<u64> = (0..N_SHARDS).map(|_| rng.random()).collect();
            let shards: Vec<(LossGradient, Vec<Moments>)> =
                seeds.par_iter().map(|seed| game.generator_gradient(n_rows, *seed)).collect();
            let (shards, moments): (Vec<LossGradient>, Vec<Vec<Moments>>) = shards.into_iter().unzip();
            // Parameters include the running statistics of batch normalisation, which must not decay.
            let step = mean(shards, &game.generator_parameters, 0.0);
            generator_adam.step(&mut game.generator_parameters, &step.gradient);
            for moments in &moments {
                game.generator.update_statistics(&mut game.generator_parameters, moments, n_rows);
            }
            n_done += 1.0;
            let rate = (1.0 / AVERAGED_STEPS).max(10.0 / (10.0 + n_done));
            for (average, now) in average.iter_mut().zip(game.generator_parameters.values()) {
                *average += rate * (now - *average);
            }
        }
        report(TrainingProgress::new(epoch + 1, n_epochs, loss, started));
    }
    game.generator_parameters.values_mut().copy_from_slice(&average);
    Ok((game.generator, game.generator_parameters))
}
