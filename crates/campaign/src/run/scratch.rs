//! The directory in which jobs write. It is removed at the end of a run, also after an error; the next run
//! removes what a crash has left.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tempfile::TempDir;

use super::RunError;

/// The type that `statfs` reports for a file system in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
const PREFIX: &str = "tracewise-campaign-";
/// Jobs write, and run a program that is compiled there.
const OWNER_ONLY: u32 = 0o700;

#[derive(Debug)]
pub struct Scratch {
    /// Has a random name, so that nobody can prepare it in a place where everyone may write.
    directory: TempDir,
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
        files::create_dirs(root).map_err(|error| failed(root)(error.into_parts().1))?;
        for entry in fs::read_dir(root).map_err(failed(root))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(OWNER_ONLY))
            .tempdir_in(root)
            .map_err(failed(root))?;
        let path = lock_path(directory.path());
        let lock = File::create_new(&path).map_err(failed(&path))?;
        lock.lock().map_err(failed(&path))?;
        Ok(Self { directory, _lock: lock })
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Fails if jobs could fill the disk, or would write to memory.
    pub fn check_room(&self, wanted: u64) -> Result<(), RunError> {
        if wanted == 0 {
            return Ok(());
        }
        let path = self.directory().to_owned();
        let stat = rustix::fs::statvfs(&path)
            .map_err(|error| RunError::Io { what: path.display().to_string(), source: error.into() })?;
        let free = stat.f_bavail * stat.f_frsize;
        if free / 2 < wanted {
            return Err(RunError::NoRoom { path, free, needed: wanted.saturating_mul(2) });
        }
        let is_memory = rustix::fs::statfs(&path).is_ok_and(|stat| stat.f_type == TMPFS);
        if is_memory { Err(RunError::NoDisk { path }) } else { Ok(()) }
    }
}

fn lock_path(directory: &Path) -> PathBuf {
    directory.join("lock")
}

/// Whether a run of this user has left the directory. What others made, links and pipes are none of that.
fn is_abandoned(directory: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let is_ours = fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir() && found.uid() == user);
    let lock = || {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(lock_path(directory))
    };
    let is_free = |lock: File| {
        lock.metadata().is_ok_and(|found| found.is_file() && found.uid() == user) && lock.try_lock().is_ok()
    };
    is_ours && lock().is_ok_and(is_free)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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

    #[test]
    fn pipes_and_links_in_the_scratch_space_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(lock_path(elsewhere.path()), "").unwrap();
        let entry = |name: &str| root.path().join(format!("{PREFIX}{name}"));
        let make_pipe = |path: &Path| {
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        };
        make_pipe(&entry("pipe"));
        symlink(elsewhere.path(), entry("link")).unwrap();
        for name in ["pipe-inside", "link-inside"] {
            fs::create_dir(entry(name)).unwrap();
        }
        make_pipe(&lock_path(&entry("pipe-inside")));
        symlink(lock_path(elsewhere.path()), lock_path(&entry("link-inside"))).unwrap();
        fs::create_dir(entry("foreign")).unwrap();
        fs::write(lock_path(&entry("foreign")), "").unwrap();
        // Only root can give a directory away; for others it is left out.
        let somebody = Some(rustix::process::Uid::from_raw(12_345));
        if rustix::fs::chown(entry("foreign"), somebody, None).is_err() {
            fs::remove_file(lock_path(&entry("foreign"))).unwrap();
        }
        // Whoever can guess a name can make it first.
        let guess = entry(&std::process::id().to_string());
        fs::create_dir(&guess).unwrap();
        let scratch = Scratch::new(root.path()).unwrap();
        assert!(scratch.directory() != guess);
        let mode = fs::metadata(scratch.directory()).unwrap().mode();
        assert_eq!(mode & 0o777, OWNER_ONLY, "{mode:o}");
        drop(scratch);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 6);
        assert!(lock_path(elsewhere.path()).exists());
    }
}
