//! Training: the critic learns to tell real rows from those that are made, then the maker learns to make them harder to tell.

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

use super::net::{Maker, N_NOISE};
use super::{Form, Loss, Recipe, gumbel, pick};
use crate::features::Jobs;
use crate::generators::activate::{activate, unlikely};
use crate::generators::encode::Block;
use crate::generators::{FitSettings, Step};

const N_EPOCHS: usize = 300;
const BATCH: usize = 500;
/// Parts of a batch, whatever the number of threads: results are always the same.
const N_SHARDS: usize = 2;
const RATE: f32 = 2e-4;
const DECAYS: [f32; 2] = [0.5, 0.9];
const SHRINKAGE: f32 = 1e-6;
const CRITIC_WIDTHS: [usize; 2] = [256, 256];
const DROPOUT: f32 = 0.5;
const PENALTY: f32 = 10.0;
/// The maker that is kept is the mean of those of about so many last steps: one of them alone leans to whatever the critic did not
/// mind at that moment.
const REMEMBERED_STEPS: f32 = 500.0;

/// Real rows, and where those with each value of a condition are.
struct Rows<'a> {
    form: &'a Form,
    values: Vec<f32>,
    n_rows: usize,
    /// For each condition and each of its values: rows that have it, and how often it is asked for.
    with: Vec<Vec<Vec<u32>>>,
    asked: Vec<Vec<f64>>,
}

/// Rows that are judged together, with what they are made in view of.
struct Batch {
    contexts: Vec<f32>,
    real: Vec<f32>,
    /// The block and the value that each row has to have.
    wanted: Vec<(usize, usize)>,
}

impl<'a> Rows<'a> {
    fn new(jobs: &Jobs, form: &'a Form, rng: &mut Xoshiro256PlusPlus) -> Self {
        let encoder = &form.encoder;
        let values = encoder.encode(jobs, rng);
        let with: Vec<Vec<Vec<u32>>> = encoder
            .conditions
            .iter()
            .map(|(block, shares)| {
                let first = encoder.blocks[*block].first;
                let mut rows = vec![Vec::new(); shares.len()];
                for (row, values) in values.chunks_exact(encoder.width).enumerate() {
                    let found = values[first..first + shares.len()].iter().position(|value| *value > 0.5);
                    rows[found.unwrap_or(0)].push(row as u32);
                }
                rows
            })
            .collect();
        // Rare values are asked for more often than they are there.
        let asked = with
            .iter()
            .map(|values| values.iter().map(|rows| (rows.len() as f64).ln_1p()).collect())
            .collect();
        Self { form, n_rows: jobs.len(), values, with, asked }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.form.encoder.width..(row + 1) * self.form.encoder.width]
    }

    fn batch(&self, n_rows: usize, rng: &mut Xoshiro256PlusPlus) -> Batch {
        let encoder = &self.form.encoder;
        let has_conditions = self.form.has_conditions && !self.with.is_empty();
        let mut batch = Batch { contexts: Vec::new(), real: Vec::new(), wanted: Vec::new() };
        for _ in 0..n_rows {
            let mut row = rng.random_range(0..self.n_rows);
            if self.form.has_conditions {
                let start = batch.contexts.len();
                batch.contexts.resize(start + encoder.condition_width(), 0.0);
                if has_conditions {
                    let which = rng.random_range(0..self.with.len());
                    let value = pick(&self.asked[which], rng);
                    let rows = &self.with[which][value];
                    row = rows[rng.random_range(0..rows.len())] as usize;
                    let first: usize = self.with[..which].iter().map(Vec::len).sum();
                    batch.contexts[start + first + value] = 1.0;
                    batch.wanted.push((encoder.conditions[which].0, value));
                }
            }
            if self.form.has_past {
                batch.contexts.extend_from_slice(self.row(row.saturating_sub(1)));
            }
            batch.real.extend_from_slice(self.row(row));
        }
        batch
    }
}

/// What is made of contexts: before and after activation.
fn make(
    maker: &Maker,
    tape: &mut Tape<'_>,
    form: &Form,
    contexts: &[f32],
    n_rows: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> (Var, Var, Vec<Moments>) {
    let n_context = form.n_context();
    let mut input = Vec::with_capacity(n_rows * (N_NOISE + n_context));
    for row in 0..n_rows {
        input.extend((0..N_NOISE).map(|_| rng.sample::<f32, _>(StandardNormal)));
        input.extend_from_slice(&contexts[row * n_context..(row + 1) * n_context]);
    }
    let input = tape.input(Value::plain(input, N_NOISE + n_context));
    let (raw, moments) = maker.forward(tape, input);
    let noise: Vec<f32> = (0..n_rows * form.encoder.width).map(|_| gumbel(rng)).collect();
    let rows = activate(tape, raw, &form.encoder.blocks, &noise);
    (raw, rows, moments)
}

/// Rows beside their contexts, `pack` of them in one.
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
    rows: Rows<'a>,
    recipe: Recipe,
    maker: Maker,
    critic: Critic,
    of_maker: Parameters,
    of_critic: Parameters,
}

