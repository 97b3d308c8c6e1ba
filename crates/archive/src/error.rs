//! What can go wrong with an archive, each with the thing it happened to and what to do.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{address} is not a Tracewise archive: it has no {marker}; import or record into it first")]
    NotAnArchive { address: String, marker: &'static str },
    #[error(
        "{address} has format {found}, and this Tracewise knows up to {known}: use a newer Tracewise to read it"
    )]
    NewerFormat { address: String, found: u32, known: u32 },
    #[error("{address} is no place for an archive: {reason}")]
    Address { address: String, reason: String },
    #[error("{path} is damaged: {reason}; `tracewise archive verify` lists every damaged file")]
    Damaged { path: String, reason: String },
    #[error("{path} was removed while it was being read; try again, or compact with --grace 10m")]
    Gone { path: String },
    #[error("{path} is not a file of this archive: move it elsewhere")]
    Foreign { path: String },
    #[error("no space left for {path}: free some, nothing was lost; accepting goes on when there is room")]
    NoSpace { path: PathBuf },
    #[error("{cause}; what was written is safe, and the next command on this archive finishes it")]
    Unfinished { cause: Box<Error> },
    #[error("{path} is in use by another process: one at a time may do this")]
    Busy { path: PathBuf },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {}", store_message(cause))]
    Store { path: String, cause: object_store::Error },
    #[error("{file}{}: {reason}", row.map(|row| format!(", row {row}")).unwrap_or_default())]
    Csv { file: String, row: Option<u64>, reason: String },
    #[error("column map {file}: {reason}")]
    ColumnMap { file: String, reason: String },
    #[error("{url}: {reason}")]
    Server { url: String, reason: String },
    #[error("{node} was read at {time} ms, which is no time an archive can hold; check its clock")]
    Time { node: String, time: i64 },
    #[error("{name:?} is too long for the name of a node")]
    NodeName { name: String },
    #[error("{address} cannot take these labels: {reason}")]
    Labels { address: String, reason: String },
    #[error("the runtime of the archive's network calls has ended")]
    RuntimeEnded,
    #[error("{0}")]
    Stopped(#[from] workload::Stopped),
    #[error("nothing to read: {what}")]
    Nothing { what: String },
}

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        let (path, source) = error.into_parts();
        Self::io(&path)(source)
    }
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { path: path.to_owned() }
            }
            _ => Self::Io { path: path.to_owned(), source },
        }
    }

    /// Whether what was asked for is not there (any more).
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Store { cause: object_store::Error::NotFound { .. }, .. })
    }

    pub(crate) fn damaged(path: &str, reason: impl ToString) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// The root cause of a store's error on one line: the message of an S3 service if there is one.
fn store_message(error: &object_store::Error) -> String {
    let text = net::root_cause(error).to_string();
    let message = text.split_once("<Message>").and_then(|(_, rest)| rest.split_once("</Message>"));
    let message = message.map_or(text.as_str(), |(message, _)| message);
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
