//! Classifiers that look at Gantt charts, as seed 004 does.

mod cam;
pub mod net;
pub mod weights;

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use crate::workflow::WorkflowRun;
use learn::artifact::{Tensor, Tensors};
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::ops::loss::class_entropy;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value, Var};
use learn::nn::train::{Objective, TrainSettings, TrainState};
use learn::stats::softmax;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

pub use self::net::{Net, Network};
use super::{Classifier, Evidence, FitSettings, Lesson, Step, most_likely};
use crate::dataset::Dataset;
use crate::draw::{Gantt, pixels};
use crate::error::Result;

#[derive(Debug, Clone)]
pub struct PictureSettings {
    pub network: Network,
    pub fit: FitSettings,
}

impl PictureSettings {
    pub fn new(network: Network, fit: &FitSettings) -> Self {
        Self { network, fit: fit.clone() }
    }

    /// Whether only the last layer is learnt.
    fn is_frozen(&self) -> bool {
        self.network != Network::Small && !self.fit.is_fine_tuned
    }

    fn training(&self) -> TrainSettings {
        let (n_epochs, rate, patience) = match (self.network, self.is_frozen()) {
            (Network::Small, _) => (40, 1e-3, 12),
            (_, true) => (200, 2e-3, 30),
            (_, false) => (10, 1e-4, 4),
        };
        let n_epochs = self.fit.n_epochs.unwrap_or(n_epochs);
        let seed = self.fit.seed;
        TrainSettings {
            n_epochs,
            batch_size: 32,
            learning_rate: rate,
            warm_up_epochs: 0,
            max_gradient_norm: f64::MAX,
            patience,
            seed,
        }
    }
}

/// What colours are centred on and divided by: what the published weights were trained with.
const MEANS: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATIONS: [f32; 3] = [0.229, 0.224, 0.225];

pub struct Picture {
    network: Network,
    net: Net,
    parameters: Parameters,
    /// How features differ, for a last layer that is learnt alone; empty otherwise.
    scale: Vec<(f32, f32)>,
    n_classes: usize,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    network: Network,
    n_classes: usize,
}

/// Part of the runs that is held out, if nobody says which.
const HELD_OUT: f64 = 0.12;

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.iter().enumerate().map(|(at, byte)| (f32::from(*byte) / 255.0 - MEANS[at % 3]) / DEVIATIONS[at % 3])
}

fn value(pictures: &[Vec<u8>], side: usize) -> Value {
    let data = pictures.iter().flat_map(|bytes| numbers(bytes)).collect();
    Value::pictures(data, side, side, 3)
}

impl Picture {
    /// A network before it has learnt anything here.
    fn start(settings: &PictureSettings, n_classes: usize) -> Result<Self> {
        let mut parameters = Parameters::default();
        let net = Net::new(settings.network, n_classes, &mut parameters, settings.fit.seed);
        match &settings.fit.weights {
            Some(path) => weights::load(&net, settings.network, &mut parameters, path, false)?,
            None if settings.network != Network::Small => weights::widen(&net, &mut parameters),
            None => {}
        }
        Ok(Self { network: settings.network, net, parameters, scale: Vec::new(), n_classes })
    }