/// Slopes of a loss by every parameter, and the loss.
type Slopes = (Vec<f32>, f64);

impl Game<'_> {
    /// How the critic should change.
    fn critic_slopes(&self, n_rows: usize, seed: u64) -> Slopes {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (form, pack) = (self.rows.form, self.recipe.pack);
        let (width, n_context) = (form.encoder.width, form.n_context());
        let batch = self.rows.batch(n_rows, &mut rng);
        let made = {
            let mut tape = Tape::new(&self.of_maker);
            let (_, rows, _) = make(&self.maker, &mut tape, form, &batch.contexts, n_rows, &mut rng);
            tape.value(rows).data.clone()
        };
        let real = packed(&batch.real, &batch.contexts, width, n_context, pack);
        let made = packed(&made, &batch.contexts, width, n_context, pack);
        let n_packs = real.n_samples;
        let mut tape = Tape::new(&self.of_critic);
        let both = Value::plain([real.data.as_slice(), &made.data].concat(), real.n_columns);
        let both = tape.input(both);
        let (opinions, _) = self.critic.forward(&mut tape, both, &mut rng);
        let share = 1.0 / n_packs as f32;
        let loss = match self.recipe.loss {
            Loss::Wasserstein => {
                let weights = [vec![-share; n_packs], vec![share; n_packs]].concat();
                let distance = weighted_sum(&mut tape, opinions, weights);
                let mut between = real.data;
                for (real, made) in
                    between.chunks_exact_mut(real.n_columns).zip(made.data.chunks_exact(real.n_columns))
                {
                    let part: f32 = rng.random();
                    real.iter_mut()
                        .zip(made)
                        .for_each(|(real, made)| *real = part * *real + (1.0 - part) * made);
                }
                let between = tape.input(Value::plain(between, real.n_columns));
                let (_, factors) = self.critic.forward(&mut tape, between, &mut rng);
                let gradient = self.critic.gradient(&mut tape, &factors);
                let penalty = length_penalty(&mut tape, gradient, PENALTY);
                add(&mut tape, distance, penalty)
            }
            Loss::Logistic => {
                // The slope of log(1 + exp(∓opinion)), at the opinions that there are.
                let values = &tape.value(opinions).data;
                let slope = |(at, opinion): (usize, &f32)| {
                    let is_real = at < n_packs;
                    let sure = 1.0 / (1.0 + (-opinion).exp());
                    share * if is_real { sure - 1.0 } else { sure }
                };
                let weights = values.iter().enumerate().map(slope).collect();
                weighted_sum(&mut tape, opinions, weights)
            }
        };
        let found = f64::from(tape.scalar(loss));
        let mut slopes = vec![0.0; self.of_critic.values().len()];
        tape.backward(loss, &mut slopes);
        (slopes, found)
    }

    /// How the maker should change, and the moments of its layers.
    fn maker_slopes(&self, n_rows: usize, seed: u64) -> (Slopes, Vec<Moments>) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (form, pack) = (self.rows.form, self.recipe.pack);
        let (width, n_context) = (form.encoder.width, form.n_context());
        let batch = self.rows.batch(n_rows, &mut rng);
        let mut tape = Tape::new(&self.of_maker);
        let (raw, rows, moments) = make(&self.maker, &mut tape, form, &batch.contexts, n_rows, &mut rng);
        let judged = packed(&tape.value(rows).data, &batch.contexts, width, n_context, pack);
        let n_packs = judged.n_samples as f32;
        let (opinions, gradient) = self.critic.look(&self.of_critic, judged, &mut rng);
        // The critic's gradient by rows, without that by contexts.
        let mut weights = Vec::with_capacity(n_rows * width);
        for (row, gradient) in gradient.chunks_exact(width + n_context).enumerate() {
            let slope = match self.recipe.loss {
                Loss::Wasserstein => -1.0 / n_packs,
                Loss::Logistic => (1.0 / (1.0 + (-opinions[row / pack]).exp()) - 1.0) / n_packs,
            };
            weights.extend(gradient[..width].iter().map(|gradient| slope * gradient));
        }
        let mut loss = weighted_sum(&mut tape, rows, weights);
        if !batch.wanted.is_empty() {
            let blocks: &[Block] = &form.encoder.blocks;
            let missed = unlikely(&mut tape, raw, blocks, &batch.wanted);
            loss = add(&mut tape, loss, missed);
        }
        let mut slopes = vec![0.0; self.of_maker.values().len()];
        tape.backward(loss, &mut slopes);
        let opinion = opinions.iter().map(|opinion| f64::from(*opinion)).sum::<f64>() / f64::from(n_packs);
        ((slopes, -opinion), moments)
    }
}

