//! What autoencoders are trained for: to restore the windows of whole graphs.

use std::ops::Range;

use learn::nn::ops::arithmetic::add;
use learn::nn::ops::loss::{cross_entropy, divergence, norm, squared_error};
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use learn::nn::train::{Epoch, Objective, Then, TrainSettings, TrainState};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use super::Reach;
use super::net::Net;
use crate::Sample;
use crate::channel::N_RATES;

/// How much cross entropy is added to the squared error. The rare kinds of windows are learnt by it: a softmax that is
/// sure of the wrong mode leaves squared errors no slope.
const ENTROPY_WEIGHT: f32 = 0.1;
/// Steps that an epoch should have, and windows that a batch has at least.
const LEAST_STEPS: usize = 128;
const LEAST_BATCH: usize = 8;
/// Windows that each epoch is judged by.
const MOST_VALIDATED: f64 = 2_000.0;

/// Graphs of a sample; a batch is some of them.
struct Graphs<'a> {
    sample: &'a Sample,
    /// The moment of each, and the windows there.
    graphs: Vec<(usize, Range<usize>)>,
}

impl<'a> Graphs<'a> {
    fn new(sample: &'a Sample, reach: Reach) -> Self {
        let of_moment = |(index, moment)| reach.graphs(moment).into_iter().map(move |graph| (index, graph));
        Self { sample, graphs: sample.moments.iter().enumerate().flat_map(of_moment).collect() }
    }

    /// Windows in a graph, on the average.
    fn mean_size(&self) -> f64 {
        self.sample.n_windows() as f64 / self.graphs.len().max(1) as f64
    }

    /// The windows of some graphs, and where each graph is among them.
    fn gather(&self, items: &[usize]) -> (Vec<f32>, Vec<Range<usize>>) {
        let (mut windows, mut ranges) = (Vec::new(), Vec::new());
        let mut first = 0;
        for item in items {
            let (moment, graph) = &self.graphs[*item];
            for thread in &self.sample.moments[*moment].threads[graph.clone()] {
                windows.extend_from_slice(&thread.values);
            }
            ranges.push(first..first + graph.len());
            first += graph.len();
        }
        (windows, ranges)
    }
}

struct Restoring<'a> {
    net: &'a Net,
    train: Graphs<'a>,
    validation: Graphs<'a>,
    divergence_weight: f32,
}

/// How far windows are from what is restored of them, times `scale`: all that is looked at when nothing is learnt.
fn error(net: &Net, tape: &mut Tape<'_>, windows: &[f32], graphs: &[Range<usize>], scale: f32) -> Var {
    let encoded = net.encode(tape, net.input(windows));
    let z = net.exchange(tape, encoded.latent, graphs);
    let out = net.decode(tape, z);
    squared_error(tape, out, net.target(windows), scale)
}

/// Draws as many numbers as embeddings have.
pub fn noise(seed: u64) -> impl FnOnce(usize) -> Vec<f32> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    move |count| (0..count).map(|_| rng.sample(StandardNormal)).collect()
}

/// What training makes small: the error of what is restored from embeddings with `noise`, a little cross entropy, and how
/// large embeddings are, or those of a variational network unlike a normal distribution: they must not outgrow the noise.
pub fn loss(
    net: &Net,
    tape: &mut Tape<'_>,
    (windows, graphs): (&[f32], &[Range<usize>]),
    (scale, divergence_weight): (f32, f32),
    noise: impl FnOnce(usize) -> Vec<f32>,
) -> Var {
    let encoded = net.encode(tape, net.input(windows));
    let noise = noise(tape.value(encoded.latent).data.len());
    let z = net.draw(tape, &encoded, noise);
    let z = net.exchange(tape, z, graphs);
    let out = net.decode(tape, z);
    let target = net.target(windows);
    let unlikely = cross_entropy(tape, out, &target, N_RATES, ENTROPY_WEIGHT * scale);
    let error = squared_error(tape, out, target, scale);
    let loss = add(tape, error, unlikely);
    let weight = scale * net.size() as f32 * divergence_weight;
    let far = match encoded.log_variance {
        Some(log_variance) => divergence(tape, encoded.latent, log_variance, weight),
        None => norm(tape, encoded.latent, weight),
    };
    add(tape, loss, far)
}

impl Objective for Restoring<'_> {
    fn n_items(&self) -> usize {
        self.train.graphs.len()
    }

    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, seed: u64) -> Var {
        let (windows, graphs) = self.train.gather(items);
        let n_values = n_in_batch as f64 * self.train.mean_size() * self.net.size() as f64;
        let weights = ((1.0 / n_values) as f32, self.divergence_weight);
        loss(self.net, tape, (&windows, &graphs), weights, noise(seed))
    }

    fn validation(&self, parameters: &Parameters) -> f64 {
        // A part of the windows, evenly spread, says well enough when to stop.
        let n_most = (MOST_VALIDATED / self.validation.mean_size()).ceil() as usize;
        let every = self.validation.graphs.len().div_ceil(n_most.max(1)).max(1);
        let items: Vec<usize> = (0..self.validation.graphs.len()).step_by(every).collect();
        let n_windows: usize = items.iter().map(|item| self.validation.graphs[*item].1.len()).sum();
        let n_graphs = (64.0 / self.validation.mean_size()).ceil().max(1.0) as usize;
        let errors: Vec<f64> = items
            .par_chunks(n_graphs)
            .map(|items| {
                let (windows, graphs) = self.validation.gather(items);
                let mut tape = Tape::new(parameters);
                let error = error(self.net, &mut tape, &windows, &graphs, 1.0 / self.net.size() as f32);
                f64::from(tape.scalar(error))
            })
            .collect();
        errors.iter().sum::<f64>() / n_windows.max(1) as f64
    }
}

/// Trains a network, from its first epoch or from where a checkpoint left off; returns the best that validation
/// saw. `tell` hears of each epoch, with the state that could go on from there.
pub fn fit(
    mut net: Net,
    (train, validation): (&Sample, &Sample),
    reach: Reach,
    (settings, divergence_weight): (&TrainSettings, f32),
    begun: Option<TrainState>,
    tell: impl FnMut(&Epoch, &TrainState) -> Then,
) -> Net {
    let (train, validation) = (Graphs::new(train, reach), Graphs::new(validation, reach));
    // Little data is gone through in small steps, or there would be too few of them; and a batch has about as many
    // windows, whatever the graphs.
    let n_windows = settings.batch.min(train.sample.n_windows() / LEAST_STEPS).max(LEAST_BATCH);
    let batch = (n_windows as f64 / train.mean_size()).round().max(1.0) as usize;
    let settings = TrainSettings { batch, ..settings.clone() };
    let mut state = begun.unwrap_or_else(|| TrainState::new(net.parameters.clone(), &settings));
    state.train(&Restoring { net: &net, train, validation, divergence_weight }, &settings, tell);
    net.parameters = state.best.map_or(state.parameters, |best| best.parameters);
    net
}
