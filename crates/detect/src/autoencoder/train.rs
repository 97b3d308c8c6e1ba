//! The training objective of the autoencoders.

use std::ops::{ControlFlow, Range};

use learn::nn::ops::arithmetic::add;
use learn::nn::ops::loss::{cross_entropy, divergence, norm, squared_error};
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use learn::nn::train::{Epoch, Objective, TrainSettings, TrainState};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::{Stop, Stopped};

use super::GraphScope;
use super::net::Net;
use crate::Sample;
use crate::channel::N_RATES;
use crate::error::DetectError;

/// The weight of the cross entropy that is added to the squared error. Rare kinds of windows need it: where the softmax
/// is certain of the wrong mode, the squared error has no gradient.
const ENTROPY_WEIGHT: f32 = 0.1;
/// The minimum of optimisation steps per epoch, and of windows per batch.
const MIN_STEPS: usize = 128;
const MIN_BATCH: usize = 8;
/// The number of windows that the validation loss is computed on.
const MAX_VALIDATED: f64 = 2_000.0;

/// The graphs of a sample; the items of which training batches are made.
struct Graphs<'a> {
    sample: &'a Sample,
    /// The window batch of each graph, and its windows there.
    graphs: Vec<(usize, Range<usize>)>,
}

impl<'a> Graphs<'a> {
    fn new(sample: &'a Sample, scope: GraphScope) -> Self {
        let of_batch = |(index, batch)| scope.graphs(batch).into_iter().map(move |graph| (index, graph));
        Self { sample, graphs: sample.batches.iter().enumerate().flat_map(of_batch).collect() }
    }

    /// The mean number of windows per graph.
    fn mean_size(&self) -> f64 {
        self.sample.n_windows() as f64 / self.graphs.len().max(1) as f64
    }

    /// The windows of some graphs, and the range of each graph among them.
    fn gather(&self, items: &[usize]) -> (Vec<f32>, Vec<Range<usize>>) {
        let (mut windows, mut ranges) = (Vec::new(), Vec::new());
        let mut first = 0;
        for item in items {
            let (batch, graph) = &self.graphs[*item];
            for thread in &self.sample.batches[*batch].threads()[graph.clone()] {
                windows.extend_from_slice(&thread.values);
            }
            ranges.push(first..first + graph.len());
            first += graph.len();
        }
        (windows, ranges)
    }
}

struct Reconstruction<'a> {
    net: &'a Net,
    train: Graphs<'a>,
    validation: Graphs<'a>,
    divergence_weight: f32,
}

/// The sum of squared reconstruction errors times `scale`, without noise or penalties.
fn error(net: &Net, tape: &mut Tape<'_>, windows: &[f32], graphs: &[Range<usize>], scale: f32) -> Var {
    let encoded = net.encode(tape, net.input(windows));
    let z = net.exchange(tape, encoded.latent, graphs);
    let out = net.decode(tape, z);
    squared_error(tape, out, net.target(windows), scale)
}

/// A source of standard normal numbers.
pub fn noise(seed: u64) -> impl FnOnce(usize) -> Vec<f32> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    move |count| (0..count).map(|_| rng.sample(StandardNormal)).collect()
}

/// The windows of a batch, and the graphs among them.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    pub windows: &'a [f32],
    pub graphs: &'a [Range<usize>],
}

/// The weights of the terms of the loss.
#[derive(Debug, Clone, Copy)]
pub struct Weights {
    /// The weight of the squared error.
    pub scale: f32,
    /// The weight of the penalty on embeddings, relative to `scale`.
    pub divergence: f32,
}

