//! The training loop: mini-batches in random order, split over all threads; Adam; early stopping on the
//! validation loss.

use std::ops::{ControlFlow, Deref};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use super::adam::Adam;
use super::parameters::Parameters;
use super::tape::{Tape, Var, add};

/// Parts of a batch, whatever the number of threads, so that the sum of their gradients is always the same.
const N_SHARDS: usize = 4;
/// The most epochs, and the most items per batch, that settings may ask for.
pub(super) const MAX_COUNT: usize = 1_000_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainSettings {
    pub n_epochs: usize,
    /// Items per optimiser step.
    #[serde(alias = "batch")]
    pub batch_size: usize,
    #[serde(alias = "rate")]
    pub learning_rate: f64,
    /// Epochs over which the learning rate grows to its full value.
    #[serde(alias = "warm_up")]
    pub warm_up_epochs: usize,
    /// Gradients with a greater norm are scaled down to it, so that one unusual batch does not undo
    /// the training so far.
    #[serde(alias = "longest_gradient")]
    pub max_gradient_norm: f64,
    /// Training ends after this many epochs without a better validation loss.
    pub patience: usize,
    pub seed: u64,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self {
            n_epochs: 30,
            batch_size: 64,
            learning_rate: 3e-3,
            warm_up_epochs: 1,
            max_gradient_norm: 0.05,
            patience: 6,
            seed: 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum TrainSettingsError {
    #[error("{name} must be at least 1")]
    Zero { name: &'static str },
    #[error("{name} must be at most {MAX_COUNT}, not {value}")]
    TooLarge { name: &'static str, value: usize },
    #[error("{name} must be a positive number, not {value}")]
    NotPositive { name: &'static str, value: f64 },
}

/// Settings that were found valid; only these can be trained with.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedTrainSettings(TrainSettings);

impl Deref for CheckedTrainSettings {
    type Target = TrainSettings;

    fn deref(&self) -> &TrainSettings {
        &self.0
    }
}

impl TrainSettings {
    pub fn check(self) -> Result<CheckedTrainSettings, TrainSettingsError> {
        let counts =
            [("n_epochs", self.n_epochs), ("batch_size", self.batch_size), ("patience", self.patience)];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(TrainSettingsError::Zero { name });
        }
        let all = counts.into_iter().chain([("warm_up_epochs", self.warm_up_epochs)]);
        if let Some((name, value)) = all.into_iter().find(|(_, count)| *count > MAX_COUNT) {
            return Err(TrainSettingsError::TooLarge { name, value });
        }
        let sizes = [("learning_rate", self.learning_rate), ("max_gradient_norm", self.max_gradient_norm)];
        let is_wrong = |(_, value): &(&str, f64)| !(value.is_finite() && *value > 0.0);
        if let Some((name, value)) = sizes.into_iter().find(is_wrong) {
            return Err(TrainSettingsError::NotPositive { name, value });
        }
        Ok(CheckedTrainSettings(self))
    }
}

/// The loss to minimise.
pub trait Objective: Sync {
    /// The number of training items: windows, or whole graphs.
    fn n_items(&self) -> usize;

    /// The sum of the losses of some items divided by `n_in_batch`; `seed` drives what is random in it.
    fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, seed: u64) -> Var;

    /// The loss on the validation set; less is better. Checks `stop` if it takes long.
    fn validation(&self, parameters: &Parameters, stop: &Stop) -> Result<f64, Stopped>;
}

/// The state of training after an epoch; enough to continue exactly as if it had not been interrupted.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainState {
    pub parameters: Parameters,
    pub adam: Adam,
    pub epoch: usize,
    pub best: Option<Best>,
}

/// The epoch with the lowest validation loss so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    pub validation: f64,
    pub epoch: usize,
    pub parameters: Parameters,
}

/// A finished epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Epoch {
    pub epoch: usize,
    pub n_epochs: usize,
    pub loss: f64,
    pub validation: f64,
    pub best: f64,
    pub took: Duration,
    /// The time to the last possible epoch.
    pub left: Duration,
}

impl TrainState {
    pub fn new(parameters: Parameters, settings: &TrainSettings) -> Self {
        let adam = Adam::new(settings.learning_rate as f32, parameters.values().len());
        Self { parameters, adam, epoch: 0, best: None }
    }

