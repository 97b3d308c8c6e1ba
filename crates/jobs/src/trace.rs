//! A job trace: a table in the order of submission, and what its columns are.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::features::{FeatureKind, FeatureSpec, Jobs};
use crate::format::{Format, is_missing};
use crate::preset::Preset;
use crate::schema::{ColumnSpec, Kind, Role, Schema};
use crate::source;
use crate::table::{Column, Table, Values};

/// What the interval is called where no column has it.
const INTERVAL: &str = "interval";

/// A trace, in the order of submission.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub schema: Schema,
    pub table: Table,
    /// What had to be put right.
    pub warnings: Vec<String>,
}

impl Trace {
    /// Reads a file; `columns` says what columns mean beside what the preset knows, `schema` overrules what is found.
    pub fn read(
        path: &Path,
        preset: Preset,
        columns: &BTreeMap<String, Role>,
        schema: Option<Schema>,
    ) -> Result<Self> {
        let mut table = source::read(path, preset)?;
        let mut warnings = Vec::new();
        preset.mend(&mut table, &mut warnings);
        let mut known = preset.roles();
        for (name, role) in columns {
            if table.column(name).is_none() {
                let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
                let there = names.join(", ");
                return Err(Error::file(path, format!("there is no column {name}; there are {there}")));
            }
            known.retain(|_, known| known != role);
            known.insert(name.as_str(), *role);
        }
        let mut trace = Self::new(table, &known, schema).map_err(|error| match error {
            Error::NoColumn { .. } | Error::Schema(_) => Error::file(path, error),
            other => other,
        })?;
        trace.warnings.splice(..0, warnings);
        Ok(trace)
    }

    pub fn new(mut table: Table, known: &BTreeMap<&str, Role>, schema: Option<Schema>) -> Result<Self> {
        let mut warnings = Vec::new();
        let named = |role: Role, table: &Table| -> Option<String> {
            match &schema {
                Some(schema) => schema.with_role(role).map(|spec| spec.name.clone()),
                None => {
                    let mut named = known.iter().filter(|(_, known)| **known == role).map(|(name, _)| *name);
                    named.find(|name| table.column(name).is_some()).map(str::to_owned)
                }
            }
        };
        for role in Role::ALL.into_iter().filter(|role| role.is_number()) {
            if let Some(column) = named(role, &table) {
                mend_words(&mut table, &column, &mut warnings)?;
            }
        }
        if let Some(submit) = named(Role::Submit, &table) {
            table = in_order(table, &submit, &mut warnings)?;
        } else if let Some(interval) = named(Role::Interval, &table) {
            mend_intervals(&mut table, &interval, &mut warnings)?;
        }
        let schema = match schema {
            Some(schema) => checked(schema, &table)?,
            None => Schema::infer(&table, known)?,
        };
        Ok(Self { schema, table, warnings })
    }

    /// What there is to learn.
    pub fn jobs(&self) -> Result<Jobs> {
        let mut specs = Vec::new();
        let mut values = Vec::new();
        let (intervals, spec) = self.intervals()?;
        specs.push(spec);
        values.push(intervals);
        for column in &self.schema.columns {
            let Some(found) = self.table.column(&column.name) else { continue };
            if let Some((spec, of_column)) = self.feature(column, found)? {
                specs.push(spec);
                values.push(of_column);
            }
        }
        Ok(Jobs { specs, values })
    }

    fn intervals(&self) -> Result<(Vec<f64>, FeatureSpec)> {
        let interval =
            self.schema.with_role(Role::Interval).filter(|column| column.kind != Kind::SincePrevious);
        let (intervals, format) = if let Some(submit) = self.schema.with_role(Role::Submit) {
            let submits = self.table.column(&submit.name).and_then(Column::as_numbers).unwrap_or_default();
            let gaps = submits.windows(2).map(|pair| pair[1] - pair[0]);
            (std::iter::once(0.0).chain(gaps).collect(), submit.format)
        } else if let Some(interval) = interval {
            let values = self.table.column(&interval.name).and_then(Column::as_numbers).unwrap_or_default();
            (values.to_vec(), interval.format)
        } else {
            return Err(Error::NoColumn {
                role: "the submission",
                hint: "name one with --columns submit=NAME",
            });
        };
        let name =
            self.schema.with_role(Role::Interval).map_or(INTERVAL, |column| column.name.as_str()).to_owned();
        let format = format.filter(|format| !format.is_moment()).unwrap_or(Format::Plain { decimals: 0 });
        let kind = FeatureKind::Number { format };
        Ok((intervals, FeatureSpec { name, role: Some(Role::Interval), kind }))
    }

