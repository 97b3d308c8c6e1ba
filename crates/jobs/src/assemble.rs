//! From sampled features back to a table with the columns of the training trace.

use std::collections::BTreeMap;

use learn::artifact::restore::{RestoreError, ensure};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::features::{FeatureKind, FeatureTable};
use crate::format::Format;
use crate::schema::{ColumnKind, ColumnSpec, Role, Rule, Schema};
use crate::table::{Column, Table};

/// The smallest and the largest known value of a feature in the training trace; stored as a pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
pub struct ValueRange {
    min: f64,
    max: f64,
}

impl From<(f64, f64)> for ValueRange {
    fn from((min, max): (f64, f64)) -> Self {
        Self { min, max }
    }
}

impl From<ValueRange> for (f64, f64) {
    fn from(range: ValueRange) -> Self {
        (range.min, range.max)
    }
}

impl ValueRange {
    pub fn of(values: &[f64]) -> Self {
        let known = values.iter().copied().filter(|value| !value.is_nan());
        known.fold(Self { min: f64::MAX, max: f64::MIN }, |range, value| Self {
            min: range.min.min(value),
            max: range.max.max(value),
        })
    }

    /// Checks a range that was read from a file.
    pub fn check(&self) -> Result<(), RestoreError> {
        ensure(
            self.min <= self.max || *self == Self::of(&[]),
            "the least value of a range exceeds the largest",
        )
    }

    /// A range of no values limits nothing.
    fn clamp(self, value: f64) -> f64 {
        if self.min <= self.max { value.clamp(self.min, self.max) } else { value }
    }
}

/// A table with the columns of the schema; the first job is submitted at `start`.
pub fn assemble(schema: &Schema, jobs: &FeatureTable, start: f64) -> Table {
    let times = times_of(schema, jobs, start);
    let column = |spec: &ColumnSpec| column_of(spec, jobs, &times);
    let mut table =
        Table { columns: schema.columns.par_iter().map(column).collect(), notes: schema.notes.clone() };
    fill_products(schema, &mut table);
    table
}

fn feature<'a>(jobs: &'a FeatureTable, name: &str) -> Option<&'a [f64]> {
    jobs.specs().iter().position(|spec| spec.name == name).map(|at| jobs.column(at))
}

/// The columns of times, by name.
fn times_of<'a>(schema: &'a Schema, jobs: &FeatureTable, start: f64) -> BTreeMap<&'a str, Vec<f64>> {
    let submissions: Vec<f64> = jobs.arrivals().iter().map(|arrival| start + arrival).collect();
    let mut specs: Vec<&ColumnSpec> =
        schema.columns.iter().filter(|spec| spec.kind == ColumnKind::Time).collect();
    // References before the columns that are relative to them.
    specs.sort_by_key(|spec| match spec.role {
        Some(Role::Submit) => 0,
        Some(Role::Start) => 1,
        _ => 2,
    });
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for spec in specs {
        let values = match schema.reference(spec).and_then(|reference| times.get(reference.name.as_str())) {
            Some(reference) if spec.role != Some(Role::Submit) => {
                let offsets = feature(jobs, &spec.name);
                let offset = |row: usize| offsets.map_or(f64::NAN, |offsets| offsets[row]);
                reference.iter().enumerate().map(|(row, time)| time + offset(row)).collect()
            }
            _ => submissions.clone(),
        };
        times.insert(&spec.name, values);
    }
    times
}

