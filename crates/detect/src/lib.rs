//! Anomaly detection on CPU traces.
//!
//! Detectors are fitted to windows of normal jobs and score other windows; [`Monitor`] turns scores into alarms.
//! A detector is a folder here and a variant of [`DetectorKind`]; each passes the suite in `contract.rs`.

pub mod analysis;
mod archive_windows;
pub mod autoencoder;
pub mod channel;
mod config;
#[cfg(test)]
mod contract;
mod data;
mod detector;
mod error;
pub mod evaluate;
mod explain;
mod follow;
mod hierarchy;
pub mod inject;
mod kind_classifier;
mod monitor;
mod nearest;
mod pca;
mod sample;
pub mod stretch;
#[cfg(test)]
mod test_archive;
mod threshold;
mod trained;
mod training;
mod variational;
mod window;

pub use archive_windows::{Reading, period_of};
pub use config::{ConfigError, DetectorConfig, ValidConfig};
pub use data::{KnownJobs, Sampler, TrainingData};
pub use detector::{Detector, DetectorKind, Finding, Level, ScoreScale, Uncertainty, channel_errors};
pub use error::DetectError;
pub use explain::{ChannelError, Explanation, FeatureDeviation, explain_reconstruction};
pub use follow::{ArchiveFollower, ClockDifference, NewWindows};
pub use kind_classifier::{KindClassifier, KindMatch, LabelledPoint, Reliability};
pub use monitor::{Alarm, Monitor, RankedWindow, Ranking};
pub use sample::Sample;
pub use stretch::{Kinds, Stretch, Stretches};
pub use threshold::{Threshold, Thresholds};
pub use trained::{Origin, TrainedDetector};
pub use training::{Training, TrainingStep};
pub use window::{JobFilter, ThreadWindow, WindowBatch, WindowSpec};
