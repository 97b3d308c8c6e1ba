//! Text columns come in long runs: a thread belongs to one job for minutes or hours. Here
//! they are read as runs, without touching every row.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};

/// Text as runs of equal rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextRuns {
    pub known: Vec<String>,
    /// How many rows, and which of `known` they hold, if any.
    pub runs: Vec<(usize, Option<u32>)>,
}

impl TextRuns {
    pub fn absent(n_rows: usize) -> Self {
        Self { known: Vec::new(), runs: vec![(n_rows, None)] }
    }

    pub fn push(&mut self, n_rows: usize, text: Option<&str>) {
        let number = text.map(|text| {
            let known = self.known.iter().rposition(|known| known == text);
            known.unwrap_or_else(|| {
                self.known.push(text.to_owned());
                self.known.len() - 1
            }) as u32
        });
        self.push_number(n_rows, number);
    }

    fn push_number(&mut self, n_rows: usize, text: Option<u32>) {
        match self.runs.last_mut() {
            Some((n, last)) if *last == text => *n += n_rows,
            _ => self.runs.push((n_rows, text)),
        }
    }
}

/// Reads a column chunk of optional text.
pub fn read_texts(pages: &mut dyn PageReader, n_rows: usize) -> Result<TextRuns> {
    let mut texts = TextRuns::default();
    let mut n_read = 0;
    while n_read < n_rows {
        match pages.get_next_page()? {
            None => return Err(ParquetError::EOF(format!("a column ends after {n_read} of {n_rows} rows"))),
            Some(Page::DictionaryPage { buf, num_values, .. }) => {
                let mut rest = &buf[..];
                texts.known = (0..num_values)
                    .map(|_| take_text(&mut rest))
                    .collect::<Option<_>>()
                    .ok_or_else(cut_off)?;
            }
            Some(Page::DataPage { buf, num_values, encoding, .. }) => {
                read_page(&mut texts, &buf, num_values as usize, encoding).ok_or_else(cut_off)?;
                n_read += num_values as usize;
            }
            Some(Page::DataPageV2 { .. }) => {
                return Err(ParquetError::NYI("pages of the second version are not written here".into()));
            }
        }
    }
    Ok(texts)
}

fn cut_off() -> ParquetError {
    ParquetError::EOF("a page of text cannot be decoded".into())
}

fn read_page(texts: &mut TextRuns, page: &[u8], n_rows: usize, encoding: Encoding) -> Option<()> {
    let (length, rest) = page.split_first_chunk::<4>()?;
    let (levels, mut rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let mut present = Hybrid::new(levels, 1);
    let mut left = n_rows;
    #[allow(deprecated, reason = "older writers name the same encoding differently")]
    let by_dictionary = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
    let mut numbers = if by_dictionary {
        let (width, indices) = rest.split_first().filter(|(width, _)| **width <= 32)?;
        Some(Hybrid::new(indices, u32::from(*width)))
    } else if encoding == Encoding::PLAIN {
        None
    } else {
        return None;
    };
    while left > 0 {
        let (n_here, level) = present.next_run(left)?;
        left -= n_here;
        if level == 0 {
            texts.push_number(n_here, None);
            continue;
        }
        let mut to_take = n_here;
        while to_take > 0 {
            let (n_alike, number) = match &mut numbers {
                Some(numbers) => numbers.next_run(to_take)?,
                None => {
                    texts.known.push(take_text(&mut rest)?);
                    (1, texts.known.len() as u32 - 1)
                }
            };
            texts.known.get(number as usize)?;
            texts.push_number(n_alike, Some(number));
            to_take -= n_alike;
        }
    }
    Some(())
}

fn take_text(bytes: &mut &[u8]) -> Option<String> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

/// Parquet's hybrid of repeated and bit-packed numbers, as runs.
struct Hybrid<'a> {
    bytes: &'a [u8],
    width: u32,
    /// What is left of a repeated number.
    repeated: (usize, u32),
    /// What is left of packed numbers: how many, and at which bit the next one begins.
    packed: (usize, usize, &'a [u8]),
}

impl<'a> Hybrid<'a> {
    fn new(bytes: &'a [u8], width: u32) -> Self {
        Self { bytes, width, repeated: (0, 0), packed: (0, 0, &[]) }
    }

    /// The next number and how often it comes at once, at most `most` times.
    fn next_run(&mut self, most: usize) -> Option<(usize, u32)> {
        if self.repeated.0 == 0 && self.packed.0 == 0 {
            self.open_run()?;
        }
        if self.repeated.0 > 0 {
            let n_rows = self.repeated.0.min(most);
            self.repeated.0 -= n_rows;
            return Some((n_rows, self.repeated.1));
        }
        let (n_left, at, bytes) = self.packed;
        self.packed = (n_left - 1, at + self.width as usize, bytes);
        let bit = |index: usize| bytes.get(index / 8).map(|byte| u32::from(byte >> (index % 8) & 1));
        let number =
            (0..self.width as usize).try_fold(0, |sum, index| Some(sum | bit(at + index)? << index))?;
        Some((1, number))
    }

    fn open_run(&mut self) -> Option<()> {
        let mut header = 0u64;
        for shift in (0..35).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            header |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        let count = (header >> 1) as usize;
        if header & 1 == 1 {
            let (packed, rest) = self.bytes.split_at_checked(count.checked_mul(self.width as usize)?)?;
            (self.packed, self.bytes) = ((count * 8, 0, packed), rest);
        } else {
            let (value, rest) = self.bytes.split_at_checked(self.width.div_ceil(8) as usize)?;
            let value =
                value.iter().rev().try_fold(0u32, |sum, byte| Some(sum.checked_shl(8)? | u32::from(*byte)));
            (self.repeated, self.bytes) = ((count, value?), rest);
        }
        (count > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeated_and_packed_numbers_are_told_apart() {
        // Six times 3, then eight packed numbers 0 to 7, three bits each.
        let bytes = [6 << 1, 3, 1 << 1 | 1, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let mut hybrid = Hybrid::new(&bytes, 3);
        assert_eq!(hybrid.next_run(4), Some((4, 3)));
        assert_eq!(hybrid.next_run(4), Some((2, 3)));
        let packed: Vec<_> = (0..8).map(|_| hybrid.next_run(9).unwrap()).collect();
        assert_eq!(packed, (0..8).map(|number| (1, number)).collect::<Vec<_>>());
        assert_eq!(hybrid.next_run(1), None);
    }

    proptest! {
        #[test]
        fn any_page_is_refused_or_read_without_panic(
            page in prop::collection::vec(any::<u8>(), 0..100), n_rows in 1usize..50, plain in any::<bool>(),
        ) {
            let mut texts = TextRuns { known: vec!["a".into(), "b".into()], runs: Vec::new() };
            let encoding = if plain { Encoding::PLAIN } else { Encoding::RLE_DICTIONARY };
            let _ = read_page(&mut texts, &page, n_rows, encoding);
        }
    }
}