    pub fn fit(
        lesson: &Lesson<'_>,
        settings: &PictureSettings,
        tell: &mut impl FnMut(&Step),
    ) -> Result<Self> {
        let side = settings.network.side();
        let all: Vec<Pair<'_>> = lesson.runs.iter().copied().zip(lesson.classes.iter().copied()).collect();
        let (train, held) = match lesson.validation.is_empty() {
            true => held_out(all, lesson.n_classes, settings.fit.seed),
            false => (all, lesson.validation.clone()),
        };
        let mut picture = Self::start(settings, lesson.n_classes)?;
        if settings.is_frozen() {
            picture.fit_head(&train, &held, settings, tell)?;
        } else {
            let gantts = |part: &[Pair<'_>]| -> Vec<Gantt> {
                part.par_iter().map(|(run, _)| Gantt::new(run)).collect()
            };
            let classes = |part: &[Pair<'_>]| part.iter().map(|(_, class)| *class).collect();
            let draw = |gantts: &[Gantt]| -> Vec<Vec<u8>> {
                gantts.par_iter().map(|gantt| pixels::draw(gantt, side, side).bytes).collect()
            };
            let (gantts, held_gantts) = (gantts(&train), gantts(&held));
            let task = Pictures {
                net: &picture.net,
                side,
                n_classes: picture.n_classes,
                pictures: draw(&gantts),
                gantts: settings.fit.is_augmented.then_some(gantts),
                classes: classes(&train),
                held_pictures: draw(&held_gantts),
                held_classes: classes(&held),
                accuracy: Noted::default(),
            };
            picture.parameters = train_all(&task, picture.parameters.clone(), settings.training(), tell)?;
        }
        Ok(picture)
    }

    fn features(&self, run: &WorkflowRun) -> Vec<f32> {
        let side = self.network.side();
        let pixels = pixels::draw(&Gantt::new(run), side, side);
        self.net.features(&self.parameters, value(&[pixels.bytes], side)).data
    }

    /// Learns the last layer on what the others make of the pictures, which is computed once.
    fn fit_head(
        &mut self,
        train: &[Pair<'_>],
        held: &[Pair<'_>],
        settings: &PictureSettings,
        tell: &mut impl FnMut(&Step),
    ) -> Result<()> {
        let rows = |part: &[Pair<'_>]| -> Vec<(Vec<f32>, usize)> {
            part.par_iter().map(|(run, class)| (self.features(run), *class)).collect()
        };
        let head = Head::fit(rows(train), rows(held), self.n_classes, settings, tell)?;
        if let Some(own) = self.net.head().copied() {
            self.parameters.get_mut(own.weight).copy_from_slice(head.parameters.get(head.layer.weight));
            self.parameters.get_mut(own.bias).copy_from_slice(head.parameters.get(head.layer.bias));
        }
        self.scale = head.scale;
        Ok(())
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let Kept { network, n_classes } = serde_json::from_value(settings.clone()).ok()?;
        let mut parameters = Parameters::default();
        let net = Net::new(network, n_classes, &mut parameters, 0);
        parameters.load(tensors).ok()?;
        let scale = tensors
            .get(SCALE)
            .and_then(Tensor::as_f32)
            .map(|values| values.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect());
        Some(Self { network, net, parameters, scale: scale.unwrap_or_default(), n_classes })
    }
}

const SCALE: &str = "features.scale";

fn normalise(row: &mut [f32], scale: &[(f32, f32)]) {
    row.iter_mut().zip(scale).for_each(|(value, (mean, deviation))| *value = (*value - mean) / deviation);
}

/// A last layer, learnt alone.
struct Head {
    layer: Linear,
    parameters: Parameters,
    /// The mean and the deviation of every feature.
    scale: Vec<(f32, f32)>,
}

impl Head {
    fn fit(
        mut train: Vec<(Vec<f32>, usize)>,
        mut held: Vec<(Vec<f32>, usize)>,
        n_classes: usize,
        settings: &PictureSettings,
        tell: &mut impl FnMut(&Step),
    ) -> Result<Self> {
        let n_features = train.first().map_or(1, |(row, _)| row.len());
        let n_rows = train.len().max(1) as f32;
        let moments = |column: usize| {
            let mean = train.iter().map(|(row, _)| row[column]).sum::<f32>() / n_rows;
            let square = train.iter().map(|(row, _)| (row[column] - mean).powi(2)).sum::<f32>() / n_rows;
            (mean, square.sqrt().max(1e-6))
        };
        let scale: Vec<(f32, f32)> = (0..n_features).map(moments).collect();
        train.iter_mut().chain(&mut held).for_each(|(row, _)| normalise(row, &scale));
        let mut parameters = Parameters::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.fit.seed);
        let layer = Linear::new(&mut parameters, "head", [n_features, n_classes], Activation::None, &mut rng);
        let task = Rows { layer, train, held, accuracy: Noted::default() };
        let parameters = train_all(&task, parameters, settings.training(), tell)?;
        Ok(Self { layer, parameters, scale })
    }

    fn chances(&self, mut row: Vec<f32>) -> Vec<f64> {
        normalise(&mut row, &self.scale);
        let mut logits = vec![0.0; self.parameters.shape(self.layer.weight)[1]];
        self.layer.compute(&self.parameters, &row, &mut logits);
        softmax(&logits.iter().map(|value| f64::from(*value)).collect::<Vec<_>>())
    }
}

/// What a frozen network makes of every run of a dataset, so that folds learn only the last layer.
pub struct Frozen {
    network: Network,
    rows: Vec<Vec<f32>>,
}

impl Frozen {
    /// Nothing for a network that is learnt as a whole.
    pub fn new(network: Network, data: &Dataset, settings: &FitSettings) -> Result<Option<Self>> {
        let settings = PictureSettings::new(network, settings);
        if !settings.is_frozen() {
            return Ok(None);
        }
        let picture = Picture::start(&settings, 1)?;
        let rows = data.runs.par_iter().map(|run| picture.features(&run.recording.run)).collect();
        Ok(Some(Self { network, rows }))
    }

    /// Learns from some runs, by their places in the dataset, and judges others.
    pub fn judge(
        &self,
        lesson: &Lesson<'_>,
        train: &[usize],
        validation: &[usize],
        test: &[usize],
        settings: &FitSettings,
        mut tell: impl FnMut(&Step),
    ) -> Result<Vec<Vec<f64>>> {
        let settings = PictureSettings::new(self.network, settings);
        let classes = lesson.classes.iter().copied().zip(train).map(|(class, at)| (*at, class));
        let (train, held) = match validation {
            [] => held_out(classes.collect(), lesson.n_classes, settings.fit.seed),
            given => (
                classes.collect(),
                given.iter().copied().zip(lesson.validation.iter().map(|(_, class)| *class)).collect(),
            ),
        };
        let rows = |part: Vec<(usize, usize)>| {
            part.into_iter().map(|(at, class)| (self.rows[at].clone(), class)).collect()
        };
        let head = Head::fit(rows(train), rows(held), lesson.n_classes, &settings, &mut tell)?;
        Ok(test.iter().map(|at| head.chances(self.rows[*at].clone())).collect())
    }
}

/// Things to learn from and things to stop by: a part of each class.
fn held_out<T: Copy>(all: Labelled<T>, n_classes: usize, seed: u64) -> (Labelled<T>, Labelled<T>) {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let (mut train, mut held) = (Vec::new(), Vec::new());
    for class in 0..n_classes {
        let members: Vec<usize> = order.iter().copied().filter(|at| all[*at].1 == class).collect();
        let n_held = ((members.len() as f64 * HELD_OUT).round() as usize).max(1).min(members.len());
        held.extend(members[..n_held].iter().map(|at| all[*at]));
        train.extend(members[n_held..].iter().map(|at| all[*at]));
    }
    (train, held)
}

type Pair<'a> = (&'a WorkflowRun, usize);
/// Things with their classes.
type Labelled<T> = Vec<(T, usize)>;

/// A task whose held out part also has an accuracy.
trait Judged: Objective {
    /// The accuracy on what is held out when it was last validated.
    fn accuracy(&self) -> f64;
}

/// An accuracy that validation notes.
#[derive(Default)]
struct Noted(Mutex<f64>);

impl Noted {
    fn note(&self, (loss, accuracy): (f64, f64)) -> f64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = accuracy;
        loss
    }

