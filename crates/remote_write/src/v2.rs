//! Decodes `io.prometheus.write.v2.Request`, the message of remote write 2.0 (2.0-rc.4).
//!
//! Labels are references to a table of symbols, so each series is checked against the table before it is
//! yielded. A series that breaks a rule of the specification is refused, the others are not.

use std::cmp::Ordering;
use std::fmt;

use crate::series::{Label, Sample, TimeSeries};
use crate::wire::{Cursor, Damaged, Field, Fields, Value, repeated};

mod request {
    pub const SYMBOLS: u32 = 4;
    pub const TIMESERIES: u32 = 5;
}

mod timeseries {
    pub const LABELS_REFS: u32 = 1;
    pub const SAMPLES: u32 = 2;
    pub const HISTOGRAMS: u32 = 3;
    pub const EXEMPLARS: u32 = 4;
}

/// The largest table of symbols that is accepted. Two bytes of a request can become an entry of 16 bytes, so
/// a limit on the body alone would allow a table of eight times that size.
pub const MAX_SYMBOLS: usize = 1 << 20;

/// The longest label name that is accepted. Labels are references, so a small request could otherwise have
/// the same long names compared for each of its many series.
pub const MAX_NAME_BYTES: usize = 1024;

/// Why a whole request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The request is not valid protobuf.
    Damaged(Damaged),
    /// There are no symbols, or the first is not the empty string. A 1.0 request fails like this.
    FirstSymbol,
    /// There are more than [`MAX_SYMBOLS`] symbols.
    TooManySymbols,
}

impl From<Damaged> for RequestError {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(damaged) => damaged.fmt(f),
            Self::FirstSymbol => f.write_str("the first symbol is not the empty string"),
            Self::TooManySymbols => write!(f, "there are more than {MAX_SYMBOLS} symbols"),
        }
    }
}

impl std::error::Error for RequestError {}

/// Why one series is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesError {
    /// The series is not valid protobuf.
    Damaged(Damaged),
    /// The last label has a name but no value.
    OddReferences,
    /// A label refers to a symbol that does not exist.
    ReferenceOutOfRange(u64),
    /// A label has an empty name.
    EmptyName,
    /// A label name is longer than [`MAX_NAME_BYTES`].
    NameTooLong,
    /// Two labels have the same name.
    DuplicateName,
    /// The labels are not sorted by name.
    UnsortedNames,
    /// The series has samples and histograms.
    SamplesAndHistograms,
}

impl From<Damaged> for SeriesError {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

impl fmt::Display for SeriesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(damaged) => damaged.fmt(f),
            Self::OddReferences => f.write_str("the number of label references is odd"),
            Self::ReferenceOutOfRange(reference) => write!(f, "label reference {reference} is out of range"),
            Self::EmptyName => f.write_str("a label name is empty"),
            Self::NameTooLong => write!(f, "a label name is longer than {MAX_NAME_BYTES} bytes"),
            Self::DuplicateName => f.write_str("a label name is repeated"),
            Self::UnsortedNames => f.write_str("the labels are not sorted by name"),
            Self::SamplesAndHistograms => f.write_str("the series has samples and histograms"),
        }
    }
}

impl std::error::Error for SeriesError {}

/// A decompressed request with its table of symbols.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    body: &'a [u8],
    symbols: Symbols<'a>,
}

impl<'a> Request<'a> {
    /// Reads the symbols of a request into `symbols`, the only memory that decoding needs.
    pub fn parse<'b: 'a>(body: &'b [u8], symbols: &'a mut Vec<&'b [u8]>) -> Result<Self, RequestError> {
        symbols.clear();
        for field in Fields::new(body) {
            let field = field?;
            match field.number {
                request::SYMBOLS if symbols.len() == MAX_SYMBOLS => return Err(RequestError::TooManySymbols),
                request::SYMBOLS => symbols.push(field.bytes()?),
                request::TIMESERIES => _ = field.bytes()?,
                _ => {}
            }
        }
        match symbols.first() {
            Some([]) => Ok(Self { body, symbols: Symbols(symbols) }),
            _ => Err(RequestError::FirstSymbol),
        }
    }

    /// The series of the request. An error concerns one series: the iterator goes on with the next.
    pub fn series(&self) -> impl Iterator<Item = Result<Series<'a>, SeriesError>> {
        let symbols = self.symbols;
        repeated(self.body, request::TIMESERIES).map(move |message| Series::check(message?, symbols))
    }
}

/// The strings of a request, to which its labels refer.
#[derive(Clone, Copy, Debug)]
struct Symbols<'a>(&'a [&'a [u8]]);

impl<'a> Symbols<'a> {
    #[inline]
    fn get(self, reference: u64) -> Result<&'a [u8], SeriesError> {
        let symbol = usize::try_from(reference).ok().and_then(|index| self.0.get(index));
        symbol.copied().ok_or(SeriesError::ReferenceOutOfRange(reference))
    }
}

/// One series of a request that obeys the rules of [`SeriesError`]: its iterators yield no errors.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    message: &'a [u8],
    symbols: Symbols<'a>,
    n_samples: usize,
    n_histograms: usize,
    n_exemplars: usize,
}

