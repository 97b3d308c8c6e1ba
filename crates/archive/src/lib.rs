//! Storage of CPU traces.
//!
//! An [`Archive`] is a directory or a bucket of Parquet files with the counters of the kernel; rates
//! are derived while reading. Readings come in live through a [`Writer`], or in bulk
//! through a [`Loader`] from CSV files and Prometheus, and go out through a [`Snapshot`].
//!
//! # Blocking
//!
//! Every call that touches the archive blocks its thread: all of [`Archive`] except `address` and
//! `with_stop` and `left_out`; [`Writer`], [`Loader`] and [`Replay`]; the methods of [`Snapshot`] that return a
//! `Result`; and everything in [`source`]. In async code, run them through `spawn_blocking`. A call
//! straight from an async task blocks that task's thread, and does not panic.
//!
//! Calls on an archive made by [`Archive::with_stop`] end within a second of the request to stop.

#![warn(missing_docs)]

mod catalog;
mod columns;
mod compact;
mod error;
mod file;
mod hours;
mod journal;
mod labels;
mod layout;
mod loader;
mod peer;
mod replay;
mod rows;
mod runtime;
mod segment;
mod snapshot;
mod spool;
mod stage;
mod store;
mod text_runs;
mod verify;
mod visible;
mod writer;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod source;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use workload::{Source, Stop};

pub use catalog::{Catalog, JobSummary, NodeSummary};
pub use compact::{CompactReport, Retention};
pub use error::{Error, Result};
pub use layout::Table;
pub use loader::{LoadReport, Loader};
pub use replay::{Replay, Replayed};
pub use snapshot::{Selection, Snapshot};
pub use store::S3Settings;
pub use verify::{Finding, VerifyReport};
pub use writer::{Writer, WriterSettings};

use layout::{FORMAT, MARKER};
use spool::Spool;
use store::Store;

/// How archives are reached.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How buckets are reached.
    pub s3: S3Settings,
    /// A multi-thread runtime to make network calls on. Without one, each archive that is opened has
    /// two threads of its own for them.
    pub runtime: Option<Handle>,
    /// Where writes to a bucket are prepared. Local archives prepare them in their own directory.
    pub spool: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Marker {
    format: u32,
}

/// A directory or bucket of CPU traces.
#[derive(Debug, Clone)]
pub struct Archive {
    store: Store,
    spool: Spool,
}

impl Archive {
    /// Opens an existing archive.
    pub fn open(address: &str, settings: &Settings) -> Result<Self> {
        let archive = Self::at(address, settings)?;
        if !archive.is_marked()? {
            return Err(Error::NotAnArchive { address: address.to_owned(), marker: MARKER });
        }
        Ok(archive)
    }

    /// Completes a commit that a crash interrupted. Only what writes does this: opening an archive and
    /// reading it change nothing.
    fn recover(&self) {
        if let Err(error) = self.spool.recover(&self.store) {
            tracing::warn!("an interrupted write could not be completed yet: {error}");
        }
    }

    /// Opens an archive for writing, and creates it if necessary.
    pub fn open_or_create(address: &str, settings: &Settings) -> Result<Self> {
        let archive = Self::at(address, settings)?;
        if !archive.is_marked()? {
            let set = archive.spool.stage()?;
            let prepared = set.prepare();
            let text = serde_json::json!(Marker { format: FORMAT }).to_string();
            files::write(&prepared, text.as_bytes())?;
            set.add(&prepared, MARKER.into());
            set.commit(&archive.store)?;
        }
        archive.recover();
        Ok(archive)
    }

    fn at(address: &str, settings: &Settings) -> Result<Self> {
        let store = Store::open(address, &settings.s3, settings.runtime.as_ref())?;
        let spool = Spool::of(&store, settings.spool.as_deref())?;
        Ok(Self { store, spool })
    }

    fn is_marked(&self) -> Result<bool> {
        let Some(text) = self.store.read(MARKER)? else { return Ok(false) };
        let path = self.store.full_path(MARKER);
        let marker: Marker = serde_json::from_slice(&text).map_err(|error| Error::damaged(&path, error))?;
        if marker.format > FORMAT {
            let address = self.address().to_owned();
            return Err(Error::NewerFormat { address, found: marker.format, known: FORMAT });
        }
        Ok(true)
    }

    /// The address that the archive was opened with.
    pub fn address(&self) -> &str {
        self.store.address()
    }

    /// The same archive, whose long calls, and those of what they return, end with
    /// [`Error::Stopped`] within a second of `stop`. A commit that has begun is finished, and so
    /// are the writes of a [`Writer`].
    #[must_use]
    pub fn with_stop(&self, stop: &Stop) -> Self {
        Self { store: self.store.with_stop(stop), spool: self.spool.clone() }
    }

    /// The problems of files that were left out since the archive was opened, because they are damaged or
    /// Tracewise did not write them. Each names its file. [`verify`](Self::verify) finds all of them.
    pub fn left_out(&self) -> BTreeSet<String> {
        self.store.warned_of()
    }

    /// Starts writing live readings. Only one writer may run at a time.
    pub fn writer(&self, source: Source, settings: WriterSettings) -> Result<Writer> {
        self.recover();
        Writer::open(self.store.with_stop(&Stop::default()), self.spool.clone(), source, settings)
    }

    /// Starts an import: all of its readings become visible, or none.
    pub fn loader(&self, source: Source) -> Result<Loader> {
        source.check()?;
        self.recover();
        Loader::new(self.store.clone(), self.spool.clone(), source)
    }

    /// A consistent view of what the archive holds now.
    pub fn snapshot(&self, selection: Selection) -> Result<Snapshot> {
        Snapshot::take(&self.store, &self.spool, selection)
    }
}
