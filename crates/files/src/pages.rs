//! How far the pages of a Parquet column expand. Their headers are read before anything is decompressed: a page
//! can ask for 2 GiB in a few bytes.

use std::io;

use crate::limited::Limits;

/// Bytes in which nearly every header fits, and in which every header has to fit.
const USUAL_HEADER: usize = 4 * 1024;
const LARGEST_HEADER: usize = 1 << 20;

/// Checks the pages of a column that lies at `start` and is `length` bytes long. `read_at` fills a buffer as far as the
/// file goes.
pub fn check_pages(
    read_at: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    start: u64,
    length: u64,
    limits: &Limits,
) -> io::Result<()> {
    let mut buffer = vec![0; USUAL_HEADER];
    let mut expanded = 0u64;
    let (mut at, end) = (start, start.saturating_add(length));
    while at < end {
        let n_read = read_at(at, &mut buffer)?;
        let header = match PageHeader::parse(&buffer[..n_read]) {
            None if buffer.len() < LARGEST_HEADER => {
                buffer.resize(LARGEST_HEADER, 0);
                continue;
            }
            header => header.ok_or(io::ErrorKind::InvalidData)?,
        };
        expanded = expanded.saturating_add(header.expanded);
        limits.check_expansion(expanded, length)?;
        at = at.saturating_add(header.n_bytes as u64).saturating_add(header.stored);
    }
    if at > end {
        // Another reader may take what follows for a page.
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(())
}

struct PageHeader {
    /// Bytes of the page after decompression.
    expanded: u64,
    /// Bytes of the page in the file, without the header.
    stored: u64,
    /// Bytes of the header.
    n_bytes: usize,
}

/// What a field of a page header holds, as Thrift numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    I32,
    I64,
    Binary,
    Struct(&'static [(i64, Kind)]),
}

/// The fields of a page header. Readers trust that they have these types, so a header with others is refused.
static PAGE: [(i64, Kind); 8] = [
    (1, Kind::I32),
    (EXPANDED, Kind::I32),
    (STORED, Kind::I32),
    (4, Kind::I32),
    (5, Kind::Struct(&DATA_PAGE)),
    (6, Kind::Struct(&[])),
    (7, Kind::Struct(&DICTIONARY_PAGE)),
    (8, Kind::Struct(&DATA_PAGE_V2)),
];
const EXPANDED: i64 = 2;
const STORED: i64 = 3;
static DATA_PAGE: [(i64, Kind); 5] =
    [(1, Kind::I32), (2, Kind::I32), (3, Kind::I32), (4, Kind::I32), (5, Kind::Struct(&STATISTICS))];
static DICTIONARY_PAGE: [(i64, Kind); 3] = [(1, Kind::I32), (2, Kind::I32), (3, Kind::Bool)];
static DATA_PAGE_V2: [(i64, Kind); 8] = [
    (1, Kind::I32),
    (2, Kind::I32),
    (3, Kind::I32),
    (4, Kind::I32),
    (5, Kind::I32),
    (6, Kind::I32),
    (7, Kind::Bool),
    (8, Kind::Struct(&STATISTICS)),
];
static STATISTICS: [(i64, Kind); 8] = [
    (1, Kind::Binary),
    (2, Kind::Binary),
    (3, Kind::I64),
    (4, Kind::I64),
    (5, Kind::Binary),
    (6, Kind::Binary),
    (7, Kind::Bool),
    (8, Kind::Bool),
];

impl PageHeader {
    /// Reads Thrift's compact protocol; none if it is cut off or makes no sense.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor { bytes, at: 0 };
        let (mut expanded, mut stored) = (None, None);
        cursor.structure(&PAGE, &mut |number, value| {
            let size = match number {
                EXPANDED => &mut expanded,
                STORED => &mut stored,
                _ => return Some(()),
            };
            // A field that comes twice could be read as either.
            let is_first = size.replace(u64::try_from(value).ok()?).is_none();
            is_first.then_some(())
        })?;
        Some(Self { expanded: expanded?, stored: stored?, n_bytes: cursor.at })
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at)?;
        self.at += 1;
        Some(*byte)
    }

    fn forward(&mut self, n_bytes: u64) -> Option<()> {
        let to = self.at.checked_add(usize::try_from(n_bytes).ok()?)?;
        self.at = to;
        (to <= self.bytes.len()).then_some(())
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The type of the next field, whose number is counted on from the previous one; `Some(None)` at the end.
    fn field(&mut self, number: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *number = match byte >> 4 {
            0 => self.signed()?,
            step => number.checked_add(i64::from(step))?,
        };
        Some(Some(byte & 0x0f))
    }

    /// Reads a structure of the given fields; others may be there if they are not lists. `visit` gets the
    /// integers of this structure.
    fn structure(
        &mut self,
        fields: &[(i64, Kind)],
        visit: &mut dyn FnMut(i64, i64) -> Option<()>,
    ) -> Option<()> {
        let mut number = 0;
        while let Some(kind) = self.field(&mut number)? {
            let known = fields.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind);
            match (kind, known) {
                (1 | 2, None | Some(Kind::Bool)) => {}
                (3, None) => self.forward(1)?,
                (5, None | Some(Kind::I32)) => visit(number, self.signed()?)?,
                (4, None) | (6, None | Some(Kind::I64)) => drop(self.unsigned()?),
                (7, None) => self.forward(8)?,
                (8, None | Some(Kind::Binary)) => {
                    let length = self.unsigned()?;
                    self.forward(length)?;
                }
                (12, Some(Kind::Struct(fields))) => self.structure(fields, &mut |_, _| Some(()))?,
                _ => return None,
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page header: type, sizes, and a structure that is skipped.
    fn page(expanded: u64, stored: u64) -> Vec<u8> {
        let varint = |number: u64| {
            let mut rest = number << 1;
            let mut bytes = Vec::new();
            while rest >= 0x80 {
                bytes.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
            bytes
        };
        let mut bytes = vec![0x15, 0x00, 0x15];
        bytes.extend(varint(expanded));
        bytes.push(0x15);
        bytes.extend(varint(stored));
        // Field 5, a data page: a count, three encodings, statistics with a text.
        let counts = [0x2c, 0x15, 8, 0x15, 0, 0x15, 0, 0x15, 0];
        bytes.extend(counts.into_iter().chain([0x1c, 0x18, 2, b'a', b'b', 0, 0, 0]));
        bytes.extend(vec![0; stored as usize]);
        bytes
    }

    fn check(bytes: &[u8]) -> io::Result<()> {
        let read_at = |at: u64, buffer: &mut [u8]| {
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let n_bytes = rest.len().min(buffer.len());
            buffer[..n_bytes].copy_from_slice(&rest[..n_bytes]);
            Ok(n_bytes)
        };
        check_pages(read_at, 0, bytes.len() as u64, &Limits::default())
    }

    #[test]
    fn pages_that_expand_too_far_are_refused_by_their_headers() {
        check(&[page(1_000, 200), page(10 << 20, 5_000)].concat()).unwrap();
        let error = check(&[page(1_000, 200), page(2_000_000_000, 5_000)].concat()).unwrap_err().to_string();
        assert!(error.contains("limits.compression_ratio"), "{error}");
        let many = page(1 << 20, 10).repeat(100);
        assert!(check(&many).unwrap_err().to_string().contains("limits.compression_ratio"));
    }

    #[test]
    fn a_header_that_makes_no_sense_is_refused() {
        let sound = page(1_000, 0);
        for length in 1..sound.len() {
            assert!(check(&sound[..length]).is_err(), "{length}");
        }
        // A list, a text in place of a number, a size that comes twice, a page that leaves its column.
        let sizes = [0x15, 0, 0x15, 2, 0x15, 0];
        for rest in [&[0x19, 0x21, 1, 2, 0][..], &[0x18, 1, b'a', 0], &[0x05, 4, 8, 0], &[0x05, 6, 0, 0]] {
            assert!(check(&[&sizes, rest].concat()).is_err(), "{rest:?}");
        }
        assert!(check(&[0x15, 0, 0x15, 2, 0x15, 20, 0]).is_err());
        for bytes in [&[0xff; 64][..], &[0x1c; 4_096], &[0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(check(bytes).is_err());
        }
    }
}
