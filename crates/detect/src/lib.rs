//! Detectors learn what windows of normal jobs look like and score windows that look different.
//!
//! A detector is a folder here and a variant of [`Model`]; each passes the suite in `contract.rs`.

pub mod analysis;
pub mod autoencoder;
pub mod channel;
pub mod config;
#[cfg(test)]
mod contract;
mod detector;
pub mod diagnosis;
pub mod evaluate;
pub mod explain;
mod hierarchy;
pub mod inject;
mod model;
mod nearest;
mod pca;
mod sample;
pub mod stretch;
mod threshold;
mod variational;
pub mod window;

pub use config::{ConfigError, DetectorConfig};
pub use detector::{Detector, Finding, Model, Uncertainty, channel_errors};
pub use model::{Data, DetectError, Origin, Progress, Trained, anomalous_kinds, kinds_of, train};
pub use sample::Sample;
pub use stretch::{Kinds, Stretch, Stretches};
pub use threshold::Thresholds;
pub use window::{Cut, Jobs, Moment, ThreadWindow, for_each_moment, latest_moment, period_of};
