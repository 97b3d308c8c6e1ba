//! Columns of numbers and text in and out of Parquet row groups.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel,
};
use parquet::column::reader::{ColumnReader, get_column_reader, get_typed_column_reader};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::rows::spare;
use crate::text_runs::{self, TextRuns};

/// Past this there is little left to gain, and writing gets slow (see `docs/results/archive.md`).
const ZSTD_LEVEL: i32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Milliseconds since the epoch, UTC; always present.
    Time,
    /// A small integer; always present.
    Int,
    /// A count that may be absent.
    Count,
    /// Text that may be absent.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
}

/// The values of one column. Where `present` is empty, every row has its value.
#[derive(Debug, Clone)]
pub enum Values {
    Times(Vec<i64>),
    Ints(Vec<i32>),
    Counts { values: Vec<i64>, present: Vec<bool> },
    Texts(TextRuns),
}

pub fn schema(columns: &[Column]) -> Result<TypePtr> {
    let mut fields = Vec::with_capacity(columns.len());
    for column in columns {
        let (physical, repetition, logical) = match column.kind {
            Kind::Time => (
                PhysicalType::INT64,
                Repetition::REQUIRED,
                Some(LogicalType::timestamp(true, TimeUnit::MILLIS)),
            ),
            Kind::Int => (PhysicalType::INT32, Repetition::REQUIRED, None),
            Kind::Count => (PhysicalType::INT64, Repetition::OPTIONAL, None),
            Kind::Text => (PhysicalType::BYTE_ARRAY, Repetition::OPTIONAL, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    Type::group_type_builder("readings").with_fields(fields).build().map(Arc::new)
}

/// `growing` counts are stored as differences, others by dictionary.
pub fn properties(columns: &[Column], growing: bool) -> Result<WriterProperties> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_data_page_row_count_limit(usize::MAX)
        .set_created_by(concat!("tracewise ", env!("CARGO_PKG_VERSION")).into());
    for column in columns {
        let path = ColumnPath::from(column.name);
        let differences = column.kind == Kind::Time || (column.kind == Kind::Count && growing);
        properties = properties.set_column_dictionary_enabled(path.clone(), !differences);
        if differences {
            properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties.build())
}

pub fn write_row_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    columns: &[Values],
) -> Result<()> {
    for values in columns {
        let mut writer = group.next_column()?.ok_or_else(too_many_columns)?;
        match values {
            Values::Times(values) => {
                writer.typed::<Int64Type>().write_batch(values, None, None)?;
            }
            Values::Ints(values) => {
                writer.typed::<Int32Type>().write_batch(values, None, None)?;
            }
            Values::Counts { values, present } => {
                write_optional(writer.typed::<Int64Type>(), values, present)?
            }
            Values::Texts(texts) => write_texts(writer.typed::<ByteArrayType>(), texts)?,
        }
        writer.close()?;
    }
    group.close()?;
    Ok(())
}

fn too_many_columns() -> ParquetError {
    ParquetError::General("more columns than the schema has".into())
}

fn write_optional<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    values: &[T::T],
    present: &[bool],
) -> Result<()> {
    let levels: Vec<i16> = match present {
        [] => vec![1; values.len()],
        present => present.iter().map(|present| i16::from(*present)).collect(),
    };
    writer.write_batch(values, Some(&levels), None).map(drop)
}

fn write_texts(writer: &mut ColumnWriterImpl<'_, ByteArrayType>, texts: &TextRuns) -> Result<()> {
    let known: Vec<ByteArray> = texts.known.iter().map(|text| ByteArray::from(text.as_str())).collect();
    for (n_rows, text) in &texts.runs {
        let values = text.map_or_else(Vec::new, |text| vec![known[text as usize].clone(); *n_rows]);
        writer.write_batch(&values, Some(&vec![i16::from(text.is_some()); *n_rows]), None)?;
    }
    Ok(())
}

/// The bytes of one row group, which know where in their file they lie.
#[derive(Debug)]
pub struct Region {
    pub offset: u64,
    pub bytes: Bytes,
}

impl Region {
    fn from(&self, start: u64) -> Result<Bytes> {
        let inside = start.checked_sub(self.offset).filter(|at| *at <= self.bytes.len() as u64);
        let at =
            inside.ok_or_else(|| ParquetError::EOF(format!("offset {start} is outside its row group")))?;
        Ok(self.bytes.slice(at as usize..))
    }
}

impl Length for Region {
    fn len(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl ChunkReader for Region {
    type T = RegionReader;

    fn get_read(&self, start: u64) -> Result<RegionReader> {
        self.from(start).map(RegionReader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let rest = self.from(start)?;
        if length > rest.len() {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} leave their row group")));
        }
        Ok(rest.slice(..length))
    }
}

pub struct RegionReader(Bytes);

impl Read for RegionReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = buffer.len().min(self.0.len());
        self.0.copy_to_slice(&mut buffer[..n_bytes]);
        Ok(n_bytes)
    }
}

/// Reads column `index` of a row group.
pub fn read_column(
    metadata: &ParquetMetaData,
    group: &RowGroupMetaData,
    region: &Arc<Region>,
    index: usize,
    kind: Kind,
) -> Result<Values> {
    let n_rows = group.num_rows() as usize;
    let chunk = group.column(index);
    let n_absent = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
    if n_absent == Some(n_rows as u64) {
        match kind {
            Kind::Count => return Ok(Values::Counts { values: Vec::new(), present: vec![false; n_rows] }),
            Kind::Text => return Ok(Values::Texts(TextRuns::absent(n_rows))),
            Kind::Time | Kind::Int => {}
        }
    }
    if let (Kind::Count, Some(0), Some(value)) = (kind, n_absent, constant(chunk)) {
        return Ok(Values::Counts { values: filled(value, n_rows), present: Vec::new() });
    }
    let mut pages = SerializedPageReader::new(region.clone(), chunk, n_rows, None)?;
    if kind == Kind::Text {
        return text_runs::read_texts(&mut pages, n_rows).map(Values::Texts);
    }
    let reader = get_column_reader(metadata.file_metadata().schema_descr().column(index), Box::new(pages));
    Ok(match kind {
        Kind::Time => Values::Times(read_required::<Int64Type>(reader, n_rows, spare::take(n_rows))?),
        Kind::Int => Values::Ints(read_required::<Int32Type>(reader, n_rows, Vec::new())?),
        _ => {
            let (values, present) = read_counts(reader, n_rows)?;
            Values::Counts { values, present }
        }
    })
}

/// A column that has the same value everywhere.
pub fn filled(value: i64, n_rows: usize) -> Vec<i64> {
    let mut values = spare::take(n_rows);
    values.resize(n_rows, value);
    values
}

/// The value of a chunk that has only one: on most machines, several modes never count.
fn constant(chunk: &ColumnChunkMetaData) -> Option<i64> {
    match chunk.statistics()? {
        Statistics::Int64(statistics) => {
            statistics.min_opt().copied().filter(|least| statistics.max_opt() == Some(least))
        }
        _ => None,
    }
}

fn read_required<T: DataType>(
    reader: ColumnReader,
    n_rows: usize,
    mut values: Vec<T::T>,
) -> Result<Vec<T::T>> {
    let mut reader = get_typed_column_reader::<T>(reader);
    while values.len() < n_rows {
        let (records, _, _) = reader.read_records(n_rows - values.len(), None, None, &mut values)?;
        if records == 0 {
            return Err(short_column(values.len(), n_rows));
        }
    }
    Ok(values)
}

fn read_counts(reader: ColumnReader, n_rows: usize) -> Result<(Vec<i64>, Vec<bool>)> {
    let mut reader = get_typed_column_reader::<Int64Type>(reader);
    let (mut values, mut levels) = (spare::take(n_rows), Vec::with_capacity(n_rows));
    while levels.len() < n_rows {
        let (records, _, _) =
            reader.read_records(n_rows - levels.len(), Some(&mut levels), None, &mut values)?;
        if records == 0 {
            return Err(short_column(levels.len(), n_rows));
        }
    }
    let present =
        if values.len() == n_rows { Vec::new() } else { levels.iter().map(|level| *level > 0).collect() };
    Ok((values, present))
}

fn short_column(found: usize, n_rows: usize) -> ParquetError {
    ParquetError::EOF(format!("a column ends after {found} of {n_rows} rows"))
}
