//! Reads the protobuf wire format from a byte slice, without copying and without allocating.

use std::fmt;

/// Why a message is not the protobuf it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// The message ends inside a field, or a length points beyond its end.
    Truncated,
    /// A varint does not fit in 64 bits.
    VarintTooLong,
    /// A field number is zero or larger than protobuf allows.
    FieldNumber,
    /// A wire type is undefined, or is that of a group (deprecated, and unused by Prometheus).
    UnsupportedWireType,
    /// A known field does not have the wire type of its definition.
    WrongWireType,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the message ends inside a field",
            Self::VarintTooLong => "a varint does not fit in 64 bits",
            Self::FieldNumber => "a field number is out of range",
            Self::UnsupportedWireType => "a field has an unsupported wire type",
            Self::WrongWireType => "a known field has another wire type than its definition",
        })
    }
}

impl std::error::Error for Damaged {}

/// A read position in a message. After an error the position is unspecified.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads an integer of one to ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Damaged> {
        // Almost all tags, lengths and references take one or two bytes.
        match *self.rest {
            [byte @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            [low, high @ ..0x80, ref rest @ ..] => {
                self.rest = rest;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => {
                let (value, rest) = long_varint(self.rest)?;
                self.rest = rest;
                Ok(value)
            }
        }
    }

    /// Reads eight bytes: a `double`, `fixed64` or `sfixed64`.
    #[inline]
    pub fn fixed64(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads four bytes: a `float`, `fixed32` or `sfixed32`.
    #[inline]
    pub fn fixed32(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Damaged::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    /// Reads a length and as many bytes: a string, an embedded message or a packed list.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let length = usize::try_from(self.varint()?).map_err(|_| Damaged::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Damaged::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a tag and the value after it. A caller skips an unknown field by ignoring it.
    // Always inlined, as is `Fields::next`: then no `Field` is built in memory, which halves the time.
    #[inline(always)]
    pub fn field(&mut self) -> Result<Field<'a>, Damaged> {
        let tag = u32::try_from(self.varint()?).map_err(|_| Damaged::FieldNumber)?;
        let number = tag >> 3;
        if number == 0 {
            return Err(Damaged::FieldNumber);
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.fixed64()?),
            2 => Value::Bytes(self.bytes()?),
            5 => Value::Fixed32(self.fixed32()?),
            _ => return Err(Damaged::UnsupportedWireType),
        };
        Ok(Field { number, value })
    }
}

/// Reads a varint of any length; returns it and the bytes after it.
///
/// By value and not by `&mut self`, so that the compiler keeps cursors in registers.
fn long_varint(bytes: &[u8]) -> Result<(u64, &[u8]), Damaged> {
    let mut value = 0;
    let mut bytes = bytes.iter();
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *bytes.next().ok_or(Damaged::Truncated)?;
        // The tenth byte has room for the highest bit only.
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok((value, bytes.as_slice()));
        }
    }
    Err(Damaged::VarintTooLong)
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The number of the field in the definition of the message.
    pub number: u32,
    /// The value as it was sent.
    pub value: Value<'a>,
}

/// A value, by its wire type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
}

impl<'a> Field<'a> {
    /// The value of an `int64`. Protobuf sends negative numbers in two's complement.
    #[inline]
    pub const fn int64(self) -> Result<i64, Damaged> {
        match self.value {
            Value::Varint(value) => Ok(value.cast_signed()),
            _ => Err(Damaged::WrongWireType),
        }
    }

    /// The value of a `double`.
    #[inline]
    pub const fn double(self) -> Result<f64, Damaged> {
        match self.value {
            Value::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(Damaged::WrongWireType),
        }
    }

    /// The value of a string, of bytes or of an embedded message.
    #[inline]
    pub const fn bytes(self) -> Result<&'a [u8], Damaged> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Damaged::WrongWireType),
        }
    }
}

/// The fields of a message in the order in which they were sent. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Fields<'a> {
    /// The fields of `message`.
    pub const fn new(message: &'a [u8]) -> Self {
        Self { cursor: Cursor::new(message) }
    }

    /// How many bytes have not been read yet.
    pub const fn n_left(&self) -> usize {
        self.cursor.rest.len()
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Damaged>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_empty() {
            return None;
        }
        let field = self.cursor.field();
        if field.is_err() {
            self.cursor = Cursor::new(&[]);
        }
        Some(field)
    }
}

