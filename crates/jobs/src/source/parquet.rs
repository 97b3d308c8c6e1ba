//! Parquet: columns of numbers, moments or words; nothing nested.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::table_of;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::table::Table;

pub fn read(path: &Path) -> Result<Table> {
    let fault = |error: parquet::errors::ParquetError| Error::file(path, error);
    let reader = SerializedFileReader::new(File::open(path).map_err(Error::io(path))?).map_err(fault)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<String> = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let mut cells: Vec<Vec<String>> = vec![Vec::new(); names.len()];
    for row in reader.get_row_iter(None).map_err(fault)? {
        let row = row.map_err(fault)?;
        for (column, (name, field)) in cells.iter_mut().zip(row.get_column_iter()) {
            column.push(cell(field).ok_or_else(|| {
                Error::file(path, format!("column {name} is nested, and jobs are rows of plain cells"))
            })?);
        }
    }
    Ok(table_of(names, cells))
}

fn cell(field: &Field) -> Option<String> {
    let moment = |seconds: i64| Format::MomentWithT.show(seconds as f64);
    Some(match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::TimestampMillis(time) => moment(time.div_euclid(1_000)),
        Field::TimestampMicros(time) => moment(time.div_euclid(1_000_000)),
        Field::Double(value) if value.is_nan() => String::new(),
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) | Field::Bytes(_) => return None,
        other => other.to_string(),
    })
}
