//! Convolutional networks on Gantt charts, after Krawczuk et al., "Anomaly Detection in Scientific Workflows using
//! End-to-End Execution Gantt Charts and Convolutional Neural Networks" (PEARC 2021).

mod cam;
pub mod net;
mod objective;
pub mod weights;

use learn::artifact::restore::{self, RestoreError, ensure, expect};
use learn::artifact::{Tensor, Tensors};
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::parameters::Parameters;
use learn::nn::tape::Value;
use learn::nn::train::TrainSettings;
use learn::stats::softmax;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::Stop;

pub use self::net::{Net, Network};
use self::objective::{LastAccuracy, Pictures, Rows, train_all};
use super::{Classifier, ClassifierSettings, EpochProgress, Evidence, TrainingSet};
use crate::dataset::Dataset;
use crate::draw::{Gantt, pixels};
use crate::error::Result;
use crate::evaluate::Fold;
use crate::features::RunSummary;
use crate::workflow::WorkflowRun;

/// A network with the settings to train it.
#[derive(Debug, Clone)]
struct PictureSettings<'a> {
    network: Network,
    fit: &'a ClassifierSettings,
}

impl PictureSettings<'_> {
    /// Whether only the last layer is trained.
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

/// The mean and standard deviation of the colour channels of ImageNet, which the pre-trained weights expect.
const MEANS: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATIONS: [f32; 3] = [0.229, 0.224, 0.225];

pub struct Picture {
    network: Network,
    net: Net,
    parameters: Parameters,
    /// The mean and standard deviation of every feature, if the last layer was trained alone; empty otherwise.
    scale: Vec<(f32, f32)>,
    n_classes: usize,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    network: Network,
    n_classes: usize,
}

/// The fraction of the training runs that is held out for validation if no validation runs are given.
const HELD_OUT: f64 = 0.12;

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.iter().enumerate().map(|(at, byte)| (f32::from(*byte) / 255.0 - MEANS[at % 3]) / DEVIATIONS[at % 3])
}

fn value(pictures: &[Vec<u8>], side: usize) -> Value {
    let data = pictures.iter().flat_map(|bytes| numbers(bytes)).collect();
    Value::pictures(data, side, side, 3)
}

impl Picture {
    /// An untrained network, with pre-trained weights if there are any.
    fn start(settings: &PictureSettings<'_>, n_classes: usize) -> Result<Self> {
        let mut parameters = Parameters::default();
        let net = Net::new(settings.network, n_classes, &mut parameters, settings.fit.seed);
        match &settings.fit.weights {
            Some(path) => weights::load(&net, settings.network, &mut parameters, path, false)?,
            None if settings.network != Network::Small => weights::initialise(&net, &mut parameters),
            None => {}
        }
        Ok(Self { network: settings.network, net, parameters, scale: Vec::new(), n_classes })
    }

    pub fn fit(
        training: &TrainingSet<'_>,
        network: Network,
        settings: &ClassifierSettings,
        stop: &Stop,
        progress: &mut impl FnMut(&EpochProgress),
    ) -> Result<Self> {
        let settings = &PictureSettings { network, fit: settings };
        let side = network.side();
        let all: Vec<Pair<'_>> =
            training.runs.iter().map(|run| run.run).zip(training.classes.iter().copied()).collect();
        let (train, held) = if training.validation.is_empty() {
            held_out(all, training.n_classes, settings.fit.seed)
        } else {
            (all, training.validation.clone())
        };
        let mut picture = Self::start(settings, training.n_classes)?;
        if settings.is_frozen() {
            picture.fit_head(&train, &held, settings, stop, progress)?;
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
                accuracy: LastAccuracy::default(),
            };
            let parameters = picture.parameters.clone();
            picture.parameters = train_all(&task, parameters, settings.training(), stop, progress)?;
        }
        Ok(picture)
    }

    fn features(&self, run: &WorkflowRun) -> Vec<f32> {
        let side = self.network.side();
        let pixels = pixels::draw(&Gantt::new(run), side, side);
        self.net.features(&self.parameters, value(&[pixels.bytes], side)).data
    }

    /// Trains the last layer on the features of the other layers, which are computed once.
    fn fit_head(
        &mut self,
        train: &[Pair<'_>],
        held: &[Pair<'_>],
        settings: &PictureSettings<'_>,
        stop: &Stop,
        progress: &mut impl FnMut(&EpochProgress),
    ) -> Result<()> {
        let rows = |part: &[Pair<'_>]| -> Result<Vec<(Vec<f32>, usize)>> {
            let row = |(run, class): &Pair<'_>| {
                stop.check()?;
                Ok((self.features(run), *class))
            };
            part.par_iter().map(row).collect()
        };
        let head = Head::fit(rows(train)?, rows(held)?, self.n_classes, settings, stop, progress)?;
        if let Some(own) = self.net.head().copied() {
            self.parameters.get_mut(own.weight).copy_from_slice(head.parameters.get(head.layer.weight));
            self.parameters.get_mut(own.bias).copy_from_slice(head.parameters.get(head.layer.bias));
        }
        self.scale = head.scale;
        Ok(())
    }

    pub fn restore(
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> std::result::Result<Self, RestoreError> {
        let Stored { network, n_classes } = restore::settings(settings)?;
        let (net, parameters) =
            Parameters::restore(tensors, |parameters| Net::new(network, n_classes, parameters, 0))?;
        let scale = match tensors.contains_key(SCALE) {
            true => expect(tensors, SCALE, &[net.n_features, 2])?,
            false => &[],
        };
        let scale: Vec<(f32, f32)> = scale.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        ensure(scale.iter().all(|(_, std_dev)| *std_dev > 0.0), "a standard deviation is not positive")?;
        Ok(Self { network, net, parameters, scale, n_classes })
    }
}

const SCALE: &str = "features.scale";

fn standardise(row: &mut [f32], scale: &[(f32, f32)]) {
    for (value, (mean, std_dev)) in row.iter_mut().zip(scale) {
        *value = (*value - mean) / std_dev;
    }
}

/// A last layer, trained alone.
struct Head {
    layer: Linear,
    parameters: Parameters,
    /// The mean and the standard deviation of every feature.
    scale: Vec<(f32, f32)>,
}

impl Head {
    fn fit(
        mut train: Vec<(Vec<f32>, usize)>,
        mut held: Vec<(Vec<f32>, usize)>,
        n_classes: usize,
        settings: &PictureSettings<'_>,
        stop: &Stop,
        progress: &mut impl FnMut(&EpochProgress),
    ) -> Result<Self> {
        let n_features = train.first().map_or(1, |(row, _)| row.len());
        let n_rows = train.len().max(1) as f32;
        let moments = |column: usize| {
            let mean = train.iter().map(|(row, _)| row[column]).sum::<f32>() / n_rows;
            let square = train.iter().map(|(row, _)| (row[column] - mean).powi(2)).sum::<f32>() / n_rows;
            (mean, square.sqrt().max(1e-6))
        };
        let scale: Vec<(f32, f32)> = (0..n_features).map(moments).collect();
        for (row, _) in train.iter_mut().chain(&mut held) {
            standardise(row, &scale);
        }
        let mut parameters = Parameters::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.fit.seed);
        let layer = Linear::new(&mut parameters, "head", [n_features, n_classes], Activation::None, &mut rng);
        let task = Rows { layer, train, held, accuracy: LastAccuracy::default() };
        let parameters = train_all(&task, parameters, settings.training(), stop, progress)?;
        Ok(Self { layer, parameters, scale })
    }

    fn probabilities(&self, mut row: Vec<f32>) -> Vec<f64> {
        standardise(&mut row, &self.scale);
        let mut logits = vec![0.0; self.parameters.shape(self.layer.weight)[1]];
        self.layer.compute(&self.parameters, &row, &mut logits);
        softmax(&logits.iter().map(|value| f64::from(*value)).collect::<Vec<_>>())
    }
}

