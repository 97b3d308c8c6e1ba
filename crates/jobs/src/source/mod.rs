//! Readers of job traces: SWF, CSV and Parquet; text may be compressed.

mod csv;
mod parquet;
mod swf;

pub use csv::parse as parse_csv;
pub use swf::{FIELDS as SWF_FIELDS, parse as parse_swf};

use std::path::Path;

use crate::error::{Error, Result, TraceError};
use crate::preset::Preset;
use crate::table::{Column, Table};

/// Reads a file. The extension decides between Parquet and text, the preset between SWF and CSV.
pub fn read(path: &Path, preset: Preset) -> Result<Table> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let table = if stem.ends_with(".parquet") {
        parquet::read(path)?
    } else if preset == Preset::Swf && !stem.ends_with(".csv") {
        parse_swf(files::open(path, &files::Limits::default())?, path)?
    } else {
        parse_csv(files::open(path, &files::Limits::default())?, path)?
    };
    if table.n_rows() == 0 {
        return Err(Error::in_file(path)(TraceError::NoJobs));
    }
    Ok(table)
}

/// A table from the cells of each column.
fn table_of(names: Vec<String>, cells: Vec<Vec<String>>) -> Table {
    let columns = names.into_iter().zip(cells).map(|(name, cells)| Column::from_cells(name, cells));
    Table { columns: columns.collect(), notes: Vec::new() }
}
