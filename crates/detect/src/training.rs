//! Trains a detector and sets its thresholds.

use std::ops::ControlFlow;
use std::path::Path;

use archive::Archive;
use learn::artifact::DataOrigin;
use learn::nn::train::{Epoch, TrainSettings, TrainState};
use serde_json::json;
use workload::{Control, Timestamp};

use crate::autoencoder::Autoencoder;
use crate::autoencoder::train::{Fit, fit};
use crate::calibrating::Calibrating;
use crate::config::ValidConfig;
use crate::data::{HeldOut, Sampler, TrainingData};
use crate::detector::{Detector, DetectorKind, Finding};
use crate::ensemble::Ensemble;
use crate::error::DetectError;
use crate::hierarchy::{FittedHierarchy, Hierarchy};
use crate::nearest::Nearest;
use crate::pca::Components;
use crate::trained::{Origin, TrainedDetector, new_net, scope_of};
use crate::variational::Variational;

/// The progress of training a network.
#[derive(Debug, Clone, Copy)]
pub enum TrainingStep<'a> {
    /// Training continues from a checkpoint.
    Resumed {
        epoch: usize,
    },
    Epoch(&'a Epoch),
    /// Thresholds are set with held-out jobs.
    Calibrating,
}

/// The seeds of the members of an ensemble are this far apart.
const MEMBER_SEED: u64 = 1_000_003;

/// The weights that networks have before training.
#[derive(Clone, Copy, Default)]
pub enum Start<'a> {
    #[default]
    Random,
    /// Those of another detector, if the networks have the same shape; random ones otherwise.
    From(&'a TrainedDetector),
    /// Those of another detector that was trained with the same data and settings; they are not trained again.
    Trained(&'a TrainedDetector),
}

/// One training run. It uses the current rayon pool, so `ThreadPool::install` limits its threads.
#[derive(Clone, Copy)]
pub struct Training<'a> {
    pub kind: DetectorKind,
    pub config: &'a ValidConfig,
    /// The same seed and data give the same detector.
    pub seed: u64,
    /// Where the state is saved after every epoch; training continues from what is there.
    pub checkpoint: Option<&'a Path>,
    pub start: Start<'a>,
    /// Gets the progress of reading the archive, and can stop the training.
    pub control: Control<'a>,
}

/// A detector, and those that judge validation data in its place if it was fitted to that as well.
struct Fitted {
    detector: Box<dyn Detector>,
    judges: Option<Judges>,
}

/// Detectors fitted to the later and to the earlier part of the validation data: each judges the other part.
struct Judges {
    for_earlier: Box<dyn Detector>,
    for_later: Box<dyn Detector>,
    boundary: Timestamp,
}

impl Fitted {
    /// Several detectors as one; `None` without any.
    fn combined(members: Vec<Self>) -> Option<Self> {
        let (mut detectors, mut earlier, mut later, mut boundary) =
            (Vec::new(), Vec::new(), Vec::new(), None);
        for Self { detector, judges } in members {
            detectors.push(detector);
            if let Some(judges) = judges {
                earlier.push(judges.for_earlier);
                later.push(judges.for_later);
                boundary = Some(judges.boundary);
            }
        }
        let judges = match (Ensemble::of(earlier), Ensemble::of(later), boundary) {
            (Some(for_earlier), Some(for_later), Some(boundary)) => {
                Some(Judges { for_earlier, for_later, boundary })
            }
            _ => None,
        };
        Some(Self { detector: Ensemble::of(detectors)?, judges })
    }

    /// The detector for batches of validation data that start at a time.
    fn judge(&self, start: Timestamp) -> &dyn Detector {
        match &self.judges {
            Some(judges) if start < judges.boundary => &*judges.for_earlier,
            Some(judges) => &*judges.for_later,
            None => &*self.detector,
        }
    }
}

