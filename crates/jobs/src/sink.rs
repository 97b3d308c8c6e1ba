//! Where job traces go: CSV, SWF, Parquet, and JSON for Batsim.

use std::io::Write;
use std::path::Path;

use files::AtomicFile;
use files::table::{Cell, CellKind, TableWriter};
use rayon::prelude::*;
use serde_json::json;

use crate::error::{Error, Result};
use crate::features::arrivals_of;
use crate::format::Format;
use crate::schema::{Role, Schema};
use crate::status;
use crate::table::{Column, Table, Values};

/// Writes a table; the name of the file says how.
pub fn write(path: &Path, table: &Table, schema: &Schema) -> Result<()> {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "csv" => write_csv(path, table),
        "swf" => safely(path, |out| write_swf(out, table, schema)),
        "json" => safely(path, |out| write_batsim(out, table, schema)),
        "parquet" => write_parquet(path, table),
        _ => Err(Error::file(path, "the name of the file ends in .csv, .swf, .parquet or .json (Batsim)")),
    }
}

/// Writes a file that appears whole or not at all.
fn safely(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    write(&mut file).map_err(Error::io(path))?;
    Ok(file.commit()?)
}

/// Rows that one thread writes at a time, and how many such parts are in memory.
const ROWS_A_PART: usize = 8_192;
const N_PARTS: usize = 16;

fn write_csv(path: &Path, table: &Table) -> Result<()> {
    safely(path, |out| {
        let mut header = csv::Writer::from_writer(Vec::new());
        header.write_record(table.columns.iter().map(|column| column.name.as_str()))?;
        out.write_all(&header.into_inner().map_err(|error| error.into_error())?)?;
        let firsts: Vec<usize> = (0..table.n_rows()).step_by(ROWS_A_PART).collect();
        for firsts in firsts.chunks(N_PARTS) {
            let parts: Vec<std::io::Result<Vec<u8>>> =
                firsts.par_iter().map(|first| csv_part(table, *first)).collect();
            for part in parts {
                out.write_all(&part?)?;
            }
        }
        Ok(())
    })
}

fn csv_part(table: &Table, first: usize) -> std::io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in first..(first + ROWS_A_PART).min(table.n_rows()) {
        writer.write_record(table.columns.iter().map(|column| column.cell(row)))?;
    }
    writer.into_inner().map_err(|error| error.into_error())
}

fn write_parquet(path: &Path, table: &Table) -> Result<()> {
    let is_small =
        |values: &[f64]| values.iter().all(|value| value.fract() == 0.0 && value.abs() < f64::from(i32::MAX));
    let kind = |column: &Column| match &column.values {
        Values::Numbers { values, format } if format.unit().is_some() && is_small(values) => CellKind::Int,
        Values::Numbers { format, .. } if format.unit().is_some() => CellKind::Float,
        _ => CellKind::Text,
    };
    let columns: Vec<(&str, CellKind)> =
        table.columns.iter().map(|column| (column.name.as_str(), kind(column))).collect();
    let mut writer = TableWriter::create(path, &columns)?;
    for row in 0..table.n_rows() {
        let cells =
            table.columns.iter().zip(&columns).map(|(column, (_, kind))| match (kind, &column.values) {
                (CellKind::Int, Values::Numbers { values, format }) => {
                    Cell::Int((values[row] / format.unit().unwrap_or(1.0)) as i32)
                }
                (CellKind::Float, Values::Numbers { values, format }) => {
                    Cell::Float(values[row] / format.unit().unwrap_or(1.0))
                }
                _ => Cell::Text(column.cell(row)),
            });
        writer.push(&cells.collect::<Vec<Cell>>())?;
    }
    writer.finish()?;
    Ok(())
}

/// The roles of the 18 fields of SWF; fields without one are unknown, which SWF writes as -1.
const SWF_ROLES: [Option<Role>; 18] = [
    Some(Role::Index),
    Some(Role::Submit),
    Some(Role::Wait),
    Some(Role::RunTime),
    Some(Role::Cores),
    None,
    None,
    Some(Role::Cores),
    Some(Role::RequestedTime),
    None,
    Some(Role::Status),
    Some(Role::User),
    Some(Role::Group),
    None,
    None,
    None,
    None,
    None,
];
/// What SWF writes for what is not known.
const UNKNOWN: f64 = -1.0;

