//! Bounds on input that somebody else wrote: bytes after decompression, compression ratio, bytes per
//! record, rows. Reading fails at the bound, with an error that names the setting.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// How far a compressed file may expand before its ratio counts: short files of equal lines compress
/// extremely well.
const RATIO_APPLIES_FROM_BYTES: u64 = 64 << 20;

/// What input may cost. Each limit is a setting in `[limits]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one file after decompression.
    pub file_bytes: u64,
    /// Decompressed bytes per compressed byte, once a file has expanded to 64 MiB.
    pub compression_ratio: u64,
    /// Bytes of one line or row.
    pub record_bytes: u64,
    /// Rows of a table that is held in memory.
    pub rows: u64,
    /// Bytes of a file that is read whole, such as JSON.
    pub document_bytes: u64,
    /// Bytes of one response of a server, after decompression.
    pub response_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 256 << 30,
            compression_ratio: 250,
            record_bytes: 16 << 20,
            rows: 10_000_000,
            document_bytes: 512 << 20,
            response_bytes: 256 << 20,
        }
    }
}

/// Input that exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} exceeds {limit}; if the input is trustworthy, raise the setting limits.{setting}")]
pub struct LimitExceeded {
    /// What is too large.
    pub what: &'static str,
    pub limit: u64,
    /// The name of the field in [`Limits`].
    pub setting: &'static str,
}

impl From<LimitExceeded> for io::Error {
    fn from(error: LimitExceeded) -> Self {
        Self::new(io::ErrorKind::FileTooLarge, error)
    }
}

impl Limits {
    /// Whether a file that is read whole may have this many bytes.
    pub fn check_document(&self, n_bytes: u64) -> Result<(), LimitExceeded> {
        let (what, limit) = ("its size in bytes", self.document_bytes);
        check(n_bytes, LimitExceeded { what, limit, setting: "document_bytes" })
    }

    /// Whether this many stored bytes may become this many in memory.
    pub fn check_expansion(&self, n_bytes: u64, stored_bytes: u64) -> Result<(), LimitExceeded> {
        if n_bytes <= RATIO_APPLIES_FROM_BYTES {
            return Ok(());
        }
        let (what, limit) = ("its compression ratio", self.compression_ratio);
        let exceeded = LimitExceeded { what, limit, setting: "compression_ratio" };
        check(n_bytes / stored_bytes.max(1), exceeded)
    }

    /// Whether a table that is held in memory may have this many rows.
    pub fn check_rows(&self, n_rows: u64) -> Result<(), LimitExceeded> {
        check(n_rows, LimitExceeded { what: "the number of rows", limit: self.rows, setting: "rows" })
    }

    /// Whether a server's response may have this many bytes.
    pub fn check_response(&self, n_bytes: u64) -> Result<(), LimitExceeded> {
        let (what, limit) = ("its response in bytes", self.response_bytes);
        check(n_bytes, LimitExceeded { what, limit, setting: "response_bytes" })
    }
}

fn check(found: u64, exceeded: LimitExceeded) -> Result<(), LimitExceeded> {
    if found <= exceeded.limit { Ok(()) } else { Err(exceeded) }
}

/// Reads a whole file, up to `limits.document_bytes`.
pub fn read(path: &Path, limits: &Limits) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let file = File::open(path)?;
        limits.check_document(file.metadata()?.len())?;
        let mut bytes = Vec::new();
        // The size of a pipe or a growing file is not known in advance.
        file.take(limits.document_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        limits.check_document(bytes.len() as u64)?;
        Ok(bytes)
    };
    read().map_err(Error::io(path))
}

/// Tells a [`Limited`] reader where records begin, also while another reader owns it.
#[derive(Debug, Clone)]
pub struct Meter {
    limits: Limits,
    record_bytes: Arc<AtomicU64>,
    n_rows: u64,
}

impl Meter {
    /// The next bytes belong to another record.
    pub fn next_record(&self) {
        self.record_bytes.store(0, Ordering::Relaxed);
    }