impl Training<'_> {
    /// Trains on the train set of an archive and sets thresholds with its validation set.
    pub fn run(
        &self,
        archive: &Archive,
        tell: impl FnMut(TrainingStep<'_>),
    ) -> Result<TrainedDetector, DetectError> {
        let sampler = Sampler::new(archive, self.config, self.seed, self.control)?;
        self.fit(&sampler.training_data()?, &HeldOut::Archive(&sampler), tell)
    }

    /// Trains on data that has been read, and sets thresholds with data that is held out.
    pub fn fit(
        &self,
        data: &TrainingData,
        held_out: &HeldOut<'_>,
        mut tell: impl FnMut(TrainingStep<'_>),
    ) -> Result<TrainedDetector, DetectError> {
        let data_origin = data.origin();
        let mut members = Vec::new();
        for member in 0..self.config.n_members(self.kind) {
            let checkpoint = self.checkpoint.map(|dir| dir.join(format!("member-{member}")));
            let seed = self.seed.wrapping_add(MEMBER_SEED.wrapping_mul(member as u64));
            // A single detector keeps its checkpoint where it always was.
            let run = if self.config.n_members(self.kind) > 1 {
                Training { seed, checkpoint: checkpoint.as_deref(), ..*self }
            } else {
                *self
            };
            members.push(run.fit_detector(member, data, &data_origin, &mut tell)?);
        }
        let fitted = Fitted::combined(members).ok_or_else(|| self.no_calibration(data))?;
        let (mut error, mut n_windows) = (0.0, 0);
        for batch in &data.validation.batches {
            self.control.check()?;
            let findings = fitted.detector.examine(batch);
            n_windows += findings.len();
            error += findings.iter().map(Finding::error).sum::<f64>();
        }
        let origin = Origin {
            archive: data.address.clone(),
            seed: self.seed,
            n_windows: data.train.n_windows(),
            n_available: data.train.n_available,
            validation_error: error / n_windows.max(1) as f64,
        };
        tell(TrainingStep::Calibrating);
        let calibrating = Calibrating {
            config: self.config,
            period: data.period,
            known: &data.known,
            seed: self.seed,
            stop: self.control.stop(),
        };
        let calibration = calibrating.run(held_out, &|start| fitted.judge(start), &*fitted.detector)?;
        let calibration = calibration.ok_or_else(|| self.no_calibration(data))?;
        Ok(TrainedDetector {
            kind: self.kind,
            config: self.config.clone(),
            period: data.period,
            calibration: Some(calibration),
            origin,
            data: Some(data_origin),
            detector: fitted.detector,
        })
    }

    fn no_calibration(&self, data: &TrainingData) -> DetectError {
        let seconds = self.config.window_spec(data.period, 1).length().as_seconds();
        DetectError::NoCalibration { address: data.address.clone(), seconds }
    }

    fn fit_detector(
        &self,
        member: usize,
        data: &TrainingData,
        data_origin: &DataOrigin,
        tell: &mut impl FnMut(TrainingStep<'_>),
    ) -> Result<Fitted, DetectError> {
        let n_latent = self.config.net.n_latent;
        let detector: Box<dyn Detector> = match self.kind {
            DetectorKind::Pca => Box::new(Components::fit(&data.train, n_latent)?),
            DetectorKind::Nearest => {
                Box::new(Nearest::fit(&data.train, self.config.n_neighbours, n_latent, self.seed)?)
            }
            DetectorKind::Vae => {
                Box::new(Variational { net: self.fit_net(member, data, data_origin, tell)?.net })
            }
            DetectorKind::Ae | DetectorKind::NodeGnn | DetectorKind::JobGnn => {
                Box::new(self.fit_net(member, data, data_origin, tell)?)
            }
            DetectorKind::Hierarchy => {
                let base = self.fit_net(member, data, data_origin, tell)?;
                let FittedHierarchy { hierarchy, for_earlier, for_later, boundary } =
                    Hierarchy::fit(base, &data.train, &data.validation, self.seed, self.control.stop())?;
                let (for_earlier, for_later) = (Box::new(for_earlier), Box::new(for_later));
                let judges = Some(Judges { for_earlier, for_later, boundary });
                return Ok(Fitted { detector: Box::new(hierarchy), judges });
            }
        };
        Ok(Fitted { detector, judges: None })
    }

    fn fit_net(
        &self,
        member: usize,
        data: &TrainingData,
        data_origin: &DataOrigin,
        tell: &mut impl FnMut(TrainingStep<'_>),
    ) -> Result<Autoencoder, DetectError> {
        let net_of = |other: &TrainedDetector| other.net_for(self.kind, self.config, member);
        let scope = scope_of(self.kind);
        let inherited = match self.start {
            Start::Random => None,
            Start::From(other) => net_of(other),
            Start::Trained(other) => match net_of(other) {
                Some(net) => return Ok(Autoencoder { net, scope }),
                None => None,
            },
        };
        let net = inherited.unwrap_or_else(|| new_net(self.kind, self.config, self.seed));
        let settings = TrainSettings { seed: self.seed, ..self.config.train.clone() };
        let identity = json!({ "model": self.kind, "config": **self.config, "seed": self.seed, "data": data_origin.sha256 });
        let resumed = match self.checkpoint {
            Some(dir) => TrainState::load(dir, &identity, &net.parameters, settings.learning_rate as f32)?,
            None => None,
        };
        if let Some(state) = &resumed {
            tell(TrainingStep::Resumed { epoch: state.epoch });
        }
        let after_epoch = |epoch: &Epoch, state: &TrainState| {
            tell(TrainingStep::Epoch(epoch));
            if let Some(dir) = self.checkpoint {
                state.save(dir, &identity)?;
            }
            Ok(ControlFlow::Continue(()))
        };
        let fitting = Fit {
            train: &data.train,
            validation: &data.validation,
            scope,
            settings: &settings,
            divergence_weight: self.config.divergence_weight as f32,
        };
        let net = fit(net, &fitting, resumed, self.control.stop(), after_epoch)?;
        Ok(Autoencoder { net, scope })
    }
}
