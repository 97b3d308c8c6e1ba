//! Training: minimises the negative log likelihood of rows and the divergence of embeddings from the normal distribution.

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
use workload::{Stop, Stopped};

use super::{N_LATENT, Net};
use crate::features::FeatureTable;
use crate::generators::encoding::Encoder;
use crate::generators::output::negative_log_likelihood;
use crate::generators::{TrainingConfig, TrainingProgress};

const N_EPOCHS: usize = 300;
const BATCH_ROWS: usize = 500;
const N_SHARDS: usize = 2;
const LEARNING_RATE: f32 = 1e-3;
const WEIGHT_DECAY: f32 = 1e-5;
/// The weight of the likelihood relative to the divergence.
const LOSS_FACTOR: f32 = 2.0;

pub fn train(
    jobs: &FeatureTable,
    encoder: &Encoder,
    config: TrainingConfig,
    stop: &Stop,
    report: &mut impl FnMut(TrainingProgress),
) -> Result<(Net, Parameters), Stopped> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.seed);
    let mut parameters = Parameters::default();
    let net = Net::new(&mut parameters, encoder.width(), &mut rng);
    let rows = encoder.encode(jobs, &mut rng);
    let mut adam = Adam::new(LEARNING_RATE, parameters.values().len());
    let n_epochs = config.epochs_or(N_EPOCHS);
    let mut order: Vec<usize> = (0..jobs.n_jobs()).collect();
    let started = Instant::now();
    for epoch in 0..n_epochs {
        order.shuffle(&mut rng);
        let mut loss = 0.0;
        for batch in order.chunks(BATCH_ROWS) {
            stop.check()?;
            let shards: Vec<(&[usize], u64)> =
                batch.chunks(batch.len().div_ceil(N_SHARDS)).map(|shard| (shard, rng.random())).collect();
            let step =
                Step { net: &net, parameters: &parameters, encoder, rows: &rows, n_in_batch: batch.len() };
            let found: Vec<(Vec<f32>, f64)> =
                shards.into_par_iter().map(|(shard, seed)| step.gradient(shard, seed)).collect();
            let mut sum: Vec<f32> = parameters.values().iter().map(|value| value * WEIGHT_DECAY).collect();
            for (gradient, shard_loss) in found {
                for (sum, one) in sum.iter_mut().zip(gradient) {
                    *sum += one;
                }
                loss += shard_loss * batch.len() as f64 / jobs.n_jobs() as f64;
            }
            adam.step(&mut parameters, &sum);
        }
        report(TrainingProgress::new(epoch + 1, n_epochs, loss, started));
    }
    Ok((net, parameters))
}

/// What the shards of a batch share.
struct Step<'a> {
    net: &'a Net,
    parameters: &'a Parameters,
    encoder: &'a Encoder,
    rows: &'a [f32],
    n_in_batch: usize,
}

impl Step<'_> {
    /// The gradient of the loss of some rows by every parameter, and the loss.
    fn gradient(&self, shard: &[usize], seed: u64) -> (Vec<f32>, f64) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let width = self.encoder.width();
        let real: Vec<f32> =
            shard.iter().flat_map(|row| &self.rows[row * width..(row + 1) * width]).copied().collect();
        let mut tape = Tape::new(self.parameters);
        let x = tape.input(Value::plain(real.clone(), width));
        let (mean, log_variance) = self.net.encode(&mut tape, x);
        let noise = (0..shard.len() * N_LATENT).map(|_| rng.sample(StandardNormal)).collect();
        let z = sample(&mut tape, mean, log_variance, noise);
        let raw = self.net.decode(&mut tape, z);
        let weight = 1.0 / self.n_in_batch as f32;
        let likelihood = negative_log_likelihood(
            &mut tape,
            raw,
            &real,
            self.encoder.spans(),
            self.net.std_devs,
            LOSS_FACTOR * weight,
        );
        let divergence = divergence(&mut tape, mean, log_variance, weight);
        let loss = add(&mut tape, likelihood, divergence);
        let value = f64::from(tape.scalar(loss));
        let mut gradient = vec![0.0; self.parameters.values().len()];
        tape.backward(loss, &mut gradient);
        (gradient, value)
    }
}
