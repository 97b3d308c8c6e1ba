//! What autoencoders are trained for: to restore the windows of whole graphs.

use std::ops::Range;

use learn::nn::ops::arithmetic::add;
use learn::nn::ops::loss::{cross_entropy, divergence, squared_error};
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use learn::nn::train::{Epoch, Objective, Then, TrainSettings, TrainState};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use super::Reach;
use super::net::Net;
use crate::detect::Sample;
use crate::detect::channel::N_RATES;

/// How much cross entropy is added to the squared error. The rare kinds of windows are learnt by it: a softmax that is
/// sure of the wrong mode leaves squared errors no slope.
const ENTROPY_WEIGHT: f32 = 0.1;

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

impl Restoring<'_> {
    /// How far windows are from what is restored of them, times `scale`. With a generator it is what training makes
    /// small, with noise in the embedding; without, the reconstruction error alone.
    fn error(
        &self,
        tape: &mut Tape<'_>,
        (windows, graphs): (&[f32], &[Range<usize>]),
        scale: f32,
        rng: Option<Xoshiro256PlusPlus>,
    ) -> Var {
        let is_training = rng.is_some();
        let encoded = self.net.encode(tape, self.net.input(windows));
        let z = match (encoded.log_variance, rng) {
            (Some(_), Some(mut rng)) => {
                let count = tape.value(encoded.latent).data.len();
                let noise = (0..count).map(|_| rng.sample(StandardNormal)).collect();
                self.net.draw(tape, &encoded, noise)
            }
            _ => encoded.latent,
        };
        let z = self.net.exchange(tape, z, graphs);
        let out = self.net.decode(tape, z);
        let target = self.net.target(windows);
        let unlikely = is_training.then(|| cross_entropy(tape, out, &target, N_RATES, ENTROPY_WEIGHT * scale));
        let mut error = squared_error(tape, out, target, scale);
        if let Some(unlikely) = unlikely {
            error = add(tape, error, unlikely);
        }
        match encoded.log_variance {
            Some(log_variance) if is_training => {
                let weight = scale * self.net.size() as f32 * self.divergence_weight;
                let far = divergence(tape, encoded.latent, log_variance, weight);
                add(tape, error, far)
            }
            _ => error,
        }
    }
}

impl Objective for Restoring<'_> {
    fn n_items(&self) -> usize {
        self.train.graphs.len()
    }

    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, seed: u64) -> Var {
        let (windows, graphs) = self.train.gather(items);
        let n_values = n_in_batch as f64 * self.train.mean_size() * self.net.size() as f64;
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        self.error(tape, (&windows, &graphs), (1.0 / n_values) as f32, Some(rng))
    }

    fn validation(&self, parameters: &Parameters) -> f64 {
        let items: Vec<usize> = (0..self.validation.graphs.len()).collect();
        let n_graphs = (64.0 / self.validation.mean_size()).ceil().max(1.0) as usize;
        let errors: Vec<f64> = items
            .par_chunks(n_graphs)
            .map(|items| {
                let (windows, graphs) = self.validation.gather(items);
                let mut tape = Tape::new(parameters);
                let error = self.error(&mut tape, (&windows, &graphs), 1.0 / self.net.size() as f32, None);
                f64::from(tape.scalar(error))
            })
            .collect();
        errors.iter().sum::<f64>() / self.validation.sample.n_windows().max(1) as f64
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
    // A batch has about as many windows, whatever the graphs.
    let batch = (settings.batch as f64 / train.mean_size()).round().max(1.0) as usize;
    let settings = TrainSettings { batch, ..settings.clone() };
    let mut state = begun.unwrap_or_else(|| TrainState::new(net.parameters.clone(), &settings));
    state.train(&Restoring { net: &net, train, validation, divergence_weight }, &settings, tell);
    net.parameters = state.best.map_or(state.parameters, |best| best.parameters);
    net
}
