//! Trains a detector and sets its thresholds.

use std::ops::ControlFlow;
use std::path::Path;

use archive::Archive;
use learn::artifact::DataOrigin;
use learn::nn::train::{Epoch, TrainSettings, TrainState};
use serde_json::json;
use workload::Control;

use crate::autoencoder::Autoencoder;
use crate::autoencoder::train::{Fit, fit};
use crate::config::ValidConfig;
use crate::data::{Sampler, TrainingData};
use crate::detector::{Detector, DetectorKind};
use crate::error::DetectError;
use crate::hierarchy::{FittedHierarchy, Hierarchy};
use crate::nearest::Nearest;
use crate::pca::Components;
use crate::threshold::Thresholds;
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
}

/// One training run. It uses the current rayon pool, so `ThreadPool::install` limits its threads.
#[derive(Debug, Clone, Copy)]
pub struct Training<'a> {
    pub kind: DetectorKind,
    pub config: &'a ValidConfig,
    /// The same seed and data give the same detector.
    pub seed: u64,
    /// Where the state is saved after every epoch; training continues from what is there.
    pub checkpoint: Option<&'a Path>,
    /// Gets the progress of reading the archive, and can stop the training.
    pub control: Control<'a>,
}

/// A detector, and scores for its thresholds if it was fitted to validation data as well.
struct Fitted {
    detector: Box<dyn Detector>,
    validation_scores: Option<Vec<Vec<f64>>>,
}

impl Training<'_> {
    /// Trains on the train set of an archive and sets thresholds with its validation set.
    pub fn run(
        &self,
        archive: &Archive,
        tell: impl FnMut(TrainingStep<'_>),
    ) -> Result<TrainedDetector, DetectError> {
        let sampler = Sampler::new(archive, self.config, self.seed, self.control)?;
        self.fit(&sampler.training_data()?, tell)
    }

    /// Trains on data that has been read.
    pub fn fit(
        &self,
        data: &TrainingData,
        tell: impl FnMut(TrainingStep<'_>),
    ) -> Result<TrainedDetector, DetectError> {
        let data_origin = data.origin();
        let Fitted { detector, validation_scores } = self.fit_detector(data, &data_origin, tell)?;
        let mut scores = Vec::new();
        let mut error = 0.0;
        for (index, batch) in data.validation.batches.iter().enumerate() {
            self.control.check()?;
            for (window, (thread, finding)) in batch.threads().iter().zip(detector.examine(batch)).enumerate()
            {
                let kind = data.known.kind(&thread.job).filter(|_| self.config.threshold_by_kind);
                let score = validation_scores.as_ref().map_or(finding.score, |scores| scores[index][window]);
                scores.push((score, kind));
                error += finding.error();
            }
        }
        let origin = Origin {
            archive: data.address.clone(),
            seed: self.seed,
            n_windows: data.train.n_windows(),
            n_available: data.train.n_available,
            validation_error: error / scores.len().max(1) as f64,
        };
        let thresholds = Thresholds::fit(&scores, self.config.false_alarm_rate)?;
        let config = self.config.clone();
        Ok(TrainedDetector {
            kind: self.kind,
            config,
            period: data.period,
            thresholds,
            origin,
            data: Some(data_origin),
            detector,
        })
    }

    fn fit_detector(
        &self,
        data: &TrainingData,
        data_origin: &DataOrigin,
        tell: impl FnMut(TrainingStep<'_>),
    ) -> Result<Fitted, DetectError> {
        let n_latent = self.config.net.n_latent;
        let detector: Box<dyn Detector> = match self.kind {
            DetectorKind::Pca => Box::new(Components::fit(&data.train, n_latent)?),
            DetectorKind::Nearest => {
                Box::new(Nearest::fit(&data.train, self.config.n_neighbours, n_latent, self.seed)?)
            }
            DetectorKind::Vae => Box::new(Variational { net: self.fit_net(data, data_origin, tell)?.net }),
            DetectorKind::Ae | DetectorKind::NodeGnn | DetectorKind::JobGnn => {
                Box::new(self.fit_net(data, data_origin, tell)?)
            }
            DetectorKind::Hierarchy => {
                let base = self.fit_net(data, data_origin, tell)?;
                let FittedHierarchy { hierarchy, validation_scores } =
                    Hierarchy::fit(base, &data.train, &data.validation, self.seed, self.control.stop())?;
                let validation_scores = Some(validation_scores);
                return Ok(Fitted { detector: Box::new(hierarchy), validation_scores });
            }
        };
        Ok(Fitted { detector, validation_scores: None })
    }

    fn fit_net(
        &self,
        data: &TrainingData,
        data_origin: &DataOrigin,
        mut tell: impl FnMut(TrainingStep<'_>),
    ) -> Result<Autoencoder, DetectError> {
        let net = new_net(self.kind, self.config, self.seed);
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
        let scope = scope_of(self.kind);
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
