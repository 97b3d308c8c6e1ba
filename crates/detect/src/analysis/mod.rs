//! How long and how often to look: spectra say the former, the separation of kinds the latter.

pub mod sampling;
pub mod spectrum;

use learn::{PcaError, SilhouetteError, SpectrumError};
use report::ReportError;
use workload::Rates;

/// The channels that are looked at; `other` is what they leave of one.
pub const CHANNELS: [&str; 3] = [Rates::CHANNELS[0], Rates::CHANNELS[1], Rates::CHANNELS[2]];

#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error(
        "no thread worked for a job whose kind is known and whose set is asked for; `--set all` looks at the test \
         set too, and `tracewise campaign labels` lists what is known"
    )]
    NoJobs,
    #[error(
        "no job owned a thread for {wanted} s without a gap (the longest: {longest} s); \
         ask for {what}, or record for longer"
    )]
    TooShort { wanted: usize, longest: usize, what: &'static str },
    #[error(
        "kinds can be told apart only if there are two, and only {0} has whole windows in the sets asked for"
    )]
    OneKind(String),
    #[error("every channel of every kind is constant: there is nothing to analyse")]
    Constant,
    #[error("{0}")]
    Settings(String),
    #[error(transparent)]
    Spectrum(#[from] SpectrumError),
    #[error(transparent)]
    Pca(#[from] PcaError),
    #[error(transparent)]
    Silhouette(#[from] SilhouetteError),
}
