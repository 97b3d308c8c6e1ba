//! A collector: the open files of the node, from `/proc/sys/fs/file-nr`.

use std::io;
use std::path::{Path, PathBuf};

use agent::exposition::{Family, Kind, Sink};
use agent::kernel::{Buffer, lines};
use workload::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    pub n_open: u64,
    pub limit: u64,
}

#[derive(Debug, Clone)]
pub struct OpenFilesCollector {
    path: PathBuf,
    buffer: Buffer,
}

impl OpenFilesCollector {
    /// The directory is an argument, so that a test can replace `/proc`.
    pub fn new(procfs: &Path) -> Self {
        Self { path: procfs.join("sys/fs/file-nr"), buffer: Buffer::default() }
    }

    pub fn read(&mut self) -> io::Result<OpenFiles> {
        let garbled = || io::Error::new(io::ErrorKind::InvalidData, "it has no three numbers");
        parse(self.buffer.read(&self.path)?).ok_or_else(garbled)
    }
}

/// `1504 0 9223372036854775807`: open, unused (always 0), limit. A line that was cut short is no value.
pub fn parse(text: &str) -> Option<OpenFiles> {
    let mut fields = lines(text).next()?.split_ascii_whitespace();
    let mut next = || fields.next()?.parse().ok();
    let (n_open, _unused, limit): (u64, u64, u64) = (next()?, next()?, next()?);
    Some(OpenFiles { n_open, limit })
}

pub fn expose(files: &OpenFiles, time: Timestamp, sink: &mut impl Sink) {
    for (name, value, help) in [
        ("tracewise_open_files", files.n_open, "Files that are open on the node."),
        ("tracewise_open_files_limit", files.limit, "Files that may be open on the node."),
    ] {
        sink.family(Family { name, kind: Kind::Gauge, help });
        sink.sample(&[], value as f64, Some(time));
    }
}

#[cfg(test)]
mod tests {
    use agent::exposition::{Format, Page};

    use super::*;

    #[test]
    fn open_files_are_read_and_exposed() {
        let procfs = tempfile::tempdir().unwrap();
        let mut collector = OpenFilesCollector::new(procfs.path());
        assert!(collector.read().is_err(), "the file is missing");
        std::fs::create_dir_all(procfs.path().join("sys/fs")).unwrap();
        std::fs::write(procfs.path().join("sys/fs/file-nr"), "1504\t0\t65536\n").unwrap();
        let files = collector.read().unwrap();
        assert_eq!(files, OpenFiles { n_open: 1504, limit: 65_536 });
        let mut page = Page::new(Format::Text, 0);
        expose(&files, Timestamp(1_000), &mut page);
        assert!(page.finish().contains("tracewise_open_files 1504 1000\n"));
    }

    #[test]
    fn a_garbled_file_is_no_value() {
        for bad in ["", "1504 0 655", "1504 0\n", "a b c\n"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