/// The contents of every string, bytes or message field with this number.
#[inline]
pub fn repeated(message: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], Damaged>> {
    Fields::new(message).filter_map(move |field| match field {
        Ok(field) if field.number == number => Some(field.bytes()),
        Ok(_) => None,
        Err(damaged) => Some(Err(damaged)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<Field<'_>>, Damaged> {
        Fields::new(message).collect()
    }

    #[test]
    fn a_varint_takes_one_to_ten_bytes() {
        assert_eq!(Cursor::new(&[0x00]).varint(), Ok(0));
        assert_eq!(Cursor::new(&[0x7f]).varint(), Ok(127));
        assert_eq!(Cursor::new(&[0xac, 0x02]).varint(), Ok(300));
        let mut largest = [0xff; 10];
        largest[9] = 1;
        assert_eq!(Cursor::new(&largest).varint(), Ok(u64::MAX));
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_damage() {
        let mut bytes = [0xff; 11];
        assert_eq!(Cursor::new(&bytes).varint(), Err(Damaged::VarintTooLong));
        bytes[9] = 2;
        assert_eq!(Cursor::new(&bytes).varint(), Err(Damaged::VarintTooLong));
    }

    #[test]
    fn a_varint_that_does_not_end_is_truncated() {
        assert_eq!(Cursor::new(&[]).varint(), Err(Damaged::Truncated));
        assert_eq!(Cursor::new(&[0xff; 9]).varint(), Err(Damaged::Truncated));
    }

    #[test]
    fn every_supported_wire_type_is_read() {
        let message = [
            0x08, 0x96, 0x01, // 1: varint 150
            0x11, 1, 0, 0, 0, 0, 0, 0, 0x80, // 2: fixed64
            0x1a, 2, b'h', b'i', // 3: bytes
            0x25, 4, 3, 2, 1, // 4: fixed32
        ];
        let expected = [
            Field { number: 1, value: Value::Varint(150) },
            Field { number: 2, value: Value::Fixed64(0x8000_0000_0000_0001) },
            Field { number: 3, value: Value::Bytes(b"hi") },
            Field { number: 4, value: Value::Fixed32(0x0102_0304) },
        ];
        assert_eq!(fields(&message), Ok(expected.to_vec()));
    }

    #[test]
    fn groups_and_undefined_wire_types_are_damage() {
        for wire_type in [3, 4, 6, 7] {
            assert_eq!(fields(&[1 << 3 | wire_type, 0]), Err(Damaged::UnsupportedWireType));
        }
    }

    #[test]
    fn a_field_number_is_neither_zero_nor_larger_than_29_bits() {
        assert_eq!(fields(&[0x00, 0x00]), Err(Damaged::FieldNumber));
        assert_eq!(fields(&[0xf8, 0xff, 0xff, 0xff, 0x0f, 0]).unwrap()[0].number, (1 << 29) - 1);
        assert_eq!(fields(&[0x88, 0x80, 0x80, 0x80, 0x10, 0]), Err(Damaged::FieldNumber));
    }

    #[test]
    fn a_length_beyond_the_end_is_damage() {
        assert_eq!(fields(&[0x0a, 3, b'h', b'i']), Err(Damaged::Truncated));
        let mut largest = [0xff; 11];
        largest[0] = 0x0a;
        largest[10] = 1;
        assert_eq!(fields(&largest), Err(Damaged::Truncated));
    }

    #[test]
    fn the_fields_end_after_damage() {
        let mut fields = Fields::new(&[0x08, 1, 0x0b, 0x08, 1]);
        assert!(fields.next().unwrap().is_ok());
        assert_eq!(fields.next(), Some(Err(Damaged::UnsupportedWireType)));
        assert_eq!(fields.next(), None);
    }

    #[test]
    fn a_value_is_not_read_as_another_type() {
        let number = Field { number: 1, value: Value::Varint(1) };
        assert_eq!(number.int64(), Ok(1));
        assert_eq!(number.double(), Err(Damaged::WrongWireType));
        assert_eq!(number.bytes(), Err(Damaged::WrongWireType));
        assert_eq!(Field { number: 1, value: Value::Fixed32(1) }.int64(), Err(Damaged::WrongWireType));
    }

    proptest! {
        #[test]
        fn a_varint_is_read_as_prost_reads_it(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let expected = prost::decode_length_delimiter(bytes.as_slice()).ok();
            let read = Cursor::new(&bytes).varint().ok();
            prop_assert_eq!(read.and_then(|value| usize::try_from(value).ok()), expected);
        }

        #[test]
        fn a_written_varint_is_read_back(value: usize) {
            let mut bytes = Vec::new();
            prost::encode_length_delimiter(value, &mut bytes).unwrap();
            prop_assert_eq!(Cursor::new(&bytes).varint(), Ok(value as u64));
        }

        #[test]
        fn fields_of_any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Fields::new(&bytes).count() <= bytes.len());
        }
    }
}
