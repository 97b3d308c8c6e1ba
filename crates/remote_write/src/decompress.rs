//! Decompresses bodies of requests. The length that a body declares is read first, so that one that is too large is
//! refused early.

use std::io::Read;

use crate::wire::Cursor;

/// The largest body after decompression.
pub const MAX_DECODED: usize = 32 << 20;

/// A varint of 32 bits.
const MAX_HEADER_BYTES: usize = 5;

/// The length of the data in a block of snappy's raw format, as its header declares it; `None` if the header
/// is damaged.
///
/// Only the header is read: a decoder still has to check that the data have this length.
pub fn declared_length(snappy_block: &[u8]) -> Option<usize> {
    let header = snappy_block.get(..MAX_HEADER_BYTES).unwrap_or(snappy_block);
    let length = Cursor::new(header).varint().ok()?;
    usize::try_from(u32::try_from(length).ok()?).ok()
}

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Snappy = 1,
    Zstd = 2,
}

impl Encoding {
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Snappy),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Decompresses a body. A body that would be too large is refused before it is decompressed.
    pub fn decode(self, body: &[u8]) -> Result<Vec<u8>, String> {
        let too_large = || format!("the body is larger than {MAX_DECODED} bytes");
        match self {
            Self::Snappy => {
                let length = declared_length(body).ok_or("the body is not compressed with snappy")?;
                if length > MAX_DECODED {
                    return Err(too_large());
                }
                let decoded = snap::raw::Decoder::new().decompress_vec(body);
                decoded.map_err(|error| format!("the body is not compressed with snappy: {error}"))
            }
            Self::Zstd => {
                let wrong = |error: std::io::Error| format!("the body is not compressed with zstd: {error}");
                let decoder = zstd::stream::read::Decoder::new(body).map_err(wrong)?;
                let mut decoded = Vec::new();
                decoder.take(MAX_DECODED as u64 + 1).read_to_end(&mut decoded).map_err(wrong)?;
                if decoded.len() > MAX_DECODED { Err(too_large()) } else { Ok(decoded) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_header_alone_is_enough() {
        assert_eq!(declared_length(&[0x00]), Some(0));
        assert_eq!(declared_length(&[0xfe, 0xff, 0x7f]), Some(2_097_150));
        assert_eq!(declared_length(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some(0xffff_ffff));
    }

    #[test]
    fn a_damaged_header_declares_nothing() {
        assert_eq!(declared_length(&[]), None);
        assert_eq!(declared_length(&[0xff, 0xff]), None);
        assert_eq!(declared_length(&[0xff, 0xff, 0xff, 0xff, 0x10]), None, "more than 32 bits");
        assert_eq!(declared_length(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), None, "more than five bytes");
        assert_eq!(declared_length(&[0xff; 11]), None);
    }

    proptest! {
        #[test]
        fn the_declared_length_is_that_of_the_data(data in prop::collection::vec(any::<u8>(), 0..1000)) {
            let block = snap::raw::Encoder::new().compress_vec(&data).unwrap();
            prop_assert_eq!(declared_length(&block), Some(data.len()));
        }

        #[test]
        fn any_header_is_read_as_snap_reads_it(block in prop::collection::vec(any::<u8>(), 1..12)) {
            prop_assert_eq!(declared_length(&block), snap::raw::decompress_len(&block).ok());
        }
    }
}