    fn feature(&self, spec: &ColumnSpec, column: &Column) -> Result<Option<(FeatureSpec, Vec<f64>)>> {
        let made = |role: Option<Role>, kind: FeatureKind, values: Vec<f64>| {
            Ok(Some((FeatureSpec { name: spec.name.clone(), role, kind }, values)))
        };
        match &spec.kind {
            _ if matches!(spec.role, Some(Role::Submit | Role::Interval)) => Ok(None),
            Kind::Index { .. }
            | Kind::Constant { .. }
            | Kind::Difference { .. }
            | Kind::Product { .. }
            | Kind::SincePrevious => Ok(None),
            Kind::Category => {
                let cells = Column::words(&spec.name, (0..column.len()).map(|row| column.cell(row)));
                let Values::Words { codes, names } = cells.values else { return Ok(None) };
                let values = codes.into_iter().map(f64::from).collect();
                made(spec.role, FeatureKind::Category { names }, values)
            }
            Kind::Time => {
                let Some(reference) = self.schema.reference(spec) else { return Ok(None) };
                let from =
                    self.table.column(&reference.name).and_then(Column::as_numbers).unwrap_or_default();
                let moments = column.as_numbers().unwrap_or_default();
                let values = moments.iter().zip(from).map(|(moment, from)| moment - from).collect();
                made(
                    self.role_of_time(spec),
                    FeatureKind::Number { format: Format::Plain { decimals: 0 } },
                    values,
                )
            }
            Kind::Count | Kind::Real => {
                let Values::Numbers { values, format } = &column.values else {
                    return Err(Error::Schema(format!("{} holds words: it is a category", spec.name)));
                };
                made(spec.role, FeatureKind::Number { format: *format }, values.clone())
            }
        }
    }

    /// Waiting ends with the start, running with the end, unless there are columns that say so themselves.
    fn role_of_time(&self, spec: &ColumnSpec) -> Option<Role> {
        let role = match spec.role? {
            Role::Start => Role::Wait,
            Role::End if self.schema.with_role(Role::Start).is_some() => Role::RunTime,
            _ => return None,
        };
        let own = self.schema.with_role(role);
        own.is_none_or(|own| matches!(own.kind, Kind::Difference { .. })).then_some(role)
    }
}

/// Cells that are no numbers, where most are, count as not known.
fn mend_words(table: &mut Table, name: &str, warnings: &mut Vec<String>) -> Result<()> {
    let Some(column) = table.columns.iter_mut().find(|column| column.name == name) else { return Ok(()) };
    let Values::Words { codes, names } = &column.values else { return Ok(()) };
    let cells = || codes.iter().map(|code| names[*code as usize].as_str());
    if cells().all(is_missing) {
        return Ok(());
    }
    let Some(format) = Format::of_most(cells()) else {
        let first = cells().next().unwrap_or_default();
        return Err(Error::Schema(format!("{name} is to hold numbers or times, and holds {first}")));
    };
    let odd: Vec<&str> = cells().filter(|cell| !is_missing(cell) && format.parse(cell).is_none()).collect();
    warnings.push(format!(
        "{} cells of {name} are no numbers and count as not known; the first is {}",
        odd.len(),
        odd.first().copied().unwrap_or_default()
    ));
    let values = cells().map(|cell| format.parse(cell).unwrap_or(f64::NAN)).collect();
    column.values = Values::Numbers { values, format };
    Ok(())
}

/// In the order of submission, without jobs that were never submitted.
fn in_order(table: Table, submit: &str, warnings: &mut Vec<String>) -> Result<Table> {
    let submits = table
        .column(submit)
        .and_then(Column::as_numbers)
        .ok_or_else(|| Error::Schema(format!("{submit} holds words, and submissions are moments")))?;
    let mut order: Vec<usize> = (0..submits.len()).filter(|row| !submits[*row].is_nan()).collect();
    let n_unknown = submits.len() - order.len();
    if n_unknown > 0 {
        warnings.push(format!("{n_unknown} jobs have no submission and are left out"));
    }
    if order.is_empty() {
        return Err(Error::Schema("no job has a submission".into()));
    }
    let n_early = order.windows(2).filter(|pair| submits[pair[1]] < submits[pair[0]]).count();
    if n_early > 0 {
        warnings.push(format!("{n_early} jobs came before the one above them; they were put in order"));
    }
    if n_early == 0 && n_unknown == 0 {
        return Ok(table);
    }
    order.sort_by(|a, b| submits[*a].total_cmp(&submits[*b]));
    Ok(table.select(&order))
}

/// Intervals that nobody can have waited count as none.
fn mend_intervals(table: &mut Table, interval: &str, warnings: &mut Vec<String>) -> Result<()> {
    let column = table.columns.iter_mut().find(|column| column.name == interval);
    let Some(Values::Numbers { values, .. }) = column.map(|column| &mut column.values) else {
        return Err(Error::Schema(format!("{interval} holds words, and intervals are seconds")));
    };
    let mut n_bad = 0;
    for value in values.iter_mut().filter(|value| value.is_nan() || **value < 0.0) {
        *value = 0.0;
        n_bad += 1;
    }
    if n_bad > 0 {
        warnings.push(format!("{n_bad} intervals are missing or negative; they count as zero"));
    }
    Ok(())
}

fn checked(schema: Schema, table: &Table) -> Result<Schema> {
    for spec in &schema.columns {
        let Some(column) = table.column(&spec.name) else {
            return Err(Error::Schema(format!("the schema has a column {}, the file has not", spec.name)));
        };
        let wants_numbers = matches!(spec.kind, Kind::Count | Kind::Real | Kind::Time);
        if wants_numbers && column.as_numbers().is_none() {
            return Err(Error::Schema(format!(
                "{} holds words, and the schema says {}",
                spec.name,
                spec.kind.name()
            )));
        }
    }
    Ok(schema)
}
