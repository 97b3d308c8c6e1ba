//! What can go wrong with job traces.

use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error(transparent)]
    Files(#[from] files::Error),
    #[error(transparent)]
    Artifact(#[from] learn::artifact::ArtifactError),
    #[error("{path}, line {line}: {reason}")]
    Line { path: String, line: u64, reason: String },
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
    #[error("there are {found} jobs; {wanted} are the least to {what}")]
    TooFew { found: usize, wanted: usize, what: &'static str },
    #[error("there is no column for {role}: {hint}")]
    NoColumn { role: &'static str, hint: &'static str },
    #[error("{0}")]
    Condition(String),
    #[error("{0}")]
    Schema(String),
    #[error("trees could not be fitted: {0}")]
    Trees(#[from] learn::boost::BoostError),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        |source| Self::Io { path, source }
    }

    pub fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }
}
