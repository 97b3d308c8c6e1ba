//! Errors of training and applying detectors.

use learn::TooFewPoints;
use learn::artifact::ArtifactError;
use learn::mixture::MixtureError;
use learn::nn::train::TrainSettingsError;
use learn::pca::PcaError;
use workload::{Set, Stopped};

use crate::config::ConfigError;

#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Stopped(#[from] Stopped),
    #[error(
        "{address}: the {set} set has {n_windows} windows of {seconds} s, but {needed} are needed \
         (a window is a stretch without gaps during which one job owned a thread)"
    )]
    TooFew { address: String, set: Set, n_windows: usize, seconds: f64, needed: usize },
    #[error("{address}: its threads are idle ({percent:.1} % busy at most), so there is nothing to learn")]
    Idle { address: String, percent: f32 },
    #[error(
        "{address}: no window has the channel {channel}; jobs must be recorded with their control groups"
    )]
    MissingChannel { address: String, channel: &'static str },
    #[error("{address} was sampled every {found} s, but the model expects every {expected} s")]
    Period { address: String, found: f64, expected: f64 },
    #[error("{address}: the test set has no normal windows")]
    EmptyTest { address: String },
    #[error(
        "{address}: the validation set has no job that lasted for {seconds} s, so no threshold can be set for a budget of \
         false events"
    )]
    NoCalibration { address: String, seconds: f64 },
    #[error("the model was trained by an earlier version and has no thresholds for events")]
    NotCalibrated,
    #[error(transparent)]
    Pca(#[from] PcaError),
    #[error(transparent)]
    Mixture(TooFewPoints),
    #[error(transparent)]
    Settings(#[from] TrainSettingsError),
}

impl From<MixtureError> for DetectError {
    fn from(error: MixtureError) -> Self {
        match error {
            MixtureError::TooFewPoints(error) => Self::Mixture(error),
            MixtureError::Stopped(stopped) => Self::Stopped(stopped),
        }
    }
}
