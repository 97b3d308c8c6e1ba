//! A disk without room, for real: a small file system in memory.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of a few megabytes, unmounted when dropped.
pub struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` if this machine does not let tests mount file systems.
    pub fn mount(kilobytes: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={kilobytes}k");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { folder });
        }
        crate::skip("kernel: a tmpfs cannot be mounted here");
        None
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Takes all the room but `kilobytes`.
    pub fn fill(&self, kilobytes: usize) -> PathBuf {
        let (filler, spare) = (self.path().join("filler"), self.path().join("spare"));
        std::fs::write(&spare, vec![1; kilobytes << 10]).unwrap();
        let mut file = std::fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 4_096]).is_ok() {}
        std::fs::remove_file(spare).unwrap();
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
