//! Training: batches in random order, shards of them on all threads, Adam, and an end when what is held out
//! does not get better any more.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::adam::Adam;
use super::parameters::Parameters;
use super::tape::{Tape, Var, add};

/// Shards of a batch, whatever the number of threads: sums of their gradients are always the same.
const N_SHARDS: usize = 4;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainSettings {
    pub n_epochs: usize,
    /// Items a step.
    pub batch: usize,
    pub rate: f64,
    /// Epochs over which steps grow to their full length.
    pub warm_up: usize,
    /// A gradient that is longer is cut to this length: one odd batch does not undo what was learnt.
    pub longest_gradient: f64,
    /// Epochs without a better validation after which training ends.
    pub patience: usize,
    pub seed: u64,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self { n_epochs: 30, batch: 64, rate: 3e-3, warm_up: 1, longest_gradient: 0.05, patience: 6, seed: 0 }
    }
}

/// What is to be learnt.
pub trait Objective: Sync {
    /// Things that batches are made of: windows, or whole graphs.
    fn n_items(&self) -> usize;

    /// The loss of some items, as a share of the mean over `n_in_batch`; `seed` is for what is random in it.
    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, seed: u64) -> Var;

    /// How good parameters are on what is held out; less is better.
    fn validation(&self, parameters: &Parameters) -> f64;
}

/// Where training stands; all that is needed to go on exactly as if it had not been interrupted.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainState {
    pub parameters: Parameters,
    pub adam: Adam,
    pub epoch: usize,
    pub best: Option<Best>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    pub validation: f64,
    pub epoch: usize,
    pub parameters: Parameters,
}

/// An epoch that is over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Epoch {
    pub epoch: usize,
    pub n_epochs: usize,
    pub loss: f64,
    pub validation: f64,
    pub best: f64,
    pub took: Duration,
    /// If every epoch that may come does come.
    pub left: Duration,
}

/// What a caller wants after an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    GoOn,
    Stop,
}

impl TrainState {
    pub fn new(parameters: Parameters, settings: &TrainSettings) -> Self {
        let adam = Adam::new(settings.rate as f32, parameters.values().len());
        Self { parameters, adam, epoch: 0, best: None }
    }

    /// Trains until the epochs are over, nothing has got better for long enough, or the caller says so.
    pub fn train(
        &mut self,
        objective: &impl Objective,
        settings: &TrainSettings,
        mut tell: impl FnMut(&Epoch, &Self) -> Then,
    ) {
        let begun = Instant::now();
        let first = self.epoch;
        while self.epoch < settings.n_epochs && !self.has_settled(settings) {
            let epoch_begun = Instant::now();
            let loss = self.run_epoch(objective, settings);
            let validation = objective.validation(&self.parameters);
            self.epoch += 1;
            if self.best.as_ref().is_none_or(|best| validation < best.validation) {
                let parameters = self.parameters.clone();
                self.best = Some(Best { validation, epoch: self.epoch, parameters });
            }
            let n_done = (self.epoch - first) as u32;
            let n_left = (settings.n_epochs - self.epoch) as u32;
            let epoch = Epoch {
                epoch: self.epoch,
                n_epochs: settings.n_epochs,
                loss,
                validation,
                best: self.best.as_ref().map_or(validation, |best| best.validation),
                took: epoch_begun.elapsed(),
                left: begun.elapsed() / n_done * n_left,
            };
            if tell(&epoch, self) == Then::Stop {
                return;
            }
        }
    }

    fn has_settled(&self, settings: &TrainSettings) -> bool {
        self.best.as_ref().is_some_and(|best| self.epoch - best.epoch >= settings.patience)
    }

    /// The order and all that is random depend on the seed and the epoch alone, so that a training that was
    /// interrupted goes on as it would have.
    fn run_epoch(&mut self, objective: &impl Objective, settings: &TrainSettings) -> f64 {
        let seed = settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.epoch as u64);
        let mut order: Vec<usize> = (0..objective.n_items()).collect();
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        // Shorter and shorter steps, along half a cosine.
        let done = self.epoch as f64 / settings.n_epochs as f64;
        let rate = settings.rate * 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        let n_steps = order.len().div_ceil(settings.batch);
        let n_warming = (settings.warm_up * n_steps).max(1) as f64;
        let (mut sum, mut n_batches) = (0.0, 0.0);
        for (index, batch) in order.chunks(settings.batch).enumerate() {
            let warmth = (self.epoch * n_steps + index + 1) as f64 / n_warming;
            self.adam.rate = (rate * warmth.min(1.0)) as f32;
            let (loss, mut gradients) =
                gradients_of(&self.parameters, objective, batch, seed ^ (index as u64) << 32);
            shorten(&mut gradients, settings.longest_gradient);
            self.adam.step(&mut self.parameters, &gradients);
            sum += loss;
            n_batches += 1.0;
        }
        sum / f64::max(n_batches, 1.0)
    }
}

/// Cuts a gradient to a length, if it is longer.
fn shorten(gradient: &mut [f32], longest: f64) {
    let length = gradient.iter().map(|slope| f64::from(*slope).powi(2)).sum::<f64>().sqrt();
    if length > longest {
        let share = (longest / length) as f32;
        gradient.iter_mut().for_each(|slope| *slope *= share);
    }
}

/// The loss of a batch and its gradient.
pub fn gradients_of(
    parameters: &Parameters,
    objective: &impl Objective,
    batch: &[usize],
    seed: u64,
) -> (f64, Vec<f32>) {
    let size = batch.len().div_ceil(N_SHARDS).max(1);
    let shards: Vec<(f64, Vec<f32>)> = batch
        .par_chunks(size)
        .enumerate()
        .map(|(shard, items)| {
            let mut tape = Tape::new(parameters);
            let loss = objective.loss(&mut tape, items, batch.len(), seed.wrapping_add(shard as u64));
            let value = f64::from(tape.scalar(loss));
            let mut gradients = vec![0.0; parameters.values().len()];
            tape.backward(loss, &mut gradients);
            (value, gradients)
        })
        .collect();
    let mut shards = shards.into_iter();
    let (mut loss, mut gradients) = shards.next().unwrap_or((0.0, vec![0.0; parameters.values().len()]));
    for (more, slopes) in shards {
        loss += more;
        add(&mut gradients, &slopes);
    }
    (loss, gradients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_that_is_too_long_keeps_its_direction() {
        let mut gradient = [3.0, 4.0];
        shorten(&mut gradient, 10.0);
        assert_eq!(gradient, [3.0, 4.0]);
        shorten(&mut gradient, 0.5);
        assert!((gradient[0] - 0.3).abs() < 1e-6 && (gradient[1] - 0.4).abs() < 1e-6, "{gradient:?}");
    }
}
