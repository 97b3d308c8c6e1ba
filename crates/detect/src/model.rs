//! A detector that was trained: how it is made from an archive, and how it rests on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use archive::Archive;
use learn::artifact::{Artifact, ArtifactError};
use learn::nn::train::{Epoch, Then, TrainState};
use learn::pca::PcaError;
use learn::tail::TailError;
use serde::{Deserialize, Serialize};
use serde_json::json;
use workload::{JobId, Label, Millis, Set};

use super::autoencoder::net::{Net, Shape};
use super::autoencoder::{Autoencoder, Reach, train::fit};
use super::channel::{N_RATES, names};
use super::hierarchy::Hierarchy;
use super::nearest::Nearest;
use super::pca::Components;
use super::variational::Variational;
use super::window::{Jobs, period_of};
use super::{Detector, DetectorConfig, Finding, Model, Moment, Sample, Thresholds};

const KIND: &str = "threads/";
/// Fewer windows teach nothing.
const LEAST_WINDOWS: usize = 100;
/// With fewer than this, windows are cut closer to each other.
const ENOUGH_WINDOWS: usize = 4_000;
/// A thread that is never busier than this does nothing that could be learnt.
const IDLE_RATE: f32 = 0.02;

#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(
        "{address}: its {set} set has {n_windows} windows of {seconds} s, and {needed} are needed; record for longer, \
         or take a shorter window (a window is a stretch without gaps that one job owned)"
    )]
    TooFew { address: String, set: Set, n_windows: usize, seconds: f64, needed: usize },
    #[error(
        "{address}: its threads do nothing ({share:.1} % busy at most); there is no normal to be learnt from"
    )]
    Idle { address: String, share: f32 },
    #[error(
        "{address}: no window has the channel {channel}; leave it out of channels, or record jobs with their control groups"
    )]
    MissingChannel { address: String, channel: &'static str },
    #[error("{address} was read every {found} s, and this model is for every {expected} s")]
    Period { address: String, found: f64, expected: f64 },
    #[error("validation: {0}")]
    Threshold(#[from] TailError),
    #[error(transparent)]
    Pca(#[from] PcaError),
}

/// Normal windows, and the kinds of their jobs as far as labels tell.
#[derive(Debug)]
pub struct Data {
    pub train: Sample,
    pub validation: Sample,
    pub kinds: BTreeMap<JobId, String>,
    pub period: Millis,
    pub address: String,
}

impl Data {
    /// Draws windows to learn from and to set thresholds with.
    pub fn read(
        archive: &Archive,
        config: &DetectorConfig,
        seed: u64,
        mut progress: impl FnMut(Set, u64, u64),
    ) -> Result<Self, DetectError> {
        let labels = archive.labels()?;
        let period = period_of(archive)?;
        let mut draw = |set: Set| draw(archive, &labels, set, config, (period, seed), &mut progress);
        let (train, validation) = (draw(Set::Train)?, draw(Set::Validation)?);
        let busiest = train
            .moments
            .iter()
            .flat_map(|moment| moment.threads.iter().map(move |thread| busy_share(thread, moment.n_channels)))
            .fold(0.0, f32::max);
        let address = archive.address().to_owned();
        if busiest < IDLE_RATE {
            return Err(DetectError::Idle { address, share: busiest * 100.0 });
        }
        Ok(Self { train, validation, kinds: kinds_of(&labels), period, address })
    }

    /// Draws windows of one set alone.
    pub fn read_set(
        archive: &Archive,
        set: Set,
        config: &DetectorConfig,
        seed: u64,
        mut progress: impl FnMut(Set, u64, u64),
    ) -> Result<Sample, DetectError> {
        let (labels, period) = (archive.labels()?, period_of(archive)?);
        draw(archive, &labels, set, config, (period, seed), &mut progress)
    }
}

fn busy_share(thread: &super::ThreadWindow, n_channels: usize) -> f32 {
    let steps = thread.values.chunks_exact(n_channels);
    let n_steps = steps.len() as f32;
    steps.map(|step| 1.0 - step[N_RATES - 1]).sum::<f32>() / n_steps
}

/// The kind of each labelled job.
pub fn kinds_of(labels: &[Label]) -> BTreeMap<JobId, String> {
    labels.iter().map(|label| (label.job.clone(), label.kind.clone())).collect()
}

/// The kinds that have an anomalous label.
pub fn anomalous_kinds(labels: &[Label]) -> BTreeSet<String> {
    labels.iter().filter(|label| label.is_anomalous()).map(|label| label.kind.clone()).collect()
}

fn draw(
    archive: &Archive,
    labels: &[Label],
    set: Set,
    config: &DetectorConfig,
    (period, seed): (Millis, u64),
    progress: &mut impl FnMut(Set, u64, u64),
) -> Result<Sample, DetectError> {
    let jobs = Jobs::of_set(archive, labels, set)?;
    // What is judged with should be as different as it can be, so windows do not overlap if there are enough.
    let mut stride = if set == Set::Train { config.stride } else { config.window };
    let sample = loop {
        let cut = config.cut(period, stride);
        let tell = |done, total| progress(set, done, total);
        let sample = Sample::draw(archive, &jobs, &cut, config.most_windows, seed, tell)?;
        if sample.n_seen >= ENOUGH_WINDOWS || stride == 1 {
            break sample;
        }
        stride = (stride / 5).max(1);
    };
    let n_windows = sample.n_windows();
    if n_windows >= LEAST_WINDOWS {
        return Ok(sample);
    }
    let address = archive.address().to_owned();
    // Is it the archive that is short, or is it that a channel is missing?
    for extra in &config.channels {
        let only = DetectorConfig { channels: vec![*extra], ..config.clone() };
        let cut = only.cut(period, config.stride);
        if Sample::draw(archive, &jobs, &cut, 1, seed, |_, _| {})?.n_seen == 0 {
            let without =
                DetectorConfig { channels: Vec::new(), ..config.clone() }.cut(period, config.stride);
            if Sample::draw(archive, &jobs, &without, 1, seed, |_, _| {})?.n_seen > 0 {
                return Err(DetectError::MissingChannel { address, channel: extra.name() });
            }
        }
    }
    let seconds = config.window as f64 * period.as_seconds();
    Err(DetectError::TooFew { address, set, n_windows, seconds, needed: LEAST_WINDOWS })
}

/// What training has to tell.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    Reading { set: Set, done: u64, total: u64 },
    Resumed { epoch: usize },
    Epoch(&'a Epoch),
}

/// What a detector was made from, and how well it does on what it was not made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    pub archive: String,
    pub seed: u64,
    /// Windows that it learnt from, of how many.
    pub n_windows: usize,
    pub n_seen: usize,
    /// The mean reconstruction error on validation.
    pub validation_error: f64,
}

/// A detector with its thresholds: what `tracewise detect train` makes.
pub struct Trained {
    pub model: Model,
    pub config: DetectorConfig,
    pub period: Millis,
    pub thresholds: Thresholds,
    pub origin: Origin,
    detector: Box<dyn Detector>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    model: Model,
    config: DetectorConfig,
    period_ms: i64,
    channels: Vec<String>,
    thresholds: Thresholds,
    origin: Origin,
}

/// Trains a detector on an archive's train set and sets its threshold on the validation set. With a folder for
/// checkpoints, training that was interrupted goes on.
pub fn train(
    archive: &Archive,
    model: Model,
    config: &DetectorConfig,
    seed: u64,
    checkpoint: Option<&Path>,
    mut tell: impl FnMut(Progress<'_>),
) -> Result<Trained, DetectError> {
    let data = Data::read(archive, config, seed, |set, done, total| {
        tell(Progress::Reading { set, done, total });
    })?;
    Trained::fit(&data, model, config, seed, checkpoint, tell)
}

impl Trained {
    pub fn fit(
        data: &Data,
        model: Model,
        config: &DetectorConfig,
        seed: u64,
        checkpoint: Option<&Path>,
        tell: impl FnMut(Progress<'_>),
    ) -> Result<Self, DetectError> {
        let (detector, held_out) = fit_detector(data, model, config, seed, checkpoint, tell)?;
        let mut scores = Vec::new();
        let mut error = 0.0;
        for (at, moment) in data.validation.moments.iter().enumerate() {
            for (which, (thread, finding)) in moment.threads.iter().zip(detector.examine(moment)).enumerate()
            {
                let kind = data.kinds.get(&thread.job).filter(|_| config.threshold_by_kind);
                let score = held_out.as_ref().map_or(finding.score, |scores| scores[at][which]);
                scores.push((score, kind.map(String::as_str)));
                error += finding.error();
            }
        }
        let origin = Origin {
            archive: data.address.clone(),
            seed,
            n_windows: data.train.n_windows(),
            n_seen: data.train.n_seen,
            validation_error: error / scores.len() as f64,
        };
        let thresholds = Thresholds::fit(&scores, config.false_alarm_rate)?;
        Ok(Self { model, config: config.clone(), period: data.period, thresholds, origin, detector })
    }

    /// What it makes of the windows of a moment.
    pub fn examine(&self, moment: &Moment) -> Vec<Finding> {
        self.detector.examine(moment)
    }

    /// Dimensions of its embeddings.
    pub fn n_embedding(&self) -> usize {
        self.config.net.n_latent
    }

    /// Numbers that it has learnt.
    pub fn n_weights(&self) -> usize {
        self.detector.tensors().values().map(|tensor| tensor.values.len()).sum()
    }

    /// The channels that it looks at.
    pub fn channels(&self) -> Vec<&'static str> {
        names(&self.config.channels)
    }

    pub fn to_artifact(&self) -> Artifact {
        let body = Body {
            model: self.model,
            config: self.config.clone(),
            period_ms: self.period.0,
            channels: self.channels().into_iter().map(str::to_owned).collect(),
            thresholds: self.thresholds.clone(),
            origin: self.origin.clone(),
        };
        let kind = format!("{KIND}{}", self.model.name());
        Artifact { kind, body: json!(body), tensors: self.detector.tensors() }
    }

    pub fn write(&self, folder: &Path) -> Result<(), DetectError> {
        Ok(self.to_artifact().write(folder)?)
    }

    pub fn read(folder: &Path) -> Result<Self, DetectError> {
        let artifact = Artifact::read(folder, KIND)?;
        let damaged = |reason: String| ArtifactError::damaged(folder, reason);
        let body: Body = serde_json::from_value(artifact.body).map_err(|error| damaged(error.to_string()))?;
        body.config.check().map_err(|error| damaged(error.to_string()))?;
        let Body { model, config, period_ms, channels, thresholds, origin } = body;
        if channels != names(&config.channels) {
            return Err(damaged(format!("it is for the channels {}", channels.join(", "))).into());
        }
        let tensors = &artifact.tensors;
        let foreign = || damaged("its weights are not those of its kind of model".into());
        let network = || {
            let mut net = new_net(model, &config, 0);
            net.parameters.load(tensors).map_err(|error| damaged(error.to_string()))?;
            Ok::<_, ArtifactError>(net)
        };
        let detector: Box<dyn Detector> = match model {
            Model::Ae | Model::NodeGnn | Model::JobGnn => {
                Box::new(Autoencoder { net: network()?, reach: reach_of(model) })
            }
            Model::Vae => Box::new(Variational { net: network()? }),
            Model::Hierarchy => {
                let base = Autoencoder { net: network()?, reach: Reach::Thread };
                Box::new(Hierarchy::from_tensors(base, tensors).ok_or_else(foreign)?)
            }
            Model::Pca => Box::new(Components::from_tensors(tensors).ok_or_else(foreign)?),
            Model::Nearest => Box::new(Nearest::from_tensors(tensors).ok_or_else(foreign)?),
        };
        Ok(Self { model, config, period: Millis(period_ms), thresholds, origin, detector })
    }

    /// That an archive was read as often as what the model learnt from.
    pub fn check_period(&self, archive: &Archive) -> Result<(), DetectError> {
        let found = period_of(archive)?;
        match found == self.period {
            true => Ok(()),
            false => Err(DetectError::Period {
                address: archive.address().to_owned(),
                found: found.as_seconds(),
                expected: self.period.as_seconds(),
            }),
        }
    }
}

fn reach_of(model: Model) -> Reach {
    match model {
        Model::NodeGnn => Reach::Node,
        Model::JobGnn => Reach::Job,
        _ => Reach::Thread,
    }
}

fn new_net(model: Model, config: &DetectorConfig, seed: u64) -> Net {
    let shape = Shape {
        n_steps: config.window,
        n_channels: N_RATES + config.channels.len(),
        has_graph: reach_of(model) != Reach::Thread,
        is_variational: model == Model::Vae,
    };
    Net::new(&config.net, shape, seed)
}

/// The scores of the windows of each moment of validation, from a detector that learnt from others of them.
type HeldOutScores = Vec<Vec<f64>>;

/// Where a detector learns from validation too, also the scores to set thresholds with.
fn fit_detector(
    data: &Data,
    model: Model,
    config: &DetectorConfig,
    seed: u64,
    checkpoint: Option<&Path>,
    mut tell: impl FnMut(Progress<'_>),
) -> Result<(Box<dyn Detector>, Option<HeldOutScores>), DetectError> {
    let n_latent = config.net.n_latent;
    let mut held_out = None;
    let detector: Box<dyn Detector> = match model {
        Model::Pca => Box::new(Components::fit(&data.train, n_latent)?),
        Model::Nearest => Box::new(Nearest::fit(&data.train, config.n_remembered, n_latent, seed)?),
        Model::Ae | Model::NodeGnn | Model::JobGnn | Model::Vae | Model::Hierarchy => {
            let net = new_net(model, config, seed);
            let settings = learn::nn::train::TrainSettings { seed, ..config.train.clone() };
            let of = json!({ "model": model, "config": config, "seed": seed, "archive": data.address });
            let begun = match checkpoint {
                Some(folder) => TrainState::load(folder, &of, &net.parameters, settings.rate as f32)?,
                None => None,
            };
            if let Some(state) = &begun {
                tell(Progress::Resumed { epoch: state.epoch });
            }
            let reach = reach_of(model);
            let mut failed = None;
            let after = |epoch: &Epoch, state: &TrainState| {
                tell(Progress::Epoch(epoch));
                match checkpoint.map(|folder| state.save(folder, &of)) {
                    Some(Err(error)) => {
                        failed = Some(error);
                        Then::Stop
                    }
                    _ => Then::GoOn,
                }
            };
            let samples = (&data.train, &data.validation);
            let net = fit(net, samples, reach, (&settings, config.divergence_weight as f32), begun, after);
            if let Some(error) = failed {
                return Err(error.into());
            }
            match model {
                Model::Vae => Box::new(Variational { net }),
                Model::Hierarchy => {
                    let base = Autoencoder { net, reach };
                    let (hierarchy, scores) = Hierarchy::fit(base, &data.train, &data.validation, seed);
                    held_out = Some(scores);
                    Box::new(hierarchy)
                }
                _ => Box::new(Autoencoder { net, reach }),
            }
        }
    };
    Ok((detector, held_out))
}