/// The mean of slopes, with a pull of every weight towards zero.
fn mean(shards: Vec<Slopes>, parameters: &Parameters, shrinkage: f32) -> Slopes {
    let n_shards = shards.len() as f32;
    let mut slopes: Vec<f32> = parameters.values().iter().map(|value| value * shrinkage).collect();
    let mut loss = 0.0;
    for (of_shard, found) in shards {
        slopes.iter_mut().zip(of_shard).for_each(|(slope, of_shard)| *slope += of_shard / n_shards);
        loss += found / f64::from(n_shards);
    }
    (slopes, loss)
}

pub fn train(
    jobs: &Jobs,
    form: &Form,
    recipe: Recipe,
    settings: FitSettings,
    tell: &mut impl FnMut(Step),
) -> (Maker, Parameters) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
    let (mut of_maker, mut of_critic) = (Parameters::default(), Parameters::default());
    let maker = Maker::new(&mut of_maker, form.n_context(), form.encoder.width, &mut rng);
    let n_inputs = recipe.pack * (form.encoder.width + form.n_context());
    let critic = Critic::new(&mut of_critic, n_inputs, &CRITIC_WIDTHS, DROPOUT, &mut rng);
    let rows = Rows::new(jobs, form, &mut rng);
    let adam = |parameters: &Parameters| {
        let mut adam = Adam::new(RATE, parameters.values().len());
        adam.decays = DECAYS;
        adam
    };
    let (mut maker_adam, mut critic_adam) = (adam(&of_maker), adam(&of_critic));
    let mut game = Game { rows, recipe, maker, critic, of_maker, of_critic };
    // Whole packs in every shard.
    let whole = N_SHARDS * recipe.pack;
    let n_rows = (BATCH.min(jobs.len()) / whole * whole).max(whole) / N_SHARDS;
    let n_steps = (jobs.len() / (n_rows * N_SHARDS)).max(1);
    let n_epochs = settings.n_epochs.unwrap_or(N_EPOCHS);
    let begun = Instant::now();
    let mut usual = game.of_maker.values().to_vec();
    let mut n_done = 0.0f32;
    for epoch in 0..n_epochs {
        let mut loss = 0.0;
        for _ in 0..n_steps {
            let seeds: Vec<u64> = (0..N_SHARDS).map(|_| rng.random()).collect();
            let shards = seeds.par_iter().map(|seed| game.critic_slopes(n_rows, *seed)).collect();
            let (slopes, found) = mean(shards, &game.of_critic, SHRINKAGE);
            loss += found / n_steps as f64;
            critic_adam.step(&mut game.of_critic, &slopes);
            let seeds: Vec<u64> = (0..N_SHARDS).map(|_| rng.random()).collect();
            let found: Vec<(Slopes, Vec<Moments>)> =
                seeds.par_iter().map(|seed| game.maker_slopes(n_rows, *seed)).collect();
            let (shards, moments): (Vec<Slopes>, Vec<Vec<Moments>>) = found.into_iter().unzip();
            // What is usual of layers is no weight, and has no slope: it must not be pulled either.
            let (slopes, _) = mean(shards, &game.of_maker, 0.0);
            maker_adam.step(&mut game.of_maker, &slopes);
            for moments in &moments {
                game.maker.remember(&mut game.of_maker, moments, n_rows);
            }
            n_done += 1.0;
            let part = (1.0 / REMEMBERED_STEPS).max(10.0 / (10.0 + n_done));
            usual
                .iter_mut()
                .zip(game.of_maker.values())
                .for_each(|(usual, now)| *usual += part * (now - *usual));
        }
        let left = begun.elapsed() / (epoch as u32 + 1) * (n_epochs - epoch - 1) as u32;
        tell(Step { done: epoch + 1, total: n_epochs, loss: Some(loss), left });
    }
    game.of_maker.values_mut().copy_from_slice(&usual);
    (game.maker, game.of_maker)
}
