//! The Standard Workload Format: 18 numbers a job, and comments that say where they are from.

use std::io::{BufRead, BufReader};
use std::path::Path;

use files::open;

use crate::error::{Error, Result};
use crate::format::Format;
use crate::table::{Column, Table};

/// The fields, by the names that they have here.
pub const FIELDS: [&str; 18] = [
    "job",
    "submit",
    "wait",
    "run_time",
    "processors",
    "cpu_time",
    "memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding_job",
    "think_time",
];

pub fn read(path: &Path) -> Result<Table> {
    let mut notes = Vec::new();
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); FIELDS.len()];
    for (index, line) in BufReader::new(open(path)?).lines().enumerate() {
        let line = line.map_err(Error::io(path))?;
        let line = line.trim();
        let fault =
            |reason: String| Error::Line { path: path.display().to_string(), line: index as u64 + 1, reason };
        if let Some(note) = line.strip_prefix(';') {
            notes.push(note.trim().to_owned());
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let cells: Vec<&str> = line.split_ascii_whitespace().collect();
        if cells.len() != FIELDS.len() {
            return Err(fault(format!("{} fields, but SWF has {}", cells.len(), FIELDS.len())));
        }
        for ((column, cell), name) in values.iter_mut().zip(cells).zip(FIELDS) {
            let value: f64 = cell.parse().map_err(|_| fault(format!("{name} is {cell:?}, no number")))?;
            if !value.is_finite() {
                return Err(fault(format!("{name} is {cell}")));
            }
            column.push(value);
        }
    }
    let columns = FIELDS.iter().zip(values).map(|(name, values)| {
        let is_whole = values.iter().all(|value| value.fract() == 0.0);
        Column::numbers(*name, values, Format::Plain { decimals: if is_whole { 0 } else { 2 } })
    });
    Ok(Table { columns: columns.collect(), notes })
}
