//! What can go wrong with an archive, and what it happened to.

use std::io;
use std::path::{Path, PathBuf};

/// The outcome of a call on an archive.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call on an archive failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address does not hold an archive.
    #[error("{address} is not a Tracewise archive: it has no {marker}")]
    NotAnArchive {
        /// Where an archive was looked for.
        address: String,
        /// The file that every archive has.
        marker: &'static str,
    },
    /// A newer Tracewise wrote this.
    #[error("{address} has format {found}, and this Tracewise reads formats up to {known}")]
    NewerFormat {
        /// The archive or file.
        address: String,
        /// The version it has.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
    /// The address cannot name an archive.
    #[error("{address} cannot be the address of an archive: {reason}")]
    Address {
        /// The address as it was given.
        address: String,
        /// Why it is refused.
        reason: String,
    },
    /// There is no directory in which writes to a bucket can be prepared.
    #[error(
        "{address}: there is no spool directory for writes, because neither XDG_STATE_HOME nor HOME is set"
    )]
    NoSpool {
        /// The address of the archive.
        address: String,
    },
    /// Stored bytes differ from what was written.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The damaged file.
        path: String,
        /// How the damage shows.
        reason: String,
    },
    /// A compaction removed a file that a snapshot refers to.
    #[error("{path} was removed while it was being read")]
    Gone {
        /// The removed file.
        path: String,
    },
    /// A file in the archive that the archive did not write.
    #[error("{path} is not a file of this archive: move it elsewhere")]
    Foreign {
        /// The file.
        path: String,
    },
    /// The disk is full. Nothing that was acknowledged is lost.
    #[error(
        "no space left for {path}: what was acknowledged is kept, and writing continues when there is room"
    )]
    NoSpace {
        /// The file that could not be written.
        path: PathBuf,
    },
    /// A commit was decided and could not be completed. The next opener of the archive completes it.
    #[error("{cause}; what was written is safe, and the next command on this archive completes it")]
    Unfinished {
        /// What kept it from being completed.
        cause: Box<Error>,
    },
    /// Another process holds the lock.
    #[error("{path} is locked by another process")]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// An operating system error on a local file.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system reported.
        source: io::Error,
    },
    /// An error of the object store.
    #[error("{path}: {}", store_message(cause))]
    Store {
        /// The object.
        path: String,
        /// What the store reported.
        cause: object_store::Error,
    },
    /// A CSV file that cannot be imported.
    #[error("{file}{}: {reason}", row.map(|row| format!(", row {row}")).unwrap_or_default())]
    Csv {
        /// The file.
        file: String,
        /// The line, if one cell or row is at fault.
        row: Option<u64>,
        /// What is wrong with it.
        reason: String,
    },
    /// An invalid column map.
    #[error("column map {file}: {reason}")]
    ColumnMap {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A server that answered wrongly, or not at all.
    #[error("{url}: {reason}")]
    Server {
        /// Its address, without a password.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// A server did not answer within the timeout.
    #[error("{url}: no answer in time")]
    Timeout {
        /// Its address, without a password.
        url: String,
    },
    /// A Prometheus has none of the metrics that were looked for.
    #[error("{url}: no metric {} with a label {node_label:?} in that time range", metrics.join(" or "))]
    NoMetric {
        /// Its address, without a password.
        url: String,
        /// The names that were looked for.
        metrics: Vec<String>,
        /// The label that names the node.
        node_label: String,
    },
    /// A reading with a time that no file name can hold.
    #[error(
        "{node} was read at {time} ms since the epoch, which is outside the years 1970 to 9999; check its clock"
    )]
    Time {
        /// The node.
        node: String,
        /// Milliseconds since the epoch.
        time: i64,
    },
    /// A reading from the future.
    #[error("{node} was read {seconds:.0} s ahead of this machine's clock; check the clocks of both")]
    Ahead {
        /// The node.
        node: String,
        /// How far ahead.
        seconds: f64,
    },
    /// Traces that are far longer than the readings that they are derived from.
    #[error(
        "{node} has {n_threads} threads and so few readings that traces of {n_steps} steps are not derived \
         from them; check its sampling interval and its clock"
    )]
    TooManySteps {
        /// The node.
        node: String,
        /// Its threads.
        n_threads: u64,
        /// Steps of each trace.
        n_steps: u64,
    },
    /// A node name that no directory name can hold.
    #[error("{name:?} is too long for the name of a node")]
    NodeName {
        /// The name.
        name: String,
    },
    /// Labels that contradict each other, or labels that are there.
    #[error("{address} cannot take these labels: {reason}")]
    Labels {
        /// The address of the archive.
        address: String,
        /// The contradiction.
        reason: String,
    },
    /// Labels in the archive that contradict each other.
    #[error("the labels of {address} contradict each other: {reason}")]
    ContradictoryLabels {
        /// The address of the archive.
        address: String,
        /// The contradiction.
        reason: String,
    },
    /// The runtime given in the settings was shut down during a call.
    #[error("the runtime of the archive's network calls has ended")]
    RuntimeEnded,
    /// A source that no reading can come from.
    #[error("{0}")]
    Source(#[from] workload::SourceError),
    /// The call was asked to stop.
    #[error("{0}")]
    Stopped(#[from] workload::Stopped),
    /// An import without readings.
    #[error("nothing to import: {what}")]
    Nothing {
        /// What is empty.
        what: String,
    },
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

    /// Whether a file is not there, or not there any more because of a compaction. Reading again helps.
    pub fn is_not_found(&self) -> bool {
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
