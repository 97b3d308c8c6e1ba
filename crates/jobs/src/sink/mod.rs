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
    out.write_all(&record(table.columns.iter().map(|column| guarded(&column.name)))?)?;
    // Every name is quoted once.
    let names: Vec<Vec<Vec<u8>>> = table.columns.iter().map(csv_names).collect::<Result<_, _>>()?;
    let firsts: Vec<usize> = (0..table.n_rows()).step_by(ROWS_PER_PART).collect();
    for firsts in firsts.chunks(N_PARTS) {
        let parts: Vec<Vec<u8>> = firsts.par_iter().map(|first| csv_part(table, &names, *first)).collect();
        for part in parts {
            out.write_all(&part)?;
        }
    }
    Ok(())
}

/// A line of CSV.
fn record(cells: impl Iterator<Item: AsRef<str>>) -> std::io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(cells.map(|cell| cell.as_ref().as_bytes().to_vec()))?;
    writer.into_inner().map_err(|error| error.into_error())
}

/// The names of a column as cells of CSV.
fn csv_names(column: &Column) -> std::io::Result<Vec<Vec<u8>>> {
    let Values::Text { names, .. } = &column.values else { return Ok(Vec::new()) };
    let cell = |name: &String| {
        // The second cell keeps an empty name from being quoted.
        let mut line = record([guarded(name), "".into()].into_iter())?;
        line.truncate(line.len() - ",\n".len());
        Ok(line)
    };
    names.iter().map(cell).collect()
}

fn csv_part(table: &Table, names: &[Vec<Vec<u8>>], first: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for row in first..(first + ROWS_PER_PART).min(table.n_rows()) {
        let start = out.len();
        for (at, (column, names)) in table.columns.iter().zip(names).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match &column.values {
                Values::Numbers { values, format } => format.write(values[row], &mut out),
                Values::Text { codes, .. } => out.extend_from_slice(&names[codes[row] as usize]),
            }
        }
        if out.len() == start {
            // A line without anything is no record.
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }
    out
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    #[test]
    fn lines_are_those_of_the_csv_writer() {
        let plain = |decimals| Format::Plain { decimals };
        let table = Table {
            columns: vec![
                Column::text("a,b", ["x", "", "say \"no\"", "=1+1", "two\nlines"]),
                Column::numbers("count", vec![0.0, 12.0, -3.0, f64::NAN, 9e17], plain(0)),
                Column::numbers("share", vec![0.5, -0.25, 100.0, 12.34, 0.01], plain(2)),
                Column::numbers("at", vec![0.0, 1e9, 1.5, f64::NAN, 2e9], Format::DateTime),
            ],
            notes: Vec::new(),
        };
        let mut found = Vec::new();
        write_csv(&mut found, &table).unwrap();
        let mut wanted = csv::Writer::from_writer(Vec::new());
        wanted.write_record(["a,b", "count", "share", "at"]).unwrap();
        for row in 0..5 {
            let cells = table.columns.iter().map(|column| guarded(&column.cell(row)).into_owned());
            // Negative numbers are no formulas.
            wanted.write_record(cells.map(|cell| cell.replace("'-", "-"))).unwrap();
        }
        assert_eq!(
            String::from_utf8(found).unwrap(),
            String::from_utf8(wanted.into_inner().unwrap()).unwrap()
        );
        let empty = Table { columns: vec![Column::text("only", [""])], notes: Vec::new() };
        let mut found = Vec::new();
        write_csv(&mut found, &empty).unwrap();
        assert_eq!(found, b"only\n\"\"\n");
    }
}
