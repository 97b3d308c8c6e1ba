//! Parquet: flat columns of numbers, times or text.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::table_of;
use crate::error::{Error, Result, TraceError};
use crate::format::Format;
use crate::table::Table;

const MILLIS: f64 = 1e3;
const MICROS: f64 = 1e6;

pub fn read(path: &Path) -> Result<Table> {
    let file = File::open(path).map_err(Error::io(path))?;
    let reader = SerializedFileReader::new(file).map_err(Error::parquet(path))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<String> = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let mut cells: Vec<Vec<String>> = vec![Vec::new(); names.len()];
    for row in reader.get_row_iter(None).map_err(Error::parquet(path))? {
        let row = row.map_err(Error::parquet(path))?;
        for (column, (name, field)) in cells.iter_mut().zip(row.get_column_iter()) {
            let nested = || Error::in_file(path)(TraceError::Nested { column: name.clone() });
            column.push(cell(field).ok_or_else(nested)?);
        }
    }
    Ok(table_of(names, cells))
}

fn cell(field: &Field) -> Option<String> {
    let time = |seconds: f64| Format::DateTimeT.show(seconds);
    Some(match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::TimestampMillis(millis) => time(*millis as f64 / MILLIS),
        Field::TimestampMicros(micros) => time(*micros as f64 / MICROS),
        Field::Double(value) if value.is_nan() => String::new(),
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) | Field::Bytes(_) => return None,
        other => other.to_string(),
    })
}
