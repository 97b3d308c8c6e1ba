//! Cells with something between them, and a header.

use std::io::{BufRead, BufReader};
use std::path::Path;

use files::open;

use super::table_of;
use crate::error::{Error, Result};
use crate::table::Table;

/// Bars stand between cells where the header has any, commas otherwise: `sacct` writes the ones, we the others.
pub fn read(path: &Path) -> Result<Table> {
    let mut bytes = BufReader::new(open(path)?);
    let start = bytes.fill_buf().map_err(Error::io(path))?;
    let header = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let delimiter = if header.contains(&b'|') { b'|' } else { b',' };
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(false).from_reader(bytes);
    let fault = |error: csv::Error| match error.position() {
        Some(at) => Error::Line {
            path: path.display().to_string(),
            line: at.line(),
            reason: match error.kind() {
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                    format!("{len} cells, but the header has {expected_len}")
                }
                other => format!("{other:?}"),
            },
        },
        None => Error::file(path, error),
    };
    let names: Vec<String> =
        reader.headers().map_err(fault)?.iter().map(|name| name.trim().to_owned()).collect();
    if names.iter().all(String::is_empty) {
        return Err(Error::file(path, "the file is empty"));
    }
    let mut cells: Vec<Vec<String>> = vec![Vec::new(); names.len()];
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(fault)? {
        for (column, cell) in cells.iter_mut().zip(&record) {
            column.push(cell.trim().to_owned());
        }
    }
    Ok(table_of(names, cells))
}
