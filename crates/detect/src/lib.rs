//! Anomaly detection on CPU traces.
//!
//! Detectors are fitted to windows of normal jobs and score other windows; [`Monitor`] turns scores into events.
//! A detector is a folder here and a variant of [`DetectorKind`]; each passes the suite in `contract.rs`.

pub mod analysis;
mod archive_events;
mod archive_windows;
pub mod autoencoder;
mod calibrating;
mod calibration;
pub mod channel;
mod config;
#[cfg(test)]
mod contract;
mod data;
mod detector;
mod ensemble;
mod error;
pub mod evaluate;
mod event;
mod event_windows;
mod evidence;
mod explain;
mod follow;
mod hierarchy;
pub mod inject;
mod kind_classifier;
mod library;
mod monitor;
mod nearest;
mod node_windows;
mod pca;
mod progress;
mod ranking;
mod regions;
mod sample;
mod split;
pub mod stretch;
mod tail;
#[cfg(test)]
mod test_archive;
mod trained;
mod training;
mod units;
mod usage;
mod variational;
mod why;
mod window;
mod window_buffer;

pub use archive_events::{ArchiveEvents, FoundEvents};
pub use archive_windows::{Reading, period_of};
pub use calibration::{BUDGETS, Calibration, FoundAtBudgets, Threshold, Thresholds};
pub use config::{ConfigError, DetectorConfig, ValidConfig};
pub use data::{HeldOut, KnownJobs, Sampler, TrainingData};
pub use detector::{Detector, DetectorKind, Finding, Level, ScoreScale, Uncertainty, channel_errors};
pub use error::DetectError;
pub use event::{Event, EventChange, EventSubject};
pub use event_windows::{EventWindow, event_windows};
pub use evidence::{Confirmation, Evidence, Subject};
pub use explain::{ChannelError, Explanation, FeatureDeviation, explain_reconstruction};
pub use follow::ArchiveFollower;
pub use kind_classifier::{KindClassifier, KindMatch, LabelledPoint, MIN_KIND_WINDOWS, Reliability};
pub use library::Library;
pub use monitor::Monitor;
pub use ranking::{RankedWindow, Ranking};
pub use sample::Sample;
pub use split::{Scope, Span, WindowFilter};
pub use stretch::{Kinds, Stretch, Stretches};
pub use trained::{Origin, TrainedDetector};
pub use training::{Start, Training, TrainingStep};
pub use usage::{JobUsage, MemoryUse};
pub use window::{ThreadWindow, WindowBatch, WindowSpec};
pub use window_buffer::{BufferStatus, ClockDifference, WindowBuffer};