    fn last(&self) -> f64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn train_all(
    task: &impl Judged,
    parameters: Parameters,
    settings: TrainSettings,
    tell: &mut impl FnMut(&Step),
) -> Result<Parameters> {
    let settings = settings.check()?;
    let mut state = TrainState::new(parameters, &settings);
    state.train(task, &settings, &Stop::default(), |epoch, _| {
        tell(&Step {
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

fn judged(logits: impl Iterator<Item = Vec<f32>>, classes: &[usize]) -> (f64, f64) {
    let (mut loss, mut n_right, n) = (0.0, 0.0, classes.len().max(1) as f64);
    for (row, class) in logits.zip(classes) {
        let chances = softmax(&row.iter().map(|value| f64::from(*value)).collect::<Vec<_>>());
        loss -= chances[*class].max(1e-7).ln();
        n_right += f64::from(u8::from(most_likely(&chances) == *class));
    }
    (loss / n, n_right / n)
}

struct Pictures<'a> {
    net: &'a Net,
    side: usize,
    n_classes: usize,
    pictures: Vec<Vec<u8>>,
    /// To be drawn again, varied.
    gantts: Option<Vec<Gantt>>,
    classes: Vec<usize>,
    held_pictures: Vec<Vec<u8>>,
    held_classes: Vec<usize>,
    accuracy: Noted,
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
        Ok(self.accuracy.note(judged(logits.into_iter().flatten(), &self.held_classes)))
    }
}

impl Judged for Pictures<'_> {
    fn accuracy(&self) -> f64 {
        self.accuracy.last()
    }
}

/// The last layer alone, on rows that are computed once.
struct Rows {
    layer: Linear,
    train: Vec<(Vec<f32>, usize)>,
    held: Vec<(Vec<f32>, usize)>,
    accuracy: Noted,
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
        Ok(self.accuracy.note(judged(logits, &classes)))
    }
}

impl Judged for Rows {
    fn accuracy(&self) -> f64 {
        self.accuracy.last()
    }
}

/// A chart of a run that might have been: up to a tenth of its rows missing, every delay a little longer or shorter, and the
/// end of the picture not quite the end of the run.
fn varied(gantt: &Gantt, side: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut varied = gantt.clone();
    let missing: f64 = rng.random_range(0.0..0.1);
    varied.rows.retain(|_| rng.random::<f64>() >= missing);
    for row in &mut varied.rows {
        let stretch: f64 = rng.random_range(0.95..1.05);
        let start = row.start();
        row.ends.iter_mut().take(8).for_each(|end| *end = start + (*end - start) * stretch);
    }
    varied.seconds = gantt.seconds * rng.random_range(0.95..1.05);
    varied.rows.iter_mut().for_each(|row| row.ends[8] = row.ends[8].max(varied.seconds));
    pixels::draw(&varied, side, side).bytes
}

impl Classifier for Picture {
    fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let mut row = self.features(run);
        normalise(&mut row, &self.scale);
        let mut logits = vec![0.0; self.n_classes];
        if let Some(head) = self.net.head() {
            head.compute(&self.parameters, &row, &mut logits);
        }
        softmax(&logits.iter().map(|value| f64::from(*value)).collect::<Vec<_>>())
    }

    fn evidence(&self, run: &WorkflowRun, class: usize) -> Evidence {
        let side = self.network.side();
        let gantt = Gantt::new(run);
        let pixels = pixels::draw(&gantt, side, side);
        let map = cam::map(&self.net, &self.parameters, value(&[pixels.bytes], side), class);
        cam::to_attempts(&map, gantt.rows.len())
    }

    fn n_classes(&self) -> usize {
        self.n_classes
    }

    fn tensors(&self) -> Tensors {
        let mut tensors = self.parameters.to_tensors();
        if !self.scale.is_empty() {
            let values: Vec<f32> =
                self.scale.iter().flat_map(|(mean, deviation)| [*mean, *deviation]).collect();
            tensors.insert(SCALE.into(), Tensor::new(vec![self.scale.len(), 2], values));
        }
        tensors
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(Kept { network: self.network, n_classes: self.n_classes })
    }
}
