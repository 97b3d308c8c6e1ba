//! Lock files.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::atomic::FILE_MODE;
use crate::error::{Error, Result};

/// Opens or creates a file to be locked. Its content stays, and a symbolic link in its place is refused, so
/// that whoever can write to the directory cannot aim it at another file.
pub fn open_lock(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32)
        .open(path)
        .and_then(|file| match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(std::io::Error::other("it is not a regular file")),
        })
        .map_err(Error::io(path))
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
        assert!(open_lock(&link).is_err());
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        assert!(open_lock(&pipe).is_err());
    }
}
