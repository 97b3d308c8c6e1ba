//! Training: rows should be likely given their embeddings, and embeddings normal.

use std::time::Instant;

use learn::nn::adam::Adam;
use learn::nn::ops::arithmetic::add;
use learn::nn::ops::loss::divergence;
use learn::nn::ops::sample::sample;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use super::{N_LATENT, Net};
use crate::features::Jobs;
use crate::generators::activate::improbability;
use crate::generators::encode::Encoder;
use crate::generators::{FitSettings, Step};

const N_EPOCHS: usize = 300;
const BATCH: usize = 500;
const N_SHARDS: usize = 2;
const RATE: f32 = 1e-3;
const SHRINKAGE: f32 = 1e-5;
/// How much rows count beside embeddings.
const LOSS_FACTOR: f32 = 2.0;

pub fn train(
    jobs: &Jobs,
    encoder: &Encoder,
    settings: FitSettings,
    tell: &mut impl FnMut(Step),
) -> (Net, Parameters) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
    let mut parameters = Parameters::default();
    let net = Net::new(&mut parameters, encoder.width, &mut rng);
    let rows = encoder.encode(jobs, &mut rng);
    let mut adam = Adam::new(RATE, parameters.values().len());
    let n_epochs = settings.n_epochs.unwrap_or(N_EPOCHS);
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let begun = Instant::now();
    for epoch in 0..n_epochs {
        order.shuffle(&mut rng);
        let mut loss = 0.0;
        for batch in order.chunks(BATCH) {
            let shards: Vec<(&[usize], u64)> =
                batch.chunks(batch.len().div_ceil(N_SHARDS)).map(|shard| (shard, rng.random())).collect();
            let found: Vec<(Vec<f32>, f64)> = shards
                .into_par_iter()
                .map(|(shard, seed)| slopes(&net, &parameters, encoder, &rows, (shard, batch.len()), seed))
                .collect();
            let mut sum: Vec<f32> = parameters.values().iter().map(|value| value * SHRINKAGE).collect();
            for (slopes, of_shard) in found {
                sum.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope);
                loss += of_shard * batch.len() as f64 / jobs.len() as f64;
            }
            adam.step(&mut parameters, &sum);
        }
        let left = begun.elapsed() / (epoch as u32 + 1) * (n_epochs - epoch - 1) as u32;
        tell(Step { done: epoch + 1, total: n_epochs, loss: Some(loss), left });
    }
    (net, parameters)
}

fn slopes(
    net: &Net,
    parameters: &Parameters,
    encoder: &Encoder,
    rows: &[f32],
    (shard, n_in_batch): (&[usize], usize),
    seed: u64,
) -> (Vec<f32>, f64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let real: Vec<f32> =
        shard.iter().flat_map(|row| &rows[row * encoder.width..(row + 1) * encoder.width]).copied().collect();
    let mut tape = Tape::new(parameters);
    let x = tape.input(Value::plain(real.clone(), encoder.width));
    let (mean, log_variance) = net.encode(&mut tape, x);
    let noise = (0..shard.len() * N_LATENT).map(|_| rng.sample(StandardNormal)).collect();
    let z = sample(&mut tape, mean, log_variance, noise);
    let made = net.decode(&mut tape, z);
    let share = 1.0 / n_in_batch as f32;
    let unlikely = improbability(&mut tape, made, &real, &encoder.blocks, net.widths, LOSS_FACTOR * share);
    let far = divergence(&mut tape, mean, log_variance, share);
    let loss = add(&mut tape, unlikely, far);
    let found = f64::from(tape.scalar(loss));
    let mut slopes = vec![0.0; parameters.values().len()];
    tape.backward(loss, &mut slopes);
    (slopes, found)
}
