//! Readers of job traces: SWF, CSV and Parquet; text may be compressed.

mod csv;
mod parquet;
mod swf;

pub use csv::parse as parse_csv;
pub use swf::{FIELDS as SWF_FIELDS, parse as parse_swf};

use std::path::Path;

use files::Limits;

use crate::error::{Error, Result, TraceError};
use crate::preset::Preset;
use crate::table::{Cells, Column, Table};

/// More columns than any batch system records. Relations are sought between all pairs of them.
const MAX_COLUMNS: usize = 256;

/// Reads a file. The extension decides between Parquet and text, the preset between SWF and CSV; without a preset, the
/// extension does.
pub fn read(path: &Path, preset: Option<Preset>, limits: &Limits) -> Result<Table> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stem = name.trim_end_matches(".gz").trim_end_matches(".zst");
    let is_swf = match preset {
        Some(preset) => preset == Preset::Swf && !stem.ends_with(".csv"),
        None => stem.ends_with(".swf"),
    };
    let table = if stem.ends_with(".parquet") {
        parquet::read(path, limits)?
    } else if is_swf {
        parse_swf(files::open(path, limits)?, path)?
    } else {
        parse_csv(files::open(path, limits)?, path)?
    };
    if table.n_rows() == 0 {
        return Err(Error::in_file(path)(TraceError::NoJobs));
    }
    Ok(table)
}

fn check_columns(found: usize, path: &Path) -> Result<()> {
    if found <= MAX_COLUMNS {
        return Ok(());
    }
    Err(Error::in_file(path)(TraceError::TooManyColumns { found, most: MAX_COLUMNS }))
}

/// A table from the cells of each column.
fn table_of(names: Vec<String>, cells: &[Cells]) -> Table {
    let columns = names.into_iter().zip(cells).map(|(name, cells)| Column::from_cells(name, cells.iter()));
    Table { columns: columns.collect(), notes: Vec::new() }
}