impl<'a> Series<'a> {
    fn check(message: &'a [u8], symbols: Symbols<'a>) -> Result<Self, SeriesError> {
        let mut series = Self { message, symbols, n_samples: 0, n_histograms: 0, n_exemplars: 0 };
        for field in Fields::new(message) {
            let field = field?;
            match field.number {
                timeseries::SAMPLES => {
                    sample(field.bytes()?)?;
                    series.n_samples += 1;
                }
                timeseries::HISTOGRAMS => {
                    field.bytes()?;
                    series.n_histograms += 1;
                }
                timeseries::EXEMPLARS => {
                    field.bytes()?;
                    series.n_exemplars += 1;
                }
                _ => {}
            }
        }
        series.check_labels()?;
        if series.n_samples > 0 && series.n_histograms > 0 {
            return Err(SeriesError::SamplesAndHistograms);
        }
        Ok(series)
    }

    fn check_labels(&self) -> Result<(), SeriesError> {
        let mut previous: &[u8] = &[];
        let mut is_name = false;
        for reference in References::new(self.message) {
            let symbol = self.symbols.get(reference?)?;
            is_name = !is_name;
            if is_name {
                check_name(symbol, previous)?;
                previous = symbol;
            }
        }
        if is_name { Err(SeriesError::OddReferences) } else { Ok(()) }
    }
}

#[inline]
fn check_name(name: &[u8], previous: &[u8]) -> Result<(), SeriesError> {
    match name.len() {
        0 => return Err(SeriesError::EmptyName),
        1..=MAX_NAME_BYTES => {}
        _ => return Err(SeriesError::NameTooLong),
    }
    // The first bytes of neighbours mostly differ: comparing them first saves a call of memcmp.
    match previous.first().cmp(&name.first()).then_with(|| previous.cmp(name)) {
        Ordering::Less => Ok(()),
        Ordering::Equal => Err(SeriesError::DuplicateName),
        Ordering::Greater => Err(SeriesError::UnsortedNames),
    }
}

impl<'a> TimeSeries<'a> for Series<'a> {
    #[inline]
    fn labels(&self) -> impl Iterator<Item = Result<Label<'a>, Damaged>> {
        let symbols = self.symbols;
        let mut references = References::new(self.message);
        // Every reference was checked, so none of the failures here can happen.
        let mut symbol = move || symbols.get(references.next()?.ok()?).ok();
        std::iter::from_fn(move || Some(Ok((symbol()?, symbol()?))))
    }

    #[inline]
    fn samples(&self) -> impl Iterator<Item = Result<Sample, Damaged>> {
        repeated(self.message, timeseries::SAMPLES).map(|message| sample(message?))
    }

    fn n_samples(&self) -> usize {
        self.n_samples
    }

    fn n_histograms(&self) -> usize {
        self.n_histograms
    }

    fn n_exemplars(&self) -> usize {
        self.n_exemplars
    }
}

#[inline]
fn sample(message: &[u8]) -> Result<Sample, Damaged> {
    let mut sample = Sample { timestamp: 0, value: 0.0, start_timestamp: None };
    for field in Fields::new(message) {
        let field = field?;
        match field.number {
            1 => sample.value = field.double()?,
            2 => sample.timestamp = field.int64()?,
            3 => sample.start_timestamp = Some(field.int64()?).filter(|&start| start != 0),
            _ => {}
        }
    }
    Ok(sample)
}

/// The references of a series, whether they were sent as a packed list, one by one, or mixed. Ends after the
/// first error.
struct References<'a> {
    fields: Fields<'a>,
    packed: Cursor<'a>,
}

impl<'a> References<'a> {
    #[inline]
    const fn new(message: &'a [u8]) -> Self {
        Self { fields: Fields::new(message), packed: Cursor::new(&[]) }
    }

    /// The first reference in the fields not read so far.
    ///
    /// Almost always there is one packed field, so this is called twice per series and not worth inlining.
    #[inline(never)]
    fn next_field(&mut self) -> Option<Result<u64, Damaged>> {
        loop {
            match self.fields.next()? {
                Ok(field) if field.number != timeseries::LABELS_REFS => {}
                Ok(Field { value: Value::Varint(reference), .. }) => return Some(Ok(reference)),
                Ok(Field { value: Value::Bytes(&[]), .. }) => {}
                Ok(Field { value: Value::Bytes(packed), .. }) => {
                    self.packed = Cursor::new(packed);
                    return self.next();
                }
                Ok(_) => return self.end(Damaged::WrongWireType),
                Err(damaged) => return self.end(damaged),
            }
        }
    }

    fn end(&mut self, damaged: Damaged) -> Option<Result<u64, Damaged>> {
        *self = Self::new(&[]);
        Some(Err(damaged))
    }
}

impl Iterator for References<'_> {
    type Item = Result<u64, Damaged>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.packed.is_empty() {
            return self.next_field();
        }
        match self.packed.varint() {
            Ok(reference) => Some(Ok(reference)),
            Err(damaged) => self.end(damaged),
        }
    }
}

#[cfg(test)]
mod tests;
