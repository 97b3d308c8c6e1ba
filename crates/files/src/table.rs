//! Tables of results as Parquet or CSV, by the extension of the file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::atomic::AtomicFile;
use crate::error::{Error, Result};
use crate::spreadsheet::guarded;

/// Rows that are in memory before they are written.
const ROWS_PER_GROUP: usize = 50_000;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    Text,
    Int,
    Float,
    Time,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Text(String),
    Int(i32),
    Float(f64),
    /// Milliseconds since the epoch; epoch seconds in CSV.
    Time(i64),
}

enum Column {
    Texts(Vec<ByteArray>),
    Ints(Vec<i32>),
    Floats(Vec<f64>),
    Times(Vec<i64>),
}

enum Sink {
    Csv(csv::Writer<File>),
    Parquet { writer: SerializedFileWriter<File>, columns: Vec<Column>, n_rows: usize },
}

/// Writes rows. The file appears when [`TableWriter::finish`] is called.
pub struct TableWriter {
    path: PathBuf,
    file: AtomicFile,
    sink: Sink,
}

impl TableWriter {
    /// The extension of `path` decides: `.parquet` or `.csv`.
    pub fn create(path: &Path, columns: &[(&str, CellKind)]) -> Result<Self> {
        let is_csv = match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => true,
            Some("parquet") => false,
            _ => return Err(Error::TableFormat { path: path.to_owned() }),
        };
        let file = AtomicFile::create(path)?;
        let handle = file.handle()?;
        let sink = if is_csv {
            let mut writer = csv::Writer::from_writer(handle);
            let header = columns.iter().map(|(name, _)| *name);
            writer.write_record(header).map_err(|error| failed(path, error))?;
            Sink::Csv(writer)
        } else {
            let writer = parquet_writer(handle, columns).map_err(|error| failed(path, error))?;
            let column = |(_, kind): &(&str, CellKind)| match kind {
                CellKind::Text => Column::Texts(Vec::new()),
                CellKind::Int => Column::Ints(Vec::new()),
                CellKind::Float => Column::Floats(Vec::new()),
                CellKind::Time => Column::Times(Vec::new()),
            };
            Sink::Parquet { writer, columns: columns.iter().map(column).collect(), n_rows: 0 }
        };
        Ok(Self { path: path.to_owned(), file, sink })
    }

    /// Adds a row. Its cells must have the kinds of the columns.
    pub fn push(&mut self, row: &[Cell]) -> Result<()> {
        match &mut self.sink {
            Sink::Csv(writer) => {
                writer.write_record(row.iter().map(shown)).map_err(|error| failed(&self.path, error))
            }
            Sink::Parquet { writer, columns, n_rows } => {
                for (column, cell) in columns.iter_mut().zip(row) {
                    match (column, cell) {
                        (Column::Texts(texts), Cell::Text(text)) => {
                            texts.push(ByteArray::from(text.as_str()))
                        }
                        (Column::Ints(ints), Cell::Int(int)) => ints.push(*int),
                        (Column::Floats(floats), Cell::Float(float)) => floats.push(*float),
                        (Column::Times(times), Cell::Time(time)) => times.push(*time),
                        _ => return Err(failed(&self.path, "a cell is not of the kind of its column")),
                    }
                }
                *n_rows += 1;
                if *n_rows == ROWS_PER_GROUP {
                    *n_rows = 0;
                    write_group(writer, columns).map_err(|error| failed(&self.path, error))?;
                }
                Ok(())
            }
        }
    }

    /// Makes the file appear.
    pub fn finish(self) -> Result<()> {
        let path = self.path;
        match self.sink {
            Sink::Csv(mut writer) => writer.flush().map_err(Error::io(&path))?,
            Sink::Parquet { mut writer, mut columns, n_rows } => {
                if n_rows > 0 {
                    write_group(&mut writer, &mut columns).map_err(|error| failed(&path, error))?;
                }
                writer.close().map_err(|error| failed(&path, error))?;
            }
        }
        self.file.commit()
    }
}

fn failed(path: &Path, error: impl ToString) -> Error {
    Error::io(path)(std::io::Error::other(error.to_string()))
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => guarded(text).into_owned(),
        Cell::Int(int) => int.to_string(),
        Cell::Float(float) => float.to_string(),
        Cell::Time(time) => (*time as f64 / 1e3).to_string(),
    }
}

fn parquet_writer(
    file: File,
    columns: &[(&str, CellKind)],
) -> Result<SerializedFileWriter<File>, ParquetError> {
    let mut fields = Vec::new();
    for (name, kind) in columns {
        let (physical, logical) = match kind {
            CellKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            CellKind::Int => (PhysicalType::INT32, None),
            CellKind::Float => (PhysicalType::DOUBLE, None),
            CellKind::Time => (PhysicalType::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
        };
        let field = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Arc::new(Type::group_type_builder("results").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(concat!("tracewise ", env!("CARGO_PKG_VERSION")).into())
        .build();
    SerializedFileWriter::new(file, schema, Arc::new(properties))
}

fn write_group(writer: &mut SerializedFileWriter<File>, columns: &mut [Column]) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut sink) = group.next_column()? else { break };
        match column {
            Column::Texts(values) => {
                sink.typed::<ByteArrayType>().write_batch(values, None, None).map(drop)?
            }
            Column::Ints(values) => sink.typed::<Int32Type>().write_batch(values, None, None).map(drop)?,
            Column::Floats(values) => sink.typed::<DoubleType>().write_batch(values, None, None).map(drop)?,
            Column::Times(values) => sink.typed::<Int64Type>().write_batch(values, None, None).map(drop)?,
        }
        sink.close()?;
        match column {
            Column::Texts(values) => values.clear(),
            Column::Ints(values) => values.clear(),
            Column::Floats(values) => values.clear(),
            Column::Times(values) => values.clear(),
        }
    }
    group.close().map(drop)
}
