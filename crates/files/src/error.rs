//! Errors of reading and writing files.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: the file name must end in .parquet or .csv")]
    TableFormat { path: PathBuf },
}

impl Error {
    /// Adds a path to an I/O error.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// The path and the cause, for errors that keep them apart.
    pub fn into_parts(self) -> (PathBuf, io::Error) {
        match self {
            Self::Io { path, source } => (path, source),
            Self::TableFormat { path } => (path, io::ErrorKind::InvalidFilename.into()),
        }
    }
}
