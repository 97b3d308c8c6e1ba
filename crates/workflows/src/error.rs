//! What can go wrong with workflow traces.

use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
    #[error("{path}, line {line}: {reason}")]
    Line { path: String, line: u64, reason: String },
    #[error("{0}")]
    Ask(String),
    #[error(transparent)]
    Artifact(#[from] learn::artifact::ArtifactError),
    #[error(transparent)]
    Weights(#[from] learn::weights::WeightsError),
    #[error("trees could not be fitted: {0}")]
    Trees(#[from] learn::boost::BoostError),
    #[error(transparent)]
    ExtraTrees(learn::extra_trees::ExtraTreesError),
    #[error(transparent)]
    Settings(#[from] learn::nn::train::TrainSettingsError),
    #[error(transparent)]
    Stopped(#[from] workload::Stopped),
    #[error(transparent)]
    Report(#[from] report::ReportError),
}

pub type Result<T> = std::result::Result<T, Error>;

impl From<learn::extra_trees::ExtraTreesError> for Error {
    fn from(error: learn::extra_trees::ExtraTreesError) -> Self {
        match error {
            learn::extra_trees::ExtraTreesError::Stopped(stopped) => Self::Stopped(stopped),
            other => Self::ExtraTrees(other),
        }
    }
}

impl Error {
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.display().to_string();
        |source| Self::Io { path, source }
    }

    pub fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }
}
