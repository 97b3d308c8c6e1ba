//! Parquet: flat columns of numbers, times or text. Files are checked before their columns are read, and columns are
//! read in batches: what a footer promises does not decide how much memory is used.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use files::Limits;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType, Int96};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use super::{check_columns, table_of};
use crate::error::{Error, Result, TraceError};
use crate::format::Format;
use crate::table::{Cells, Table};

const MILLIS: f64 = 1e3;
const MICROS: f64 = 1e6;
const NANOS: f64 = 1e9;
const DAY: f64 = 86_400.0;
/// Values that are decoded at once.
const BATCH: usize = 4_096;

pub fn read(path: &Path, limits: &Limits) -> Result<Table> {
    let file = File::open(path).map_err(Error::io(path))?;
    // The library panics on some contradictions between the footer and the pages.
    let read = files::contain_panic(|| read_file(file, path, limits));
    read.unwrap_or_else(|| Err(Error::in_file(path)(TraceError::Contradiction)))
}

fn read_file(file: File, path: &Path, limits: &Limits) -> Result<Table> {
    let n_bytes = file.metadata().map_err(Error::io(path))?.len();
    let pages = file.try_clone().map_err(Error::io(path))?;
    let reader = SerializedFileReader::new(file).map_err(Error::parquet(path))?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr_ptr();
    check_columns(schema.num_columns(), path)?;
    let in_file = |reason: TraceError| Error::in_file(path)(reason);
    let mut n_rows = 0u64;
    for group in metadata.row_groups() {
        check_group(group, n_bytes).map_err(in_file)?;
        n_rows = n_rows.saturating_add(group.num_rows() as u64);
    }
    limits.check_rows(n_rows).map_err(Error::limit(path))?;
    let read_at = |at: u64, buffer: &mut [u8]| pages.read_at(buffer, at);
    for (start, length) in metadata.row_groups().iter().flat_map(RowGroupMetaData::columns).map(byte_range) {
        files::check_pages(read_at, start, length, limits).map_err(Error::io(path))?;
    }
    let names = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let mut cells = vec![Cells::default(); schema.num_columns()];
    let mut sink = Sink { limits, n_cell_bytes: 0, n_file_bytes: n_bytes };
    for at in 0..metadata.num_row_groups() {
        let group = reader.get_row_group(at).map_err(Error::parquet(path))?;
        for (column, cells) in cells.iter_mut().enumerate() {
            sink.read_column(&*group, column, cells).map_err(|error| error.in_file(path))?;
        }
    }
    Ok(table_of(names, &cells))
}

/// Whether a row group has flat columns of equal length that lie within the file.
fn check_group(group: &RowGroupMetaData, n_file_bytes: u64) -> Result<(), TraceError> {
    let n_rows = u64::try_from(group.num_rows()).map_err(|_| TraceError::OutsideFile)?;
    for chunk in group.columns() {
        let column = chunk.column_descr();
        let name = || column.name().to_owned();
        if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
            return Err(TraceError::Nested { column: name() });
        }
        if !lies_within(chunk, n_file_bytes) {
            return Err(TraceError::OutsideFile);
        }
        if chunk.num_values() as u64 != n_rows {
            let found = chunk.num_values() as u64;
            return Err(TraceError::UnevenColumn { column: name(), found, expected: n_rows });
        }
    }
    Ok(())
}

/// Where a column starts and how long it is. A negative number lies outside of any file.
fn byte_range(chunk: &ColumnChunkMetaData) -> (u64, u64) {
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    (start as u64, chunk.compressed_size() as u64)
}

fn lies_within(chunk: &ColumnChunkMetaData, n_file_bytes: u64) -> bool {
    let (start, length) = byte_range(chunk);
    start.checked_add(length).is_some_and(|end| end <= n_file_bytes)
}

/// Why a column cannot be read.
enum ColumnFault {
    Parquet(parquet::errors::ParquetError),
    Limit(files::LimitExceeded),
    Trace(TraceError),
}

impl ColumnFault {
    fn in_file(self, path: &Path) -> Error {
        match self {
            Self::Parquet(error) => Error::parquet(path)(error),
            Self::Limit(error) => Error::limit(path)(error),
            Self::Trace(error) => Error::in_file(path)(error),
        }
    }
}

/// Takes the cells of all columns and bounds their size.
struct Sink<'a> {
    limits: &'a Limits,
    n_cell_bytes: u64,
    n_file_bytes: u64,
}

