//! Input that may be compressed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::{Error, Result};

const BUFFER_BYTES: usize = 1 << 16;

/// Opens a file; gzip and zstd are recognised by their first bytes and decompressed.
pub fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(Error::io(path))?);
    let start = file.fill_buf().map_err(Error::io(path))?;
    Ok(match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::Decoder::with_buffer(file).map_err(Error::io(path))?),
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        _ => Box::new(file),
    })
}
