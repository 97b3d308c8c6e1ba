//! From jobs, as generators make them, back to a table with the columns of a trace.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::features::{FeatureKind, Jobs};
use crate::format::Format;
use crate::schema::{ColumnSpec, Kind, Role, Rule, Schema};
use crate::table::{Column, Table};

/// Jobs as a table with the columns of the schema.
pub fn assemble(schema: &Schema, jobs: &Jobs, begins: f64) -> Table {
    let n_jobs = jobs.len();
    let submits: Vec<f64> = jobs.arrivals().iter().map(|arrival| begins + arrival).collect();
    let feature =
        |name: &str| jobs.specs.iter().position(|spec| spec.name == name).map(|at| &jobs.values[at]);
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    // Submissions first, then starts, then what may be counted from either.
    let mut of_time: Vec<&ColumnSpec> =
        schema.columns.iter().filter(|spec| spec.kind == Kind::Time).collect();
    of_time.sort_by_key(|spec| match spec.role {
        Some(Role::Submit) => 0,
        Some(Role::Start) => 1,
        _ => 2,
    });
    for spec in of_time {
        let values = match schema.reference(spec).and_then(|reference| times.get(reference.name.as_str())) {
            Some(from) if spec.role != Some(Role::Submit) => {
                let offsets = feature(&spec.name);
                let offset = |row: usize| offsets.map_or(f64::NAN, |offsets| offsets[row]);
                from.iter().enumerate().map(|(row, from)| from + offset(row)).collect()
            }
            _ => submits.clone(),
        };
        times.insert(&spec.name, values);
    }
    let plain = Format::Plain { decimals: 0 };
    let column = |spec: &ColumnSpec| {
        let numbers = |values: Vec<f64>| {
            let format = spec.format.unwrap_or(plain);
            let rounded = values.into_iter().map(|value| format.round(value)).collect();
            Column::numbers(&spec.name, rounded, format)
        };
        match &spec.kind {
            Kind::Index { first: Some(first) } => {
                numbers((0..n_jobs).map(|row| first + row as f64).collect())
            }
            Kind::Index { first: None } => {
                Column::words(&spec.name, (0..n_jobs).map(|row| format!("job-{}", row + 1)))
            }
            Kind::Constant { cell } => {
                Column::from_cells(&spec.name, vec![cell.clone()]).select(&vec![0; n_jobs])
            }
            Kind::Time => numbers(times.get(spec.name.as_str()).cloned().unwrap_or_default()),
            Kind::Difference { of, less } => {
                let (of, less) = (times.get(of.as_str()), times.get(less.as_str()));
                let values =
                    of.into_iter().flatten().zip(less.into_iter().flatten()).map(|(of, less)| of - less);
                numbers(values.collect())
            }
            Kind::SincePrevious => numbers(jobs.intervals().to_vec()),
            _ if spec.role == Some(Role::Interval) => numbers(jobs.intervals().to_vec()),
            Kind::Category => {
                let names = jobs.specs.iter().find(|found| found.name == spec.name).map(|found| &found.kind);
                let Some(FeatureKind::Category { names }) = names else {
                    return numbers(vec![f64::NAN; n_jobs]);
                };
                let codes = feature(&spec.name).map(Vec::as_slice).unwrap_or_default();
                let codes: Vec<usize> = codes.iter().map(|code| *code as usize).collect();
                let known = match spec.format {
                    Some(_) => Column::from_cells(&spec.name, names.clone()),
                    None => Column::words(&spec.name, names.iter().cloned()),
                };
                known.select(&codes)
            }
            Kind::Count | Kind::Real | Kind::Product { .. } => {
                numbers(feature(&spec.name).cloned().unwrap_or_else(|| vec![f64::NAN; n_jobs]))
            }
        }
    };
    let mut table =
        Table { columns: schema.columns.par_iter().map(column).collect(), notes: schema.notes.clone() };
    multiply(schema, &mut table);
    table
}

/// Fills in the columns that are products of others.
fn multiply(schema: &Schema, table: &mut Table) {
    for (at, spec) in schema.columns.iter().enumerate() {
        let Kind::Product { of, scale, offset } = &spec.kind else { continue };
        let factors: Option<Vec<&[f64]>> = of.iter().map(|name| table.column(name)?.as_numbers()).collect();
        let Some(factors) = factors else { continue };
        let format = spec.format.unwrap_or(Format::Plain { decimals: 0 });
        let value = |row: usize| {
            format.round(factors.iter().map(|factor| factor[row]).product::<f64>() * scale + offset)
        };
        table.columns[at] = Column::numbers(&spec.name, (0..table.n_rows()).map(value).collect(), format);
    }
}

/// Makes jobs keep to what always held: whole numbers, the range that was seen, and rules between columns.
pub fn enforce(schema: &Schema, jobs: &mut Jobs, ranges: &[(f64, f64)]) {
    jobs.values.par_iter_mut().zip(&jobs.specs).zip(ranges).for_each(|((values, spec), (least, most))| {
        let FeatureKind::Number { format } = spec.kind else { return };
        for value in values.iter_mut().filter(|value| !value.is_nan()) {
            *value = format.round(value.clamp(*least, *most));
        }
    });
    for constraint in schema.constraints.iter().filter(|constraint| constraint.is_kept()) {
        let at = |name: &str| jobs.specs.iter().position(|spec| spec.name == name);
        match &constraint.rule {
            Rule::AtMost { column, limit } => {
                let (Some(column), Some(limit)) = (at(column), at(limit)) else { continue };
                for row in 0..jobs.len() {
                    let limit = jobs.values[limit][row];
                    let value = &mut jobs.values[column][row];
                    *value = value.min(limit);
                }
            }
            Rule::MultipleOf { column, unit } => {
                let (Some(column), Some(unit)) = (at(column), at(unit)) else { continue };
                for row in 0..jobs.len() {
                    let unit = jobs.values[unit][row].max(1.0);
                    let value = &mut jobs.values[column][row];
                    let least = if ranges[column].0 > 0.0 { 1.0 } else { 0.0 };
                    *value = (*value / unit).round().max(least) * unit;
                }
            }
        }
    }
}
