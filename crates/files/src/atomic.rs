//! Files and directories that appear whole or not at all, and survive a power loss once they are there.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::error::{Error, Result};

const BUFFER_BYTES: usize = 1 << 18;
/// Files name users and jobs, so they are for their owner and group; the umask may take more away.
pub const FILE_MODE: u32 = 0o640;
/// The mode of directories, for the same reason.
pub const DIR_MODE: u32 = 0o750;

/// A file under a temporary name in its directory. [`AtomicFile::commit`] gives it its own name;
/// without it, nothing is left.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
}

impl AtomicFile {
    pub fn create(path: &Path) -> Result<Self> {
        let file = tempfile::Builder::new()
            .prefix(".tracewise-")
            .permissions(Permissions::from_mode(FILE_MODE))
            .tempfile_in(dir_of(path))
            .map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(BUFFER_BYTES, file) })
    }

    /// A second handle to the temporary file, for writers that want to own one. Write through this
    /// handle or through the [`AtomicFile`], not through both.
    pub fn handle(&self) -> Result<File> {
        self.file.get_ref().as_file().try_clone().map_err(Error::io(&self.path))
    }

    /// Writes everything to disk, then replaces whatever has the name.
    pub fn commit(self) -> Result<()> {
        let path = self.path;
        let file = self.file.into_inner().map_err(|error| Error::io(&path)(error.into_error()))?;
        file.as_file().sync_all().map_err(Error::io(&path))?;
        file.persist(&path).map_err(|error| Error::io(&path)(error.error))?;
        sync_dir(dir_of(&path))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a whole file atomically.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(Error::io(path))?;
    file.commit()
}

/// Puts the directory `new` in place of `target`, which may exist, by exchanging their names: at every
/// moment there is a whole directory named `target`. The replaced directory is removed.
///
/// A file system that cannot exchange names, such as NFS, needs two renames. There the name is missing for
/// a moment, and a crash in that moment leaves the old directory under the name of `new` with
/// `.replaced` appended.
pub fn replace_dir(new: &Path, target: &Path) -> Result<()> {
    match renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE) {
        Ok(()) => {
            sync_dir(dir_of(target))?;
            let _ = fs::remove_dir_all(new);
            Ok(())
        }
        Err(Errno::NOENT) => {
            fs::rename(new, target).map_err(Error::io(target))?;
            sync_dir(dir_of(target))
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => replace_in_two_steps(new, target),
        Err(error) => Err(Error::io(target)(error.into())),
    }
}

fn replace_in_two_steps(new: &Path, target: &Path) -> Result<()> {
    let mut replaced = new.as_os_str().to_owned();
    replaced.push(".replaced");
    let replaced = PathBuf::from(replaced);
    match fs::rename(target, &replaced) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(target)(error)),
        _ => {}
    }
    if let Err(error) = fs::rename(new, target) {
        // The old directory goes back to its place, if there was one.
        let _ = fs::rename(&replaced, target);
        return Err(Error::io(target)(error));
    }
    sync_dir(dir_of(target))?;
    // The replacement is complete, whether or not the old directory can be removed.
    let _ = fs::remove_dir_all(&replaced);
    Ok(())
}

/// Creates a file for writing, with [`FILE_MODE`]. Whatever has the name already, also a link, is refused.
pub fn create_new(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).map_err(Error::io(path))
}

/// Creates a directory and its parents, with [`DIR_MODE`], so that they survive a power loss.
pub fn create_dirs(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let Some(parent) = dir.parent() else { return Ok(()) };
    if parent.as_os_str().is_empty() {
        return create_dir(dir, Path::new("."));
    }
    create_dirs(parent)?;
    create_dir(dir, parent)
}

fn create_dir(dir: &Path, parent: &Path) -> Result<()> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::io(dir)(error)),
        _ => sync_dir(parent),
    }
}

/// Makes the names in a directory survive a power loss.
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io(dir))
}

fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_committed_and_leaves_nothing_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"one").unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        write(&path, b"two").unwrap();
        write(&path, b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7137, 0, "{mode:o}");
    }

    #[test]
    fn a_directory_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (new, target) = (dir.path().join("new"), dir.path().join("target"));
        for text in ["first", "second", "third"] {
            fs::create_dir(&new).unwrap();
            fs::write(new.join("file"), text).unwrap();
            if text == "third" {
                replace_in_two_steps(&new, &target).unwrap();
            } else {
                replace_dir(&new, &target).unwrap();
            }
            assert_eq!(fs::read_to_string(target.join("file")).unwrap(), text);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