fn write_swf(out: &mut dyn Write, table: &Table, schema: &Schema) -> std::io::Result<()> {
    let is_swf = table.columns.iter().map(|column| column.name.as_str()).eq(crate::source::SWF_FIELDS);
    let numbers: Vec<Vec<f64>> =
        if is_swf { table.columns.iter().map(as_numbers).collect() } else { fields_of(table, schema) };
    writeln!(out, "; Version: 2.2")?;
    writeln!(out, "; Note: synthetic, made by Tracewise")?;
    writeln!(out, "; MaxJobs: {}", table.n_rows())?;
    writeln!(out, "; MaxRecords: {}", table.n_rows())?;
    let is_own =
        |note: &&String| !["Version", "MaxJobs", "MaxRecords"].iter().any(|own| note.starts_with(own));
    for note in table.notes.iter().filter(is_own) {
        writeln!(out, "; {note}")?;
    }
    for row in 0..table.n_rows() {
        let line: Vec<String> = numbers
            .iter()
            .map(|values| {
                let value = values.get(row).copied().filter(|value| !value.is_nan()).unwrap_or(UNKNOWN);
                Format::Plain { decimals: 2 }.show(value)
            })
            .collect();
        writeln!(out, "{}", line.join(" "))?;
    }
    Ok(())
}

fn as_numbers(column: &Column) -> Vec<f64> {
    match &column.values {
        Values::Numbers { values, .. } => values.clone(),
        // Words have no place in SWF; their numbers have.
        Values::Words { codes, .. } => codes.iter().map(|code| f64::from(*code) + 1.0).collect(),
    }
}

fn column_of<'a>(table: &'a Table, schema: &Schema, role: Role) -> Option<&'a Column> {
    table.column(&schema.with_role(role)?.name)
}

fn fields_of(table: &Table, schema: &Schema) -> Vec<Vec<f64>> {
    let n_rows = table.n_rows();
    let of_role = |role: Role| column_of(table, schema, role).map(as_numbers);
    let minus = |one: Option<Vec<f64>>, other: Option<Vec<f64>>| -> Option<Vec<f64>> {
        Some(one?.into_iter().zip(other?).map(|(one, other)| one - other).collect())
    };
    let field = |role: &Option<Role>| {
        let found = match role {
            Some(Role::Index) => Some((0..n_rows).map(|row| row as f64 + 1.0).collect()),
            Some(Role::Submit) => of_role(Role::Submit)
                .map(since_first)
                .or_else(|| of_role(Role::Interval).map(|intervals| arrivals_of(&intervals))),
            Some(Role::Wait) => {
                of_role(Role::Wait).or_else(|| minus(of_role(Role::Start), of_role(Role::Submit)))
            }
            Some(Role::RunTime) => {
                of_role(Role::RunTime).or_else(|| minus(of_role(Role::End), of_role(Role::Start)))
            }
            // Some machines are given out by nodes or by GPUs, and say nothing of cores, or none.
            Some(Role::Cores) => [Role::Cores, Role::Nodes, Role::Gpus]
                .into_iter()
                .filter_map(of_role)
                .find(|sizes| sizes.iter().any(|size| *size > 0.0)),
            Some(Role::Status) => column_of(table, schema, Role::Status).map(|column| {
                (0..n_rows).map(|row| status::code_of(&column.name, &column.cell(row))).collect()
            }),
            Some(role) => of_role(*role),
            None => None,
        };
        found.unwrap_or_else(|| vec![UNKNOWN; n_rows])
    };
    SWF_ROLES.iter().map(field).collect()
}

fn since_first(moments: Vec<f64>) -> Vec<f64> {
    let first = moments.first().copied().unwrap_or_default();
    moments.into_iter().map(|moment| moment - first).collect()
}

/// Jobs that wait for as long as they ran, on as many resources as they had.
fn write_batsim(out: &mut dyn Write, table: &Table, schema: &Schema) -> std::io::Result<()> {
    let fields = fields_of(table, schema);
    let [submits, runs, requested] = [1, 3, 8].map(|field| &fields[field]);
    let nodes = column_of(table, schema, Role::Nodes).map(as_numbers);
    let sizes = nodes.as_ref().unwrap_or(&fields[4]);
    let mut profiles = serde_json::Map::new();
    let mut jobs = Vec::with_capacity(table.n_rows());
    for row in 0..table.n_rows() {
        let run = Format::Plain { decimals: 2 }.round(runs[row].max(0.0));
        let profile = format!("delay_{run}");
        profiles.entry(&profile).or_insert_with(|| json!({ "type": "delay", "delay": run }));
        let mut job = json!({
            "id": row.to_string(), "subtime": submits[row], "res": sizes[row].max(1.0) as u64, "profile": profile,
        });
        if requested[row] > 0.0 {
            job["walltime"] = json!(requested[row]);
        }
        jobs.push(job);
    }
    let nb_res = sizes.iter().copied().fold(1.0, f64::max) as u64;
    serde_json::to_writer(out, &json!({ "nb_res": nb_res, "jobs": jobs, "profiles": profiles }))?;
    Ok(())
}
