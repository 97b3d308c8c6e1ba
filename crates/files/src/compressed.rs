//! Input that may be compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::limited::{Limited, Limits};

const BUFFER_BYTES: usize = 1 << 16;
/// The largest window of a zstd stream, as a power of two: what the `zstd` program accepts by default.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Memory for decompressing xz, in KiB. `xz -9` needs 65 MiB.
const XZ_MEMORY_KIB: u32 = 160 << 10;

/// Opens a file; gzip, xz and zstd are recognised by their first bytes and decompressed.
pub fn open(path: &Path, limits: &Limits) -> Result<Limited<Box<dyn Read + Send>>> {
    let n_bytes = Arc::new(AtomicU64::new(0));
    let file = Counted { inner: File::open(path).map_err(Error::io(path))?, n_bytes: Arc::clone(&n_bytes) };
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let start = file.fill_buf().map_err(Error::io(path))?;
    Ok(match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut decoder = zstd::Decoder::with_buffer(file).map_err(Error::io(path))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(Error::io(path))?;
            Limited::decompressed(Box::new(decoder), limits, n_bytes)
        }
        [0x1f, 0x8b, ..] => {
            let decoder = flate2::bufread::MultiGzDecoder::new(file);
            Limited::decompressed(Box::new(decoder), limits, n_bytes)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let decoder = lzma_rust2::XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB);
            Limited::decompressed(Box::new(decoder), limits, n_bytes)
        }
        _ => Limited::new(Box::new(file), limits),
    })
}

/// Counts what is read through it.
struct Counted<R> {
    inner: R,
    n_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.inner.read(buffer)?;
        self.n_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed);
        Ok(n_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Reads a file to its end in records of 1 MB and returns how much of it could be read.
    fn expand(path: &Path) -> (u64, io::Result<()>) {
        let mut file = open(path, &Limits::default()).unwrap();
        let meter = file.meter();
        let mut buffer = vec![0; 1 << 20];
        let mut n_bytes = 0;
        loop {
            meter.next_record();
            match file.read(&mut buffer) {
                Ok(0) => return (n_bytes, Ok(())),
                Ok(n_read) => n_bytes += n_read as u64,
                Err(error) => return (n_bytes, Err(error)),
            }
        }
    }

    #[test]
    fn a_compression_bomb_is_refused_early() {
        let dir = tempfile::tempdir().unwrap();
        let zeros = vec![0; 1 << 20];
        let gzip = dir.path().join("bomb.gz");
        let mut encoder =
            flate2::write::GzEncoder::new(File::create(&gzip).unwrap(), flate2::Compression::best());
        (0..200).for_each(|_| encoder.write_all(&zeros).unwrap());
        encoder.finish().unwrap();
        let zstd = dir.path().join("bomb.zst");
        let mut encoder = zstd::Encoder::new(File::create(&zstd).unwrap(), 3).unwrap();
        (0..200).for_each(|_| encoder.write_all(&zeros).unwrap());
        encoder.finish().unwrap();
        let xz = dir.path().join("bomb.xz");
        let bytes: Vec<u8> = (0..200).flat_map(|_| &zeros).copied().collect();
        std::fs::write(&xz, xz_of(&bytes)).unwrap();
        for path in [gzip, zstd, xz] {
            let (n_bytes, outcome) = expand(&path);
            assert!(n_bytes < 100 << 20, "{n_bytes}");
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("limits.compression_ratio"), "{error}");
        }
    }

    fn xz_of(bytes: &[u8]) -> Vec<u8> {
        let options = lzma_rust2::XzOptions::with_preset(0);
        let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn xz_is_decompressed_and_damage_or_a_huge_dictionary_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.xz");
        let text: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut found = Vec::new();
            open(&path, &Limits::default()).unwrap().read_to_end(&mut found).map(|_| found)
        };
        let whole = xz_of(&text);
        assert_eq!(read(&whole).unwrap(), text);
        // Streams may follow each other.
        assert_eq!(read(&[xz_of(b"one, "), xz_of(b"two")].concat()).unwrap(), b"one, two");
        assert!(read(&whole[..whole.len() / 2]).is_err());
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        assert!(read(&flipped).is_err());
        // The header of the first block: its size, flags, and LZMA2 with a dictionary of 4 GiB.
        let mut huge = whole;
        assert_eq!(huge[14..16], [0x21, 1]);
        huge[16] = 40;
        let length = (usize::from(huge[12]) + 1) * 4;
        let checksum = crc32fast::hash(&huge[12..12 + length - 4]);
        huge[12 + length - 4..12 + length].copy_from_slice(&checksum.to_le_bytes());
        assert!(read(&huge).unwrap_err().to_string().contains("mem_limit"));
    }

    #[test]
    fn small_files_may_compress_as_well_as_they_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zeros.zst");
        let mut encoder = zstd::Encoder::new(File::create(&path).unwrap(), 3).unwrap();
        encoder.write_all(&vec![0; 32 << 20]).unwrap();
        encoder.finish().unwrap();
        let (n_bytes, outcome) = expand(&path);
        outcome.unwrap();
        assert_eq!(n_bytes, 32 << 20);
    }
}