    /// Trains until the epochs are over, the validation loss has not improved for `patience` epochs, or
    /// `on_epoch` breaks or fails. Checks `stop` before every batch; after that error the state is in
    /// the middle of an epoch and cannot be continued.
    pub fn train<E: From<Stopped>>(
        &mut self,
        objective: &impl Objective,
        settings: &CheckedTrainSettings,
        stop: &Stop,
        mut on_epoch: impl FnMut(&Epoch, &Self) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let begun = Instant::now();
        let first = self.epoch;
        while self.epoch < settings.n_epochs && !self.has_converged(settings) {
            let epoch_begun = Instant::now();
            let loss = self.run_epoch(objective, settings, stop)?;
            let validation = objective.validation(&self.parameters, stop)?;
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
            if on_epoch(&epoch, self)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn has_converged(&self, settings: &TrainSettings) -> bool {
        self.best.as_ref().is_some_and(|best| self.epoch - best.epoch >= settings.patience)
    }

    /// The order of items and everything random depend on the seed and the epoch alone, so that
    /// interrupted training continues as it would have.
    fn run_epoch(
        &mut self,
        objective: &impl Objective,
        settings: &TrainSettings,
        stop: &Stop,
    ) -> Result<f64, Stopped> {
        let seed = settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.epoch as u64);
        let mut order: Vec<usize> = (0..objective.n_items()).collect();
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        // The learning rate decays along half a cosine.
        let progress = self.epoch as f64 / settings.n_epochs as f64;
        let rate = settings.learning_rate * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        let n_steps = order.len().div_ceil(settings.batch_size);
        let n_warm_up_steps = (settings.warm_up_epochs * n_steps).max(1) as f64;
        let (mut sum, mut n_batches) = (0.0, 0.0);
        for (index, batch) in order.chunks(settings.batch_size).enumerate() {
            stop.check()?;
            let warm_up = (self.epoch * n_steps + index + 1) as f64 / n_warm_up_steps;
            self.adam.rate = (rate * warm_up.min(1.0)) as f32;
            let (loss, mut gradients) =
                gradients_of(&self.parameters, objective, batch, seed ^ (index as u64) << 32);
            clip_norm(&mut gradients, settings.max_gradient_norm);
            self.adam.step(&mut self.parameters, &gradients);
            sum += loss;
            n_batches += 1.0;
        }
        Ok(sum / f64::max(n_batches, 1.0))
    }
}

/// Scales a gradient down to a norm, if its own is greater.
fn clip_norm(gradient: &mut [f32], max_norm: f64) {
    let norm = gradient.iter().map(|slope| f64::from(*slope).powi(2)).sum::<f64>().sqrt();
    if norm > max_norm {
        let factor = (max_norm / norm) as f32;
        for slope in gradient {
            *slope *= factor;
        }
    }
}

/// The loss of a batch and its gradient with respect to all parameters.
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
    use crate::nn::ops::linear::{Activation, Linear};
    use crate::nn::ops::loss::squared_error;
    use crate::nn::tape::Value;

    /// Learns y = 2x + 1; every loss counts.
    struct Line {
        layer: Linear,
        on_loss: Box<dyn Fn() + Sync>,
    }

    impl Objective for Line {
        fn n_items(&self) -> usize {
            40
        }

        fn loss(&self, tape: &mut Tape<'_>, items: &[usize], n_in_batch: usize, _: u64) -> Var {
            (self.on_loss)();
            let x: Vec<f32> = items.iter().map(|item| *item as f32 / 40.0).collect();
            let target = x.iter().map(|x| 2.0 * x + 1.0).collect();
            let input = tape.input(Value::plain(x, 1));
            let out = self.layer.forward(tape, input);
            squared_error(tape, out, Value::plain(target, 1), 1.0 / n_in_batch as f32)
        }

        fn validation(&self, parameters: &Parameters, _: &Stop) -> Result<f64, Stopped> {
            let mut tape = Tape::new(parameters);
            let items: Vec<usize> = (0..40).collect();
            let loss = self.loss(&mut tape, &items, 40, 0);
            Ok(f64::from(tape.scalar(loss)))
        }
    }