/// The training loss: the squared error of the reconstruction from noisy embeddings, a cross-entropy term, and a penalty
/// on embeddings (their squared norm, or the KL divergence of a variational network).
pub fn loss(
    net: &Net,
    tape: &mut Tape<'_>,
    inputs: Inputs<'_>,
    weights: Weights,
    noise: impl FnOnce(usize) -> Vec<f32>,
) -> Var {
    let Inputs { windows, graphs } = inputs;
    let scale = weights.scale;
    let encoded = net.encode(tape, net.input(windows));
    let noise = noise(tape.value(encoded.latent).data.len());
    let z = net.draw(tape, &encoded, noise);
    let z = net.exchange(tape, z, graphs);
    let out = net.decode(tape, z);
    let target = net.target(windows);
    let unlikely = cross_entropy(tape, out, &target, N_RATES, ENTROPY_WEIGHT * scale);
    let error = squared_error(tape, out, target, scale);
    let loss = add(tape, error, unlikely);
    let weight = scale * net.size() as f32 * weights.divergence;
    let far = match encoded.log_variance {
        Some(log_variance) => divergence(tape, encoded.latent, log_variance, weight),
        None => norm(tape, encoded.latent, weight),
    };
    add(tape, loss, far)
}

impl Objective for Reconstruction<'_> {
    fn n_items(&self) -> usize {
        self.train.graphs.len()
    }

    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, seed: u64) -> Var {
        let (windows, graphs) = self.train.gather(items);
        let n_values = n_in_batch as f64 * self.train.mean_size() * self.net.size() as f64;
        let weights = Weights { scale: (1.0 / n_values) as f32, divergence: self.divergence_weight };
        loss(self.net, tape, Inputs { windows: &windows, graphs: &graphs }, weights, noise(seed))
    }

    fn validation(&self, parameters: &Parameters, stop: &Stop) -> Result<f64, Stopped> {
        // A subset, evenly spread, is enough for early stopping.
        let n_most = (MAX_VALIDATED / self.validation.mean_size()).ceil() as usize;
        let every = self.validation.graphs.len().div_ceil(n_most.max(1)).max(1);
        let items: Vec<usize> = (0..self.validation.graphs.len()).step_by(every).collect();
        let n_windows: usize = items.iter().map(|item| self.validation.graphs[*item].1.len()).sum();
        let n_graphs = (64.0 / self.validation.mean_size()).ceil().max(1.0) as usize;
        let errors: Result<Vec<f64>, Stopped> = items
            .par_chunks(n_graphs)
            .map(|items| {
                stop.check()?;
                let (windows, graphs) = self.validation.gather(items);
                let mut tape = Tape::new(parameters);
                let error = error(self.net, &mut tape, &windows, &graphs, 1.0 / self.net.size() as f32);
                Ok(f64::from(tape.scalar(error)))
            })
            .collect();
        Ok(errors?.iter().sum::<f64>() / n_windows.max(1) as f64)
    }
}

/// What a network is fitted to.
pub struct Fit<'a> {
    pub train: &'a Sample,
    pub validation: &'a Sample,
    pub scope: GraphScope,
    pub settings: &'a TrainSettings,
    pub divergence_weight: f32,
}

/// Trains a network, from the first epoch or from a checkpoint; returns the parameters with the lowest validation loss.
/// `after_epoch` gets the state from which training could continue.
pub fn fit(
    mut net: Net,
    fit: &Fit<'_>,
    resumed: Option<TrainState>,
    stop: &Stop,
    after_epoch: impl FnMut(&Epoch, &TrainState) -> Result<ControlFlow<()>, DetectError>,
) -> Result<Net, DetectError> {
    let train = Graphs::new(fit.train, fit.scope);
    let validation = Graphs::new(fit.validation, fit.scope);
    let settings = fit.settings;
    // With little data, batches are small, so that there are enough optimisation steps. A batch has about the same
    // number of windows whatever the size of the graphs.
    let n_windows = settings.batch_size.min(train.sample.n_windows() / MIN_STEPS).max(MIN_BATCH);
    let batch_size = (n_windows as f64 / train.mean_size()).round().max(1.0) as usize;
    let settings = TrainSettings { batch_size, ..settings.clone() }.check()?;
    let mut state = resumed.unwrap_or_else(|| TrainState::new(net.parameters.clone(), &settings));
    let divergence_weight = fit.divergence_weight;
    let objective = Reconstruction { net: &net, train, validation, divergence_weight };
    state.train(&objective, &settings, stop, after_epoch)?;
    net.parameters = state.best.map_or(state.parameters, |best| best.parameters);
    Ok(net)
}