impl Sink<'_> {
    fn read_column(
        &mut self,
        group: &dyn RowGroupReader,
        at: usize,
        cells: &mut Cells,
    ) -> Result<(), ColumnFault> {
        let column = group.metadata().column(at).column_descr_ptr();
        let n_rows = group.metadata().num_rows() as u64;
        let meaning = Meaning::of(&column).map_err(ColumnFault::Trace)?;
        let before = cells.n_cells();
        match group.get_column_reader(at).map_err(ColumnFault::Parquet)? {
            ColumnReader::BoolColumnReader(values) => {
                self.push_all(values, &column, cells, |value| Some(value.to_string()))
            }
            ColumnReader::Int32ColumnReader(values) => {
                let widened = |value: i32| match meaning {
                    Meaning::Unsigned => i64::from(value as u32),
                    _ => i64::from(value),
                };
                self.push_all(values, &column, cells, |value| Some(meaning.show(widened(*value))))
            }
            ColumnReader::Int64ColumnReader(values) => {
                self.push_all(values, &column, cells, |value| Some(meaning.show(*value)))
            }
            ColumnReader::Int96ColumnReader(values) => {
                self.push_all(values, &column, cells, |value: &Int96| {
                    Some(Format::DateTimeT.show(value.to_seconds() as f64))
                })
            }
            ColumnReader::FloatColumnReader(values) => {
                self.push_all(values, &column, cells, |value| Some(shown_float(f64::from(*value), value)))
            }
            ColumnReader::DoubleColumnReader(values) => {
                self.push_all(values, &column, cells, |value| Some(shown_float(*value, value)))
            }
            ColumnReader::ByteArrayColumnReader(values) => {
                self.push_all(values, &column, cells, |value: &ByteArray| {
                    value.as_utf8().ok().map(str::to_owned)
                })
            }
            ColumnReader::FixedLenByteArrayColumnReader(_) => Err(ColumnFault::Trace(unsupported(&column))),
        }?;
        let found = (cells.n_cells() - before) as u64;
        if found == n_rows {
            return Ok(());
        }
        let column = column.name().to_owned();
        Err(ColumnFault::Trace(TraceError::UnevenColumn { column, found, expected: n_rows }))
    }

    /// Appends a cell. A dictionary can repeat a long text in a few bytes.
    fn push(&mut self, cell: &str, cells: &mut Cells) -> Result<(), ColumnFault> {
        self.n_cell_bytes += cell.len() as u64;
        self.limits.check_expansion(self.n_cell_bytes, self.n_file_bytes).map_err(ColumnFault::Limit)?;
        cells.push(cell);
        Ok(())
    }

    /// Appends the values of a column, nulls as empty cells. `show` gives none for a value that is no text.
    fn push_all<T: DataType>(
        &mut self,
        mut values: ColumnReaderImpl<T>,
        column: &ColumnDescriptor,
        cells: &mut Cells,
        show: impl Fn(&T::T) -> Option<String>,
    ) -> Result<(), ColumnFault> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut levels = Vec::with_capacity(BATCH);
        let is_optional = column.max_def_level() > 0;
        loop {
            batch.clear();
            levels.clear();
            let (n_read, ..) = values
                .read_records(BATCH, is_optional.then_some(&mut levels), None, &mut batch)
                .map_err(ColumnFault::Parquet)?;
            if n_read == 0 {
                return Ok(());
            }
            let mut batch = batch.iter();
            for row in 0..n_read {
                let is_known = !is_optional || levels.get(row) == Some(&column.max_def_level());
                let value = if is_known { batch.next() } else { None };
                match value.map(&show) {
                    Some(None) => return Err(ColumnFault::Trace(unsupported(column))),
                    Some(Some(cell)) => self.push(&cell, cells)?,
                    None => cells.push(""),
                }
            }
        }
    }
}

/// NaN is an unknown value.
fn shown_float(value: f64, exact: &impl ToString) -> String {
    if value.is_nan() { String::new() } else { exact.to_string() }
}

fn unsupported(column: &ColumnDescriptor) -> TraceError {
    let found = match column.converted_type() {
        ConvertedType::NONE => column.physical_type().to_string(),
        converted => converted.to_string(),
    };
    TraceError::Unsupported { column: column.name().to_owned(), found }
}

/// What the integers of a column stand for.
enum Meaning {
    Signed,
    Unsigned,
    /// A time, in units of which a second has this many.
    Time(f64),
    Date,
    /// A number with this many decimals.
    Decimal(u8),
}

impl Meaning {
    fn of(column: &ColumnDescriptor) -> Result<Self, TraceError> {
        if let Some(LogicalType::Timestamp(time)) = column.logical_type_ref() {
            return Ok(Self::Time(match time.unit {
                TimeUnit::MILLIS => MILLIS,
                TimeUnit::MICROS => MICROS,
                TimeUnit::NANOS => NANOS,
            }));
        }
        Ok(match column.converted_type() {
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64 => Self::Unsigned,
            ConvertedType::TIMESTAMP_MILLIS => Self::Time(MILLIS),
            ConvertedType::TIMESTAMP_MICROS => Self::Time(MICROS),
            ConvertedType::DATE => Self::Date,
            ConvertedType::DECIMAL => {
                Self::Decimal(u8::try_from(column.type_scale()).map_err(|_| unsupported(column))?)
            }
            ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS => return Err(unsupported(column)),
            _ => Self::Signed,
        })
    }

    fn show(&self, value: i64) -> String {
        match self {
            Self::Signed => value.to_string(),
            Self::Unsigned => (value as u64).to_string(),
            Self::Time(per_second) => Format::DateTimeT.show(value as f64 / per_second),
            Self::Date => Format::DateTimeT.show(value as f64 * DAY),
            Self::Decimal(decimals) => {
                format!("{:.*}", usize::from(*decimals), value as f64 / 10f64.powi(i32::from(*decimals)))
            }
        }
    }
}