    fn line(on_loss: impl Fn() + Sync + 'static) -> (Line, Parameters) {
        let mut parameters = Parameters::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let layer = Linear::new(&mut parameters, "line", [1, 1], Activation::None, &mut rng);
        (Line { layer, on_loss: Box::new(on_loss) }, parameters)
    }

    fn settings() -> CheckedTrainSettings {
        let settings = TrainSettings {
            n_epochs: 60,
            batch_size: 8,
            learning_rate: 0.2,
            max_gradient_norm: 10.0,
            patience: 60,
            ..TrainSettings::default()
        };
        settings.check().unwrap()
    }

    #[test]
    fn a_line_is_learnt_and_a_caller_can_end_training() {
        let (objective, parameters) = line(|| ());
        let mut state = TrainState::new(parameters, &settings());
        let run = state.train(&objective, &settings(), &Stop::default(), |_, _| {
            Ok::<_, Stopped>(ControlFlow::Continue(()))
        });
        assert_eq!(run, Ok(()));
        assert_eq!(state.epoch, 60);
        assert!(state.best.as_ref().unwrap().validation < 1e-4, "{:?}", state.best);

        let (_, parameters) = line(|| ());
        let mut state = TrainState::new(parameters, &settings());
        let run = state.train(&objective, &settings(), &Stop::default(), |epoch, _| {
            Ok::<_, Stopped>(if epoch.epoch == 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        });
        assert_eq!((run, state.epoch), (Ok(()), 3));
    }

    #[test]
    fn a_stop_ends_training_within_an_epoch() {
        let stop = Stop::default();
        let inner = stop.clone();
        let (objective, parameters) = line(move || inner.now());
        let mut state = TrainState::new(parameters, &settings());
        let run = state.train(&objective, &settings(), &stop, |_, _| Ok(ControlFlow::Continue(())));
        assert_eq!(run, Err(Stopped));
        assert_eq!(state.epoch, 0, "not even one epoch was finished");
    }

    #[test]
    fn training_runs_on_the_pool_of_its_caller() {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .thread_name(|at| format!("own-{at}"))
            .build()
            .unwrap();
        let (objective, parameters) = line(|| {
            let thread = std::thread::current();
            assert!(thread.name().is_some_and(|name| name.starts_with("own-")), "{:?}", thread.name());
        });
        let mut state = TrainState::new(parameters, &settings());
        let run = pool.install(|| {
            state.train(&objective, &settings(), &Stop::default(), |_, _| {
                Ok::<_, Stopped>(ControlFlow::Break(()))
            })
        });
        assert_eq!((run, state.epoch), (Ok(()), 1));
    }

    #[test]
    fn settings_that_cannot_work_are_rejected() {
        let wrong = |change: fn(&mut TrainSettings)| {
            let mut settings = TrainSettings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert_eq!(wrong(|settings| settings.batch_size = 0), "batch_size must be at least 1");
        assert_eq!(wrong(|settings| settings.n_epochs = 0), "n_epochs must be at least 1");
        assert!(wrong(|settings| settings.learning_rate = f64::NAN).contains("learning_rate"));
        assert!(wrong(|settings| settings.max_gradient_norm = -1.0).contains("not -1"));
        assert!(TrainSettings::default().check().is_ok());
    }

    #[test]
    fn names_of_settings_in_old_models_are_still_read() {
        let old = r#"{ "batch": 32, "rate": 0.001, "warm_up": 2, "longest_gradient": 0.5 }"#;
        let settings: TrainSettings = serde_json::from_str(old).unwrap();
        assert_eq!((settings.batch_size, settings.learning_rate), (32, 0.001));
        assert_eq!((settings.warm_up_epochs, settings.max_gradient_norm), (2, 0.5));
    }

    #[test]
    fn a_clipped_gradient_keeps_its_direction() {
        let mut gradient = [3.0, 4.0];
        clip_norm(&mut gradient, 10.0);
        assert_eq!(gradient, [3.0, 4.0]);
        clip_norm(&mut gradient, 0.5);
        assert!((gradient[0] - 0.3).abs() < 1e-6 && (gradient[1] - 0.4).abs() < 1e-6, "{gradient:?}");
    }
}
