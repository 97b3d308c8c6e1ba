//! Reads the length that a compressed body declares, so that a body too large is refused early.

use crate::remote_write::wire::Cursor;

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
