//! Writers of job traces: CSV, SWF, Parquet, and JSON for the simulator Batsim. Files appear whole or not at all.

mod batsim;
mod swf;

use std::io::Write;
use std::path::Path;

use files::table::{Cell, CellKind, TableWriter};
use files::{AtomicFile, guarded};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::table::{Column, Table, Values};

/// Writes a table in the format that the extension names.
pub fn write(path: &Path, table: &Table, schema: &Schema) -> Result<()> {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "csv" => atomically(path, |out| write_csv(out, table)),
        "swf" => atomically(path, |out| swf::write(out, table, schema)),
        "json" => atomically(path, |out| batsim::write(out, table, schema)),
        "parquet" => write_parquet(path, table),
        _ => Err(Error::Extension { path: path.display().to_string() }),
    }
}

fn atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    write(&mut file).map_err(Error::io(path))?;
    Ok(file.commit()?)
}

/// Rows that one thread formats at a time, and how many such parts are in memory.
const ROWS_PER_PART: usize = 8_192;
const N_PARTS: usize = 16;

fn write_csv(out: &mut dyn Write, table: &Table) -> std::io::Result<()> {
    let mut header = csv::Writer::from_writer(Vec::new());
    header.write_record(table.columns.iter().map(|column| guarded(&column.name).into_owned()))?;
    out.write_all(&header.into_inner().map_err(|error| error.into_error())?)?;
    let firsts: Vec<usize> = (0..table.n_rows()).step_by(ROWS_PER_PART).collect();
    for firsts in firsts.chunks(N_PARTS) {
        let parts: Vec<std::io::Result<Vec<u8>>> =
            firsts.par_iter().map(|first| csv_part(table, *first)).collect();
        for part in parts {
            out.write_all(&part?)?;
        }
    }
    Ok(())
}

fn csv_part(table: &Table, first: usize) -> std::io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in first..(first + ROWS_PER_PART).min(table.n_rows()) {
        writer.write_record(table.columns.iter().map(|column| csv_cell(column, row)))?;
    }
    writer.into_inner().map_err(|error| error.into_error())
}

fn csv_cell(column: &Column, row: usize) -> String {
    let cell = column.cell(row);
    match column.values {
        Values::Numbers { .. } => cell,
        Values::Text { .. } => guarded(&cell).into_owned(),
    }
}

fn write_parquet(path: &Path, table: &Table) -> Result<()> {
    let fits_int =
        |values: &[f64]| values.iter().all(|value| value.fract() == 0.0 && value.abs() < f64::from(i32::MAX));
    let kind = |column: &Column| match &column.values {
        Values::Numbers { values, format } if format.unit().is_some() && fits_int(values) => CellKind::Int,
        Values::Numbers { format, .. } if format.unit().is_some() => CellKind::Float,
        _ => CellKind::Text,
    };
    let columns: Vec<(&str, CellKind)> =
        table.columns.iter().map(|column| (column.name.as_str(), kind(column))).collect();
    let mut writer = TableWriter::create(path, &columns)?;
    let cell = |row: usize, column: &Column, kind: CellKind| match (kind, &column.values) {
        (CellKind::Int, Values::Numbers { values, format }) => {
            Cell::Int((values[row] / format.unit().unwrap_or(1.0)) as i32)
        }
        (CellKind::Float, Values::Numbers { values, format }) => {
            Cell::Float(values[row] / format.unit().unwrap_or(1.0))
        }
        _ => Cell::Text(column.cell(row)),
    };
    for row in 0..table.n_rows() {
        let cells = table.columns.iter().zip(&columns).map(|(column, (_, kind))| cell(row, column, *kind));
        writer.push(&cells.collect::<Vec<Cell>>())?;
    }
    writer.finish()?;
    Ok(())
}
