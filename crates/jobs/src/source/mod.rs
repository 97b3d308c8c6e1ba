//! Where job traces come from: SWF, CSV and what is like it, Parquet; plain or compressed.

mod csv;
mod parquet;
mod swf;

pub use swf::FIELDS as SWF_FIELDS;

use std::path::Path;

use crate::error::{Error, Result};
use crate::preset::Preset;
use crate::table::{Column, Table};

/// Reads a file; its name says whether it is Parquet, the preset says the rest.
pub fn read(path: &Path, preset: Preset) -> Result<Table> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let table = if stem.ends_with(".parquet") {
        parquet::read(path)?
    } else if preset == Preset::Swf && !stem.ends_with(".csv") {
        swf::read(path)?
    } else {
        csv::read(path)?
    };
    if table.n_rows() == 0 {
        return Err(Error::file(path, "there is no job in it"));
    }
    Ok(table)
}

/// Columns from rows of cells.
fn table_of(names: Vec<String>, cells: Vec<Vec<String>>) -> Table {
    let columns = names.into_iter().zip(cells).map(|(name, cells)| Column::from_cells(name, cells));
    Table { columns: columns.collect(), notes: Vec::new() }
}