fn column_of(spec: &ColumnSpec, jobs: &FeatureTable, times: &BTreeMap<&str, Vec<f64>>) -> Column {
    let n_jobs = jobs.n_jobs();
    let numbers = |values: Vec<f64>| {
        let format = spec.format.unwrap_or(Format::Plain { decimals: 0 });
        let rounded = values.into_iter().map(|value| format.round(value)).collect();
        Column::numbers(&spec.name, rounded, format)
    };
    let unknown = || vec![f64::NAN; n_jobs];
    match &spec.kind {
        ColumnKind::Index { first: Some(first) } => {
            numbers((0..n_jobs).map(|row| first + row as f64).collect())
        }
        ColumnKind::Index { first: None } => {
            Column::text(&spec.name, (0..n_jobs).map(|row| format!("job-{}", row + 1)))
        }
        ColumnKind::Constant { cell } => {
            Column::from_cells(&spec.name, std::iter::once(cell.as_str())).select(&vec![0; n_jobs])
        }
        ColumnKind::Time => numbers(times.get(spec.name.as_str()).cloned().unwrap_or_else(unknown)),
        ColumnKind::Difference { of, less } => match (times.get(of.as_str()), times.get(less.as_str())) {
            (Some(of), Some(less)) => numbers(of.iter().zip(less).map(|(of, less)| of - less).collect()),
            _ => numbers(unknown()),
        },
        ColumnKind::SincePrevious => numbers(jobs.intervals().to_vec()),
        _ if spec.role == Some(Role::Interval) => numbers(jobs.intervals().to_vec()),
        ColumnKind::Category => {
            let found = jobs.specs().iter().position(|found| found.name == spec.name);
            let Some((at, FeatureKind::Category { names })) = found.map(|at| (at, &jobs.specs()[at].kind))
            else {
                return numbers(unknown());
            };
            // Constraints may have changed a code.
            let last = names.len().saturating_sub(1);
            let codes: Vec<usize> = jobs.column(at).iter().map(|code| (*code as usize).min(last)).collect();
            let known = match spec.format {
                Some(_) => Column::from_cells(&spec.name, names.iter().map(String::as_str)),
                None => Column::text(&spec.name, names),
            };
            known.select(&codes)
        }
        ColumnKind::Count | ColumnKind::Real | ColumnKind::Product { .. } => {
            numbers(feature(jobs, &spec.name).map_or_else(unknown, <[f64]>::to_vec))
        }
    }
}

/// Computes the columns that are products of others.
fn fill_products(schema: &Schema, table: &mut Table) {
    for (at, spec) in schema.columns.iter().enumerate() {
        let ColumnKind::Product { of, scale, offset } = &spec.kind else { continue };
        let factors: Option<Vec<&[f64]>> = of.iter().map(|name| table.column(name)?.as_numbers()).collect();
        let Some(factors) = factors else { continue };
        let format = spec.format.unwrap_or(Format::Plain { decimals: 0 });
        let value = |row: usize| {
            format.round(factors.iter().map(|factor| factor[row]).product::<f64>() * scale + offset)
        };
        table.columns[at] = Column::numbers(&spec.name, (0..table.n_rows()).map(value).collect(), format);
    }
}

/// Rounds numbers, keeps them in the range of the training trace, and makes them obey enforced constraints.
pub fn enforce(schema: &Schema, jobs: &mut FeatureTable, ranges: &[ValueRange]) {
    let specs = jobs.specs().to_vec();
    let columns = jobs.columns_mut();
    columns.par_iter_mut().zip(&specs).zip(ranges).for_each(|((values, spec), range)| {
        let FeatureKind::Number { format } = spec.kind else { return };
        for value in values.iter_mut().filter(|value| !value.is_nan()) {
            *value = format.round(range.clamp(*value));
        }
    });
    for constraint in schema.constraints.iter().filter(|constraint| constraint.is_enforced()) {
        let at = |name: &str| specs.iter().position(|spec| spec.name == name);
        match &constraint.rule {
            Rule::AtMost { column, limit } => {
                let (Some(column), Some(limit)) = (at(column), at(limit)) else { continue };
                for row in 0..columns[column].len() {
                    columns[column][row] = columns[column][row].min(columns[limit][row]);
                }
            }
            Rule::MultipleOf { column, unit } => {
                let (Some(column), Some(unit)) = (at(column), at(unit)) else { continue };
                let min_ratio = if ranges[column].min > 0.0 { 1.0 } else { 0.0 };
                for row in 0..columns[column].len() {
                    let unit = columns[unit][row].max(1.0);
                    let value = &mut columns[column][row];
                    *value = (*value / unit).round().max(min_ratio) * unit;
                }
            }
        }
    }
}
