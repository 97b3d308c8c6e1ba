//! Tables of results for people and programs: Parquet or CSV, by the name of the file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use workload::Timestamp;

use crate::error::{Error, Result};

/// Rows that are in memory before they are written.
const ROWS_A_GROUP: usize = 50_000;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    Word,
    Whole,
    Real,
    Time,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Word(String),
    Whole(i32),
    Real(f64),
    Time(Timestamp),
}

enum Column {
    Words(Vec<ByteArray>),
    Wholes(Vec<i32>),
    Reals(Vec<f64>),
    Times(Vec<i64>),
}

enum Sink {
    Csv(csv::Writer<File>),
    Parquet { writer: SerializedFileWriter<File>, columns: Vec<Column>, n_rows: usize },
}

/// Writes rows; the file is there when all of them are.
pub struct TableWriter {
    path: PathBuf,
    unfinished: PathBuf,
    /// Until it is finished.
    sink: Option<Sink>,
}

impl TableWriter {
    /// `.parquet` or `.csv`.
    pub fn create(path: &Path, columns: &[(&str, CellKind)]) -> Result<Self> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_csv = match extension {
            "csv" => true,
            "parquet" => false,
            _ => return Err(Error::TableFormat { path: path.display().to_string() }),
        };
        let unfinished = path.with_extension(format!("{extension}.unfinished"));
        let file = File::create(&unfinished).map_err(Error::io(&unfinished))?;
        let sink = if is_csv {
            let mut writer = csv::Writer::from_writer(file);
            let header = columns.iter().map(|(name, _)| *name);
            writer.write_record(header).map_err(|error| failed(&unfinished, error))?;
            Sink::Csv(writer)
        } else {
            let writer = parquet_writer(file, columns).map_err(|error| failed(&unfinished, error))?;
            let column = |(_, kind): &(&str, CellKind)| match kind {
                CellKind::Word => Column::Words(Vec::new()),
                CellKind::Whole => Column::Wholes(Vec::new()),
                CellKind::Real => Column::Reals(Vec::new()),
                CellKind::Time => Column::Times(Vec::new()),
            };
            Sink::Parquet { writer, columns: columns.iter().map(column).collect(), n_rows: 0 }
        };
        Ok(Self { path: path.to_owned(), unfinished, sink: Some(sink) })
    }

    /// Adds a row whose cells are as the columns say.
    pub fn push(&mut self, row: &[Cell]) -> Result<()> {
        match &mut self.sink {
            None => Ok(()),
            Some(Sink::Csv(writer)) => {
                writer.write_record(row.iter().map(shown)).map_err(|error| failed(&self.unfinished, error))
            }
            Some(Sink::Parquet { writer, columns, n_rows }) => {
                for (column, cell) in columns.iter_mut().zip(row) {
                    match (column, cell) {
                        (Column::Words(words), Cell::Word(word)) => {
                            words.push(ByteArray::from(word.as_str()))
                        }
                        (Column::Wholes(wholes), Cell::Whole(whole)) => wholes.push(*whole),
                        (Column::Reals(reals), Cell::Real(real)) => reals.push(*real),
                        (Column::Times(times), Cell::Time(time)) => times.push(time.0),
                        _ => return Err(failed(&self.unfinished, "a cell is not of its column's kind")),
                    }
                }
                *n_rows += 1;
                if *n_rows == ROWS_A_GROUP {
                    *n_rows = 0;
                    write_group(writer, columns).map_err(|error| failed(&self.unfinished, error))?;
                }
                Ok(())
            }
        }
    }

    /// Makes the file appear; without this nothing is left of it.
    pub fn finish(mut self) -> Result<()> {
        let (path, unfinished) = (self.path.clone(), self.unfinished.clone());
        let Some(sink) = self.sink.take() else { return Ok(()) };
        let file = match sink {
            Sink::Csv(writer) => writer.into_inner().map_err(|error| failed(&unfinished, error))?,
            Sink::Parquet { mut writer, mut columns, n_rows } => {
                if n_rows > 0 {
                    write_group(&mut writer, &mut columns).map_err(|error| failed(&unfinished, error))?;
                }
                writer.into_inner().map_err(|error| failed(&unfinished, error))?
            }
        };
        file.sync_all().map_err(Error::io(&unfinished))?;
        std::fs::rename(&unfinished, &path).map_err(Error::io(&path))
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if self.sink.is_some() {
            let _ = std::fs::remove_file(&self.unfinished);
        }
    }
}

fn failed(path: &Path, error: impl ToString) -> Error {
    Error::io(path)(std::io::Error::other(error.to_string()))
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Word(word) => word.clone(),
        Cell::Whole(whole) => whole.to_string(),
        Cell::Real(real) => real.to_string(),
        Cell::Time(time) => time.as_epoch_seconds().to_string(),
    }
}

fn parquet_writer(
    file: File,
    columns: &[(&str, CellKind)],
) -> Result<SerializedFileWriter<File>, ParquetError> {
    let mut fields = Vec::new();
    for (name, kind) in columns {
        let (physical, logical) = match kind {
            CellKind::Word => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            CellKind::Whole => (PhysicalType::INT32, None),
            CellKind::Real => (PhysicalType::DOUBLE, None),
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
            Column::Words(values) => {
                sink.typed::<ByteArrayType>().write_batch(values, None, None).map(drop)?
            }
            Column::Wholes(values) => sink.typed::<Int32Type>().write_batch(values, None, None).map(drop)?,
            Column::Reals(values) => sink.typed::<DoubleType>().write_batch(values, None, None).map(drop)?,
            Column::Times(values) => sink.typed::<Int64Type>().write_batch(values, None, None).map(drop)?,
        }
        sink.close()?;
        match column {
            Column::Words(values) => values.clear(),
            Column::Wholes(values) => values.clear(),
            Column::Reals(values) => values.clear(),
            Column::Times(values) => values.clear(),
        }
    }
    group.close().map(drop)
}