/// The features that a frozen network computes for every run of a dataset, so that folds train the last layer only.
pub struct Frozen {
    network: Network,
    rows: Vec<Vec<f32>>,
}

impl Frozen {
    /// `None` for a network whose layers are all trained.
    pub fn new(
        network: Network,
        data: &Dataset,
        settings: &ClassifierSettings,
        stop: &Stop,
    ) -> Result<Option<Self>> {
        let settings = PictureSettings { network, fit: settings };
        if !settings.is_frozen() {
            return Ok(None);
        }
        let picture = Picture::start(&settings, 1)?;
        let row = |run: &crate::LabelledRun| {
            stop.check()?;
            Ok(picture.features(&run.recording.run))
        };
        let rows = data.runs.par_iter().map(row).collect::<Result<_>>()?;
        Ok(Some(Self { network, rows }))
    }

    /// Trains the last layer on the training runs of a fold and judges its test runs.
    pub fn judge(
        &self,
        training: &TrainingSet<'_>,
        fold: &Fold,
        settings: &ClassifierSettings,
        stop: &Stop,
        mut progress: impl FnMut(&EpochProgress),
    ) -> Result<Vec<Vec<f64>>> {
        let settings = PictureSettings { network: self.network, fit: settings };
        let classes = training.classes.iter().copied().zip(&fold.train).map(|(class, at)| (*at, class));
        let (train, held) = match &fold.validation[..] {
            [] => held_out(classes.collect(), training.n_classes, settings.fit.seed),
            given => (
                classes.collect(),
                given.iter().copied().zip(training.validation.iter().map(|(_, class)| *class)).collect(),
            ),
        };
        let rows = |part: Vec<(usize, usize)>| {
            part.into_iter().map(|(at, class)| (self.rows[at].clone(), class)).collect()
        };
        let n_classes = training.n_classes;
        let head = Head::fit(rows(train), rows(held), n_classes, &settings, stop, &mut progress)?;
        Ok(fold.test.iter().map(|at| head.probabilities(self.rows[*at].clone())).collect())
    }
}

/// Splits items into training and validation, with the same fraction of each class.
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
/// Items with their classes.
type Labelled<T> = Vec<(T, usize)>;

impl Classifier for Picture {
    fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64> {
        let mut row = self.features(run.run);
        standardise(&mut row, &self.scale);
        let mut logits = vec![0.0; self.n_classes];
        if let Some(head) = self.net.head() {
            head.compute(&self.parameters, &row, &mut logits);
        }
        softmax(&logits.iter().map(|value| f64::from(*value)).collect::<Vec<_>>())
    }

    fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Evidence {
        let side = self.network.side();
        let gantt = Gantt::new(run.run);
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
            let values: Vec<f32> = self.scale.iter().flat_map(|(mean, std_dev)| [*mean, *std_dev]).collect();
            tensors.insert(SCALE.into(), Tensor::new(vec![self.scale.len(), 2], values));
        }
        tensors
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(Stored { network: self.network, n_classes: self.n_classes })
    }
}
