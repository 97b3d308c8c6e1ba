//! Files that tasks write beside their logs. They may be as large as a task likes, and their names come from a log.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes that are read of the beginning and of the end of a file. Kickstart keeps 256 kB of what a task prints.
const MAX_BYTES_PER_END: u64 = 8 << 20;

/// What is read of a file.
pub struct RecordFile {
    /// Whole lines.
    pub text: String,
    /// Whether nothing is left out between the beginning and the end.
    pub is_whole: bool,
}

/// The path of a file in a directory; `None` if the name is not a plain file name.
pub fn inside(directory: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = Path::new(name).file_name().is_some_and(|plain| plain == name);
    is_plain.then(|| directory.join(name))
}

/// Reads a regular file, or the beginning and the end of a long one; `None` if there is no such file.
pub fn read(path: &Path) -> Result<Option<RecordFile>> {
    // Opening a pipe that nobody writes to would wait.
    if !path.is_file() {
        return Ok(None);
    }
    let text = || -> io::Result<RecordFile> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let is_whole = length <= 2 * MAX_BYTES_PER_END;
        let mut bytes = Vec::new();
        if is_whole {
            file.take(2 * MAX_BYTES_PER_END).read_to_end(&mut bytes)?;
        } else {
            file.by_ref().take(MAX_BYTES_PER_END).read_to_end(&mut bytes)?;
            let end_of_line = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            bytes.truncate(end_of_line);
            let mut end = Vec::new();
            file.seek(SeekFrom::Start(length - MAX_BYTES_PER_END))?;
            file.take(MAX_BYTES_PER_END).read_to_end(&mut end)?;
            let start_of_line = end.iter().position(|byte| *byte == b'\n').map_or(end.len(), |at| at + 1);
            bytes.extend_from_slice(&end[start_of_line..]);
        }
        Ok(RecordFile { text: String::from_utf8_lossy(&bytes).into_owned(), is_whole })
    };
    text().map(Some).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_plain_names_stay_in_the_directory() {
        let directory = Path::new("/runs");
        assert_eq!(inside(directory, "a.out.000"), Some("/runs/a.out.000".into()));
        for name in ["/etc/a.out.000", "../a.out.000", "b/a.out.000", "..", ".", "", "a/"] {
            assert_eq!(inside(directory, name), None, "{name}");
        }
    }

    #[test]
    fn a_long_file_is_read_at_both_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.out.000");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"first\n").unwrap();
        // A hole costs no disk; a terabyte could not be read whole.
        file.seek(SeekFrom::Start(1 << 40)).unwrap();
        file.write_all(b"\nlast\n").unwrap();
        let found = read(&path).unwrap().unwrap();
        assert!(!found.is_whole);
        assert_eq!(found.text, "first\nlast\n");
        std::fs::write(&path, "short").unwrap();
        let found = read(&path).unwrap().unwrap();
        assert!(found.is_whole && found.text == "short");
        assert!(
            read(directory.path()).unwrap().is_none() && read(&directory.path().join("b")).unwrap().is_none()
        );
    }
}
