//! Advice on the window and the sampling interval: spectra give the window, the separation of kinds of jobs
//! gives the interval.

#[cfg(test)]
pub(crate) mod recording;
pub mod sampling;
pub mod spectrum;

use learn::{PcaError, SilhouetteError, SpectrumError};
use report::ReportError;
use workload::{Rates, Stopped};

/// The channels that are analyzed. The fourth, `other`, is what they leave of one.
pub const CHANNELS: [&str; 3] = [Rates::CHANNELS[0], Rates::CHANNELS[1], Rates::CHANNELS[2]];

#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    #[error(transparent)]
    Archive(archive::Error),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("no job of a known kind in the chosen sets owned a thread")]
    NoJobs,
    #[error(
        "no job owned a thread for {wanted_seconds} s without a gap; the longest stretch has {longest_seconds} s"
    )]
    TooShort { wanted_seconds: f64, longest_seconds: f64 },
    #[error("two kinds are needed, but only {0} has whole windows in the chosen sets")]
    OneKind(String),
    #[error("every channel of every kind is constant")]
    Constant,
    #[error(
        "an interval of {interval_seconds} s is not a multiple of the archive's sampling period, {period_seconds} s"
    )]
    IntervalNotMultiple { interval_seconds: f64, period_seconds: f64 },
    #[error("an interval of {interval_seconds} s does not fit into a window of {window_seconds} s")]
    IntervalTooLong { interval_seconds: f64, window_seconds: f64 },
    #[error("at least one interval, one repeat and a window of one sample are needed")]
    NothingToDo,
    #[error(transparent)]
    Spectrum(#[from] SpectrumError),
    #[error(transparent)]
    Pca(#[from] PcaError),
    #[error(transparent)]
    Silhouette(#[from] SilhouetteError),
    #[error("{0}")]
    Stopped(#[from] Stopped),
}

impl From<archive::Error> for AnalysisError {
    fn from(error: archive::Error) -> Self {
        match error {
            archive::Error::Stopped(stopped) => Self::Stopped(stopped),
            error => Self::Archive(error),
        }
    }
}
