//! Writes are prepared here before they become visible, so that a crash at any point leaves
//! either nothing or all of them.
//!
//! Files are prepared in a set of their own. `commit.json` makes the set final: from then on
//! the next writer publishes what is left of it. A set without it, whose owner is gone, is removed.
//! Readers change nothing: they leave out the files of sets that are not wholly published.
//!
//! An archive may come from somebody else, so `commit.json` is not trusted: it can only move files of
//! its own set to names that this archive gives to files.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ulid::Ulid;
use workload::{Stop, Timestamp};

use crate::error::{Error, Result};
use crate::labels;
use crate::layout::{MARKER, SPOOL, StoredFile, next_id};
use crate::store::{Object, Store};

const COMMIT: &str = "commit.json";
/// The extension of prepared files, whatever they hold.
const PREPARED: &str = ".parquet";
/// A commit of a large import lists some ten thousand files.
const MAX_COMMIT_BYTES: u64 = 256 << 20;
/// How often a lock that another holds is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct Spool {
    root: PathBuf,
}

impl Spool {
    /// The spool of an archive: in its own directory, or below `folder` for one in a bucket.
    pub fn of(store: &Store, folder: Option<&Path>) -> Result<Self> {
        let root = match (store.folder(), folder) {
            (Some(root), _) => root.join(SPOOL),
            (None, Some(folder)) => folder.join(store.identity()),
            (None, None) => default_folder(store)?.join(store.identity()),
        };
        Ok(Self { root })
    }

    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    fn staged(&self) -> PathBuf {
        self.root.join("staged")
    }

    /// A new set for files that are to become visible together.
    pub fn stage(&self) -> Result<StagedSet> {
        let staged = self.staged();
        files::create_dirs(&staged)?;
        let id = next_id();
        let lock_path = staged.join(format!("{id}.lock"));
        let lock = files::create_new(&lock_path)?;
        lock.lock().map_err(Error::io(&lock_path))?;
        let folder = staged.join(id.to_string());
        files::create_dirs(&folder)?;
        Ok(StagedSet { folder, lock_path, _lock: lock, files: Mutex::default(), is_final: false })
    }

    /// Waits until nobody else writes labels here, and keeps others from it until it is dropped. Processes
    /// with another spool, which only an archive in a bucket can have, are not kept from it.
    pub fn lock_labels(&self, stop: &Stop) -> Result<File> {
        files::create_dirs(&self.root)?;
        let path = self.root.join("labels.lock");
        let file = files::open_lock(&path)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => drop(stop.wait(LOCK_INTERVAL)),
                Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
            }
            stop.check()?;
        }
    }

    /// Finishes what processes that are gone had committed, and clears away what they had not.
    /// One that cannot be finished does not keep the others from it; the first error is returned.
    pub fn recover(&self, store: &Store) -> Result<()> {
        let outcomes: Vec<Result<()>> =
            self.sets()?.iter().map(|folder| recover_set(store, folder)).collect();
        outcomes.into_iter().collect()
    }

    /// The paths in the archive of files that belong to sets which are final and not wholly published. A
    /// set whose commit cannot be read has none: it is not published either.
    pub fn unpublished(&self, store: &Store) -> Result<BTreeSet<String>> {
        let mut unpublished = BTreeSet::new();
        for folder in self.sets()? {
            let Ok(Some(commit)) = read_commit(&folder) else { continue };
            let paths: Vec<String> = commit.files.into_iter().map(|file| file.path).collect();
            for path in &paths {
                // A file has its name only when it is whole.
                if !store.exists(path)? {
                    unpublished.extend(paths);
                    break;
                }
            }
        }
        Ok(unpublished)
    }

    /// The sets of this spool, including those that are being written.
    pub fn sets(&self) -> Result<Vec<PathBuf>> {
        let staged = self.staged();
        let entries = match fs::read_dir(&staged) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&staged)(error)),
        };
        let is_set = |entry: &fs::DirEntry| {
            let is_named = entry.file_name().to_str().is_some_and(|name| Ulid::from_string(name).is_ok());
            // A link to a directory is none.
            is_named && entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        let mut folders: Vec<PathBuf> = entries.flatten().filter(is_set).map(|entry| entry.path()).collect();
        folders.sort();
        Ok(folders)
    }
}

/// Whether what a set is to publish can be read.
pub fn check_set(folder: &Path) -> Result<()> {
    read_commit(folder).map(drop)
}

fn default_folder(store: &Store) -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    state
        .map(|state| state.join("tracewise/spool"))
        .ok_or_else(|| Error::NoSpool { address: store.address().to_owned() })
}

