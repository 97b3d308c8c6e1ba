//! The folder in which jobs write. Nothing of it is left: not after an error, and after a crash not
//! longer than until the next run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::RunError;

/// What `statfs` says of a file system in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
const PREFIX: &str = "tracewise-campaign-";

#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    /// Held for as long as the folder is in use.
    _lock: File,
}

impl Scratch {
    /// A new folder below `root`; those that runs before have left there are removed.
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
        let folder = root.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder).map_err(failed(&folder))?;
        let lock = File::create(lock_path(&folder)).map_err(failed(&folder))?;
        lock.lock().map_err(failed(&folder))?;
        Ok(Self { folder, _lock: lock })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Refuses to let jobs fill the disk, or write to what is none.
    pub fn check_room(&self, wanted: u64) -> Result<(), RunError> {
        if wanted == 0 {
            return Ok(());
        }
        let stat = rustix::fs::statvfs(&self.folder).map_err(|error| RunError::Io {
            what: self.folder.display().to_string(),
            source: error.into(),
        })?;
        let free = stat.f_bavail * stat.f_frsize;
        let path = self.folder.clone();
        if free / 2 < wanted {
            return Err(RunError::NoRoom { path, free, needed: wanted.saturating_mul(2) });
        }
        let is_memory = rustix::fs::statfs(&self.folder).is_ok_and(|stat| stat.f_type == TMPFS);
        if is_memory { Err(RunError::NoDisk { path }) } else { Ok(()) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn lock_path(folder: &Path) -> PathBuf {
    folder.join("lock")
}

fn is_abandoned(folder: &Path) -> bool {
    File::open(lock_path(folder)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_has_left_is_removed_and_what_is_in_use_is_not() {
        let root = tempfile::tempdir().unwrap();
        let left = root.path().join(format!("{PREFIX}0"));
        fs::create_dir(&left).unwrap();
        fs::write(lock_path(&left), "").unwrap();
        let scratch = Scratch::new(root.path()).unwrap();
        assert!(!left.exists() && scratch.folder().exists() && !is_abandoned(scratch.folder()));
        assert!(matches!(scratch.check_room(u64::MAX), Err(RunError::NoRoom { .. })));
        drop(scratch);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
