//! The directory in which jobs write. It is removed at the end of a run, also after an error; the next run
//! removes what a crash has left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::RunError;

/// The type that `statfs` reports for a file system in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
const PREFIX: &str = "tracewise-campaign-";

#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    /// Held for as long as the directory is in use.
    _lock: File,
}

impl Scratch {
    /// Creates a directory below `root`, and removes those that crashed runs have left there.
    pub fn new(root: &Path) -> Result<Self, RunError> {
        let failed = |path: &Path| {
            let what = path.display().to_string();
            move |source| RunError::Io { what, source }
        };
        fs::create_dir_all(root).map_err(failed(root))?;
        for entry in fs::read_dir(root).map_err(failed(root))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let directory = root.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&directory).map_err(failed(&directory))?;
        let lock = File::create(lock_path(&directory)).map_err(failed(&directory))?;
        lock.lock().map_err(failed(&directory))?;
        Ok(Self { directory, _lock: lock })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Fails if jobs could fill the disk, or would write to memory.
    pub fn check_room(&self, wanted: u64) -> Result<(), RunError> {
        if wanted == 0 {
            return Ok(());
        }
        let stat = rustix::fs::statvfs(&self.directory).map_err(|error| RunError::Io {
            what: self.directory.display().to_string(),
            source: error.into(),
        })?;
        let free = stat.f_bavail * stat.f_frsize;
        let path = self.directory.clone();
        if free / 2 < wanted {
            return Err(RunError::NoRoom { path, free, needed: wanted.saturating_mul(2) });
        }
        let is_memory = rustix::fs::statfs(&self.directory).is_ok_and(|stat| stat.f_type == TMPFS);
        if is_memory { Err(RunError::NoDisk { path }) } else { Ok(()) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn lock_path(directory: &Path) -> PathBuf {
    directory.join("lock")
}

fn is_abandoned(directory: &Path) -> bool {
    File::open(lock_path(directory)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_in_use_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let left = root.path().join(format!("{PREFIX}0"));
        fs::create_dir(&left).unwrap();
        fs::write(lock_path(&left), "").unwrap();
        let scratch = Scratch::new(root.path()).unwrap();
        assert!(!left.exists() && scratch.directory().exists() && !is_abandoned(scratch.directory()));
        assert!(matches!(scratch.check_room(u64::MAX), Err(RunError::NoRoom { .. })));
        drop(scratch);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