    /// The next bytes belong to another row of a table that is held in memory.
    pub fn next_row(&mut self) -> Result<(), LimitExceeded> {
        self.next_record();
        self.n_rows += 1;
        self.limits.check_rows(self.n_rows)
    }
}

/// A reader that fails when its limits are exceeded. Records are counted only as far as the user of its
/// [`Meter`] marks them; what is read ahead counts towards the record that is being read.
#[derive(Debug)]
pub struct Limited<R> {
    inner: R,
    meter: Meter,
    n_bytes: u64,
    /// Compressed bytes that were read so far, if there is compression.
    compressed_bytes: Option<Arc<AtomicU64>>,
}

impl<R> Limited<R> {
    pub fn new(inner: R, limits: &Limits) -> Self {
        let meter = Meter { limits: *limits, record_bytes: Arc::default(), n_rows: 0 };
        Self { inner, meter, n_bytes: 0, compressed_bytes: None }
    }

    /// Also checks the ratio to the bytes that `compressed` has counted.
    #[cfg(feature = "compressed")]
    pub(crate) fn decompressed(inner: R, limits: &Limits, compressed: Arc<AtomicU64>) -> Self {
        Self { compressed_bytes: Some(compressed), ..Self::new(inner, limits) }
    }

    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    fn count(&mut self, n_bytes: usize) -> Result<(), LimitExceeded> {
        let Limits { file_bytes, record_bytes, .. } = self.meter.limits;
        self.n_bytes += n_bytes as u64;
        let of_record = self.meter.record_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed) + n_bytes as u64;
        let (what, limit) = ("one record in bytes", record_bytes);
        check(of_record, LimitExceeded { what, limit, setting: "record_bytes" })?;
        let (what, limit) = ("its decompressed size in bytes", file_bytes);
        check(self.n_bytes, LimitExceeded { what, limit, setting: "file_bytes" })?;
        match &self.compressed_bytes {
            Some(compressed) => {
                self.meter.limits.check_expansion(self.n_bytes, compressed.load(Ordering::Relaxed))
            }
            None => Ok(()),
        }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.inner.read(buffer)?;
        self.count(n_bytes)?;
        Ok(n_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn small() -> Limits {
        Limits {
            file_bytes: 1_000_000,
            record_bytes: 10_000,
            rows: 3,
            document_bytes: 100,
            ..Limits::default()
        }
    }

    #[test]
    fn a_record_is_bounded_and_the_error_names_the_setting() {
        let line = "x".repeat(5_000) + "\n";
        let text = line.repeat(100);
        let limited = Limited::new(text.as_bytes(), &small());
        let meter = limited.meter();
        let mut reader = BufReader::with_capacity(1_000, limited);
        let mut read = String::new();
        for _ in 0..100 {
            meter.next_record();
            reader.read_line(&mut read).unwrap();
        }
        assert_eq!(read.len(), text.len());
        let endless = Limited::new(io::repeat(b'x'), &small());
        let error = BufReader::new(endless).read_line(&mut String::new()).unwrap_err();
        assert!(error.to_string().contains("limits.record_bytes"), "{error}");
    }

    #[test]
    fn a_file_is_bounded_by_its_bytes_and_rows() {
        let mut endless = Limited::new(io::repeat(b'x'), &small());
        let mut meter = endless.meter();
        let mut buffer = [0; 1_000];
        let error = loop {
            meter.next_record();
            match endless.read(&mut buffer) {
                Ok(n_bytes) => assert!(n_bytes > 0),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("limits.file_bytes"), "{error}");
        let n_rows = (0..10).take_while(|_| meter.next_row().is_ok()).count();
        assert_eq!(n_rows, 3);
    }

    #[test]
    fn a_document_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        std::fs::write(&path, "x".repeat(100)).unwrap();
        assert_eq!(read(&path, &small()).unwrap().len(), 100);
        std::fs::write(&path, "x".repeat(101)).unwrap();
        let error = read(&path, &small()).unwrap_err().to_string();
        assert!(error.contains("limits.document_bytes"), "{error}");
        assert!(read(Path::new("/dev/zero"), &small()).is_err());
    }
}
