//! Writes are prepared here before they become visible, so that a crash at any point leaves
//! either nothing or all of them.
//!
//! Files are prepared in a set of their own. `commit.json` makes the set final: from then on
//! every opener of the archive publishes what is left of it. A set without it, whose owner is
//! gone, is removed.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use workload::Stop;

use crate::error::{Error, Result};
use crate::layout::{SPOOL, next_id};
use crate::store::{Store, create_folders, sync_folder};

const COMMIT: &str = "commit.json";
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
        create_folders(&staged)?;
        let id = next_id();
        let lock_path = staged.join(format!("{id}.lock"));
        let lock = File::create_new(&lock_path).map_err(Error::io(&lock_path))?;
        lock.lock().map_err(Error::io(&lock_path))?;
        let folder = staged.join(id.to_string());
        fs::create_dir(&folder).map_err(Error::io(&folder))?;
        sync_folder(&staged)?;
        Ok(StagedSet { folder, lock_path, _lock: lock, files: Mutex::default(), is_final: false })
    }

    /// Waits until nobody else writes labels here, and keeps others from it until it is dropped. Processes
    /// with another spool, which only an archive in a bucket can have, are not kept from it.
    pub fn lock_labels(&self, stop: &Stop) -> Result<File> {
        create_folders(&self.root)?;
        let path = self.root.join("labels.lock");
        let file = File::create(&path).map_err(Error::io(&path))?;
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

    /// The sets of this spool, including those that are being written.
    pub fn sets(&self) -> Result<Vec<PathBuf>> {
        let staged = self.staged();
        let entries = match fs::read_dir(&staged) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&staged)(error)),
        };
        let mut folders: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
        folders.sort();
        Ok(folders)
    }
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
        self.folder.join(format!("{}.parquet", next_id()))
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
    let lock = match File::open(path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Abandoned::Yes(None)),
        Err(error) => return Err(Error::io(path)(error)),
    };
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
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| Error::damaged(&path.to_string_lossy(), error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(&path)(error)),
    }
}

/// Publishes what has not been published yet.
fn publish_all(store: &Store, folder: &Path, commit: &Commit) -> Result<()> {
    for file in &commit.files {
        let prepared = folder.join(&file.prepared);
        if prepared.exists() {
            store.publish(&prepared, &file.path)?;
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
