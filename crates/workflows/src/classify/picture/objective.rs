//! The training objectives of the networks: all layers on charts, or the last layer on features.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use learn::nn::ops::linear::Linear;
use learn::nn::ops::loss::class_entropy;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value, Var};
use learn::nn::train::{Objective, TrainSettings, TrainState};
use learn::stats::softmax;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::{Stop, Stopped};

use super::net::Net;
use super::value;
use crate::classify::{EpochProgress, most_likely};
use crate::draw::{Gantt, Part, pixels};
use crate::error::Result;

/// An objective that also knows its accuracy.
pub(super) trait Classification: Objective {
    /// The accuracy of the last validation.
    fn accuracy(&self) -> f64;
}

/// The accuracy of the last validation.
#[derive(Default)]
pub(super) struct LastAccuracy(Mutex<f64>);

impl LastAccuracy {
    fn store(&self, (loss, accuracy): (f64, f64)) -> f64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = accuracy;
        loss
    }

    fn get(&self) -> f64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn train_all(
    task: &impl Classification,
    parameters: Parameters,
    settings: TrainSettings,
    stop: &Stop,
    progress: &mut impl FnMut(&EpochProgress),
) -> Result<Parameters> {
    let settings = settings.check()?;
    let mut state = TrainState::new(parameters, &settings);
    state.train(task, &settings, stop, |epoch, _| {
        progress(&EpochProgress {
            epoch: epoch.epoch,
            n_epochs: epoch.n_epochs,
            loss: epoch.loss,
            validation_loss: epoch.validation,
            validation_accuracy: task.accuracy(),
            left: epoch.left,
        });
        Ok::<_, Stopped>(ControlFlow::Continue(()))
    })?;
    Ok(state.best.map_or(state.parameters, |best| best.parameters))
}

fn loss_and_accuracy(logits: impl Iterator<Item = Vec<f32>>, classes: &[usize]) -> (f64, f64) {
    let (mut loss, mut n_right, n) = (0.0, 0.0, classes.len().max(1) as f64);
    for (row, class) in logits.zip(classes) {
        let probabilities = softmax(&row.iter().map(|value| f64::from(*value)).collect::<Vec<_>>());
        loss -= probabilities[*class].max(1e-7).ln();
        n_right += f64::from(u8::from(most_likely(&probabilities) == *class));
    }
    (loss / n, n_right / n)
}

pub(super) struct Pictures<'a> {
    pub net: &'a Net,
    pub side: usize,
    pub n_classes: usize,
    pub pictures: Vec<Vec<u8>>,
    /// Charts to draw again with variations, if the training is augmented.
    pub gantts: Option<Vec<Gantt>>,
    pub classes: Vec<usize>,
    pub held_pictures: Vec<Vec<u8>>,
    pub held_classes: Vec<usize>,
    pub accuracy: LastAccuracy,
}

impl Objective for Pictures<'_> {
    fn n_items(&self) -> usize {
        self.pictures.len()
    }

    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, seed: u64) -> Var {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let pictures: Vec<Vec<u8>> = items
            .iter()
            .map(|item| match &self.gantts {
                Some(gantts) => varied(&gantts[*item], self.side, &mut rng),
                None => self.pictures[*item].clone(),
            })
            .collect();
        let x = tape.input(value(&pictures, self.side));
        let logits = self.net.forward(tape, x, Some(seed));
        let classes: Vec<usize> = items.iter().map(|item| self.classes[*item]).collect();
        class_entropy(tape, logits, &classes, &vec![1.0 / n_in_batch as f32; items.len()])
    }

    fn validation(&self, parameters: &Parameters, stop: &Stop) -> std::result::Result<f64, Stopped> {
        let logits: Vec<Vec<Vec<f32>>> = self
            .held_pictures
            .par_chunks(4)
            .map(|pictures| {
                stop.check()?;
                let logits = self.net.logits(parameters, value(pictures, self.side)).data;
                Ok(logits.chunks_exact(self.n_classes).map(<[f32]>::to_vec).collect())
            })
            .collect::<std::result::Result<_, Stopped>>()?;
        Ok(self.accuracy.store(loss_and_accuracy(logits.into_iter().flatten(), &self.held_classes)))
    }
}

impl Classification for Pictures<'_> {
    fn accuracy(&self) -> f64 {
        self.accuracy.get()
    }
}

/// The last layer alone, on features that are computed once.
pub(super) struct Rows {
    pub layer: Linear,
    pub train: Vec<(Vec<f32>, usize)>,
    pub held: Vec<(Vec<f32>, usize)>,
    pub accuracy: LastAccuracy,
}

impl Objective for Rows {
    fn n_items(&self) -> usize {
        self.train.len()
    }

    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, _: u64) -> Var {
        let n_columns = self.train.first().map_or(1, |(row, _)| row.len());
        let data = items.iter().flat_map(|item| &self.train[*item].0).copied().collect();
        let x = tape.input(Value::plain(data, n_columns));
        let logits = self.layer.forward(tape, x);
        let classes: Vec<usize> = items.iter().map(|item| self.train[*item].1).collect();
        class_entropy(tape, logits, &classes, &vec![1.0 / n_in_batch as f32; items.len()])
    }

    fn validation(&self, parameters: &Parameters, stop: &Stop) -> std::result::Result<f64, Stopped> {
        let n_classes = parameters.shape(self.layer.weight)[1];
        let logits = self.held.iter().map(|(row, _)| {
            let mut out = vec![0.0; n_classes];
            self.layer.compute(parameters, row, &mut out);
            out
        });
        stop.check()?;
        let classes: Vec<usize> = self.held.iter().map(|(_, class)| *class).collect();
        Ok(self.accuracy.store(loss_and_accuracy(logits, &classes)))
    }
}

impl Classification for Rows {
    fn accuracy(&self) -> f64 {
        self.accuracy.get()
    }
}

/// A random variation of a chart: up to a tenth of its rows missing, delays and the duration of the run up to 5 % longer or
/// shorter.
fn varied(gantt: &Gantt, side: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut varied = gantt.clone();
    let missing: f64 = rng.random_range(0.0..0.1);
    varied.rows.retain(|_| rng.random::<f64>() >= missing);
    for row in &mut varied.rows {
        let stretch: f64 = rng.random_range(0.95..1.05);
        let start = row.start();
        for end in row.ends.iter_mut().take(Part::Finished as usize) {
            *end = start + (*end - start) * stretch;
        }
    }
    varied.seconds = gantt.seconds * rng.random_range(0.95..1.05);
    for row in &mut varied.rows {
        let end = &mut row.ends[Part::Finished as usize];
        *end = end.max(varied.seconds);
    }
    pixels::draw(&varied, side, side).bytes
}
