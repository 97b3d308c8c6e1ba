//! A job trace in the order of submission, as generators see it: a row of numbers a job, the first of which is how long
//! after the one before it came; and back again.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use workload::{JobRecord, JobStatus};

use crate::error::{Error, Result};
use crate::format::Format;
use crate::preset::Preset;
use crate::schema::{ColumnSpec, Kind, Role, Rule, Schema};
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureKind {
    Number {
        format: Format,
    },
    /// Values are numbers of these names.
    Category {
        names: Vec<String>,
    },
}

/// One thing about jobs that generators learn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeatureSpec {
    pub name: String,
    pub role: Option<Role>,
    pub kind: FeatureKind,
}

impl FeatureSpec {
    pub fn is_category(&self) -> bool {
        matches!(self.kind, FeatureKind::Category { .. })
    }

    /// A value as it would be read back.
    pub fn round(&self, value: f64) -> f64 {
        match &self.kind {
            FeatureKind::Number { format } if !value.is_nan() => format.round(value),
            _ => value,
        }
    }
}

/// Jobs as generators see them: a value a job for every feature. The first feature is the interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    pub specs: Vec<FeatureSpec>,
    /// Not a number where nothing is known.
    pub values: Vec<Vec<f64>>,
}

impl Jobs {
    pub fn len(&self) -> usize {
        self.values.first().map_or(0, Vec::len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn intervals(&self) -> &[f64] {
        &self.values[0]
    }

    pub fn position(&self, role: Role) -> Option<usize> {
        self.specs.iter().position(|spec| spec.role == Some(role))
    }

    pub fn with_role(&self, role: Role) -> Option<&[f64]> {
        self.position(role).map(|at| self.values[at].as_slice())
    }

    /// The jobs of a stretch.
    #[must_use]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let values = self.values.iter().map(|values| values[range.clone()].to_vec()).collect();
        Self { specs: self.specs.clone(), values }
    }

    /// When each came, in seconds after the first.
    pub fn arrivals(&self) -> Vec<f64> {
        let later = self.intervals().iter().skip(1).scan(0.0, |time, interval| {
            *time += interval;
            Some(*time)
        });
        std::iter::once(0.0).chain(later).take(self.len()).collect()
    }

    /// As a batch system would be given them; `no run time` is none at all.
    pub fn records(&self) -> Result<Vec<JobRecord>> {
        let Some(runs) = self.with_role(Role::RunTime) else {
            return Err(Error::NoColumn {
                role: "the run time",
                hint: "name one with --columns run-time=NAME",
            });
        };
        let [requested, nodes, cores, gpus, users] =
            [Role::RequestedTime, Role::Nodes, Role::Cores, Role::Gpus, Role::User]
                .map(|role| self.with_role(role));
        let count = |values: Option<&[f64]>, row: usize| {
            values.map(|values| values[row]).filter(|value| *value >= 1.0).map(|value| value as u32)
        };
        let arrivals = self.arrivals();
        let record = |row: usize| JobRecord {
            submit_seconds: arrivals[row],
            wait_seconds: None,
            run_seconds: runs[row].max(0.0),
            requested_seconds: requested.map(|values| values[row]).filter(|value| *value > 0.0),
            n_nodes: count(nodes, row),
            n_cores: count(cores, row),
            n_gpus: count(gpus, row),
            user: users.map(|values| values[row] as u32),
            status: JobStatus::Unknown,
        };
        Ok((0..self.len()).filter(|row| !runs[*row].is_nan()).map(record).collect())
    }
}

impl Trace {
    /// Reads a file; `columns` says what columns mean beside what the preset knows, `schema` overrules what is found.
    pub fn read(
        path: &Path,
        preset: Preset,
        columns: &BTreeMap<String, Role>,
        schema: Option<Schema>,
    ) -> Result<Self> {
        let table = source::read(path, preset)?;
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
        Self::new(table, &known, schema).map_err(|error| match error {
            Error::NoColumn { .. } | Error::Schema(_) => Error::file(path, error),
            other => other,
        })
    }

    pub fn new(table: Table, known: &BTreeMap<&str, Role>, schema: Option<Schema>) -> Result<Self> {
        let mut warnings = Vec::new();
        let submit = known.iter().find(|(name, role)| **role == Role::Submit && table.column(name).is_some());
        let table = match submit {
            Some((name, _)) => in_order(table, name, &mut warnings)?,
            None => table,
        };
        let schema = match schema {
            Some(schema) => checked(schema, &table)?,
            None => Schema::infer(&table, known)?,
        };
        Ok(Self { schema, table, warnings })
    }

    /// What there is to learn.
    pub fn jobs(&mut self) -> Result<Jobs> {
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

    fn intervals(&mut self) -> Result<(Vec<f64>, FeatureSpec)> {
        let interval =
            self.schema.with_role(Role::Interval).filter(|column| column.kind != Kind::SincePrevious);
        let (intervals, format) = if let Some(submit) = self.schema.with_role(Role::Submit) {
            let submits = self.table.column(&submit.name).and_then(Column::as_numbers).unwrap_or_default();
            let gaps = submits.windows(2).map(|pair| pair[1] - pair[0]);
            (std::iter::once(0.0).chain(gaps).collect(), submit.format)
        } else if let Some(interval) = interval {
            let known = self.table.column(&interval.name).and_then(Column::as_numbers);
            let mut values = known.map(<[f64]>::to_vec).ok_or_else(|| {
                Error::Schema(format!("{} holds words, and intervals are seconds", interval.name))
            })?;
            let n_bad = values.iter().filter(|value| value.is_nan() || **value < 0.0).count();
            if n_bad > 0 {
                self.warnings.push(format!("{n_bad} intervals are missing or negative; they count as zero"));
                values
                    .iter_mut()
                    .filter(|value| value.is_nan() || **value < 0.0)
                    .for_each(|value| *value = 0.0);
            }
            (values, interval.format)
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
            Kind::Constant { cell } => Column::from_cells(&spec.name, vec![cell.clone(); n_jobs]),
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
                let cells: Vec<String> = codes.iter().map(|code| names[*code as usize].clone()).collect();
                if spec.format.is_some() {
                    Column::from_cells(&spec.name, cells)
                } else {
                    Column::words(&spec.name, cells)
                }
            }
            Kind::Count | Kind::Real | Kind::Product { .. } => {
                numbers(feature(&spec.name).cloned().unwrap_or_else(|| vec![f64::NAN; n_jobs]))
            }
        }
    };
    let mut table =
        Table { columns: schema.columns.iter().map(column).collect(), notes: schema.notes.clone() };
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
    for ((spec, values), (least, most)) in jobs.specs.iter().zip(&mut jobs.values).zip(ranges) {
        let FeatureKind::Number { format } = spec.kind else { continue };
        for value in values.iter_mut().filter(|value| !value.is_nan()) {
            *value = format.round(value.clamp(*least, *most));
        }
    }
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
