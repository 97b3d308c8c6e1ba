//! Lock files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::atomic::FILE_MODE;
use crate::error::{Error, Result};

/// Opens or creates a file to be locked. Its content stays, and a symbolic link in its place is refused, so
/// that whoever can write to the directory cannot aim it at another file.
pub fn open_lock(path: &Path) -> Result<File> {
    open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
        .map_err(Error::io(path))
}

/// Opens a file to be locked, if it is there, the same way.
pub fn open_existing_lock(path: &Path) -> Result<Option<File>> {
    match open(path, OpenOptions::new().read(true)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path)(error)),
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Opening a pipe would wait for its other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.mode(FILE_MODE).custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_lock_keeps_content_and_refuses_links_and_pipes() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "secret").unwrap();
        open_lock(&victim).unwrap().lock().unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
        let link = dir.path().join("lock");
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        for path in [&link, &pipe] {
            assert!(open_lock(path).is_err() && open_existing_lock(path).is_err());
        }
        assert!(open_existing_lock(&dir.path().join("missing")).unwrap().is_none());
    }
}