#[derive(Serialize, Deserialize)]
struct Commit {
    version: u32,
    files: Vec<CommittedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CommittedFile {
    /// In the directory of the set.
    prepared: String,
    /// In the archive.
    path: String,
}

impl CommittedFile {
    /// Only a file of the set itself may be moved, and only to a name that an archive has.
    fn check(&self) -> Result<(), String> {
        let is_prepared =
            self.prepared.strip_suffix(PREPARED).is_some_and(|id| Ulid::from_string(id).is_ok());
        if !is_prepared {
            return Err(format!("{:?} is not the name of a prepared file", self.prepared));
        }
        let object = Object { path: self.path.clone(), bytes: 0, modified: Timestamp(0) };
        let is_known =
            self.path == MARKER || labels::is_file(&self.path) || StoredFile::parse(&object).is_some();
        if is_known { Ok(()) } else { Err(format!("{:?} is not a file of an archive", self.path)) }
    }
}

/// Files that are to become visible together. Dropped before [`commit`](Self::commit), it leaves
/// nothing behind.
#[derive(Debug)]
pub struct StagedSet {
    folder: PathBuf,
    lock_path: PathBuf,
    _lock: File,
    files: Mutex<Vec<CommittedFile>>,
    is_final: bool,
}

impl StagedSet {
    /// The directory of the set.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a file may be prepared.
    pub fn prepare(&self) -> PathBuf {
        self.folder.join(format!("{}{PREPARED}", next_id()))
    }

    /// Adds a prepared and synced file, which is to appear at `path`.
    pub fn add(&self, prepared: &Path, path: String) {
        let prepared = prepared.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.files().push(CommittedFile { prepared, path });
    }

    pub fn is_empty(&self) -> bool {
        self.files().is_empty()
    }

    fn files(&self) -> MutexGuard<'_, Vec<CommittedFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all files visible. Once this has begun to, a crash does not stop it.
    pub fn commit(mut self, store: &Store) -> Result<()> {
        let commit = Commit { version: 1, files: std::mem::take(&mut *self.files()) };
        let text = serde_json::to_vec(&commit).map_err(|error| Error::io(&self.folder)(error.into()))?;
        files::write(&self.folder.join(COMMIT), &text)?;
        self.is_final = true;
        publish_all(store, &self.folder, &commit)
            .map_err(|cause| Error::Unfinished { cause: Box::new(cause) })?;
        remove_set(&self.folder, &self.lock_path)
    }
}

impl Drop for StagedSet {
    fn drop(&mut self) {
        // A final set that could not be published waits for the next opener.
        if !self.is_final {
            let _ = remove_set(&self.folder, &self.lock_path);
        }
    }
}

enum Abandoned {
    No,
    Yes(Option<File>),
}

fn lock_if_abandoned(path: &Path) -> Result<Abandoned> {
    let Some(lock) = files::open_existing_lock(path)? else { return Ok(Abandoned::Yes(None)) };
    match lock.try_lock() {
        Ok(()) => Ok(Abandoned::Yes(Some(lock))),
        Err(TryLockError::WouldBlock) => Ok(Abandoned::No),
        Err(TryLockError::Error(error)) => Err(Error::io(path)(error)),
    }
}

fn recover_set(store: &Store, folder: &Path) -> Result<()> {
    let lock_path = folder.with_extension("lock");
    let _lock = match lock_if_abandoned(&lock_path)? {
        Abandoned::No => return Ok(()),
        Abandoned::Yes(lock) => lock,
    };
    if let Some(commit) = read_commit(folder)? {
        publish_all(store, folder, &commit)?;
    }
    remove_set(folder, &lock_path)
}

fn read_commit(folder: &Path) -> Result<Option<Commit>> {
    let path = folder.join(COMMIT);
    let damaged = |reason: String| Error::damaged(&path.to_string_lossy(), reason);
    if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let limits = files::Limits { document_bytes: MAX_COMMIT_BYTES, ..files::Limits::default() };
    let text = files::read(&path, &limits)?;
    let commit: Commit = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    commit.files.iter().try_for_each(CommittedFile::check).map_err(damaged)?;
    Ok(Some(commit))
}

/// Publishes what has not been published yet.
fn publish_all(store: &Store, folder: &Path, commit: &Commit) -> Result<()> {
    for file in &commit.files {
        let prepared = folder.join(&file.prepared);
        match fs::symlink_metadata(&prepared) {
            Ok(metadata) if metadata.is_file() => store.publish(&prepared, &file.path)?,
            Ok(_) => return Err(Error::damaged(&prepared.to_string_lossy(), "it is not a regular file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&prepared)(error)),
        }
    }
    Ok(())
}

fn remove_set(folder: &Path, lock: &Path) -> Result<()> {
    for (path, removed) in [(folder, fs::remove_dir_all(folder)), (lock, fs::remove_file(lock))] {
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(path)(error)),
            _ => {}
        }
    }
    Ok(())
}
