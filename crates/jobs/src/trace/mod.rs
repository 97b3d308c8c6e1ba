//! A job trace: a table in the order of submission, with its schema.

mod features;
mod normalise;
mod summary;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use files::Limits;
use learn::artifact::{DataOrigin, hexadecimal};
use sha2::{Digest, Sha256};
use workload::Timestamp;

pub use self::normalise::Warning;
use self::normalise::{checked, correct_intervals, in_order, numbers_from_text};
use crate::error::{Error, MismatchError, Result, TraceError};
use crate::format::is_missing;
use crate::preset::Preset;
use crate::schema::{Role, Schema};
use crate::source;
use crate::table::{Column, Table, Values};

/// What SWF writes for an unknown value.
const SWF_UNKNOWN: f64 = -1.0;

/// How to read the columns of a trace.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// None recognises the layout by its columns.
    pub preset: Option<Preset>,
    /// Roles by column name, in addition to those of the preset.
    pub roles: BTreeMap<String, Role>,
    /// Replaces inference.
    pub schema: Option<Schema>,
    pub limits: Limits,
}

impl ReadOptions {
    pub fn preset(preset: Preset) -> Self {
        Self { preset: Some(preset), ..Self::default() }
    }
}

/// Jobs in the order of submission, with the schema of their columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    schema: Schema,
    table: Table,
    preset: Preset,
    warnings: Vec<Warning>,
}

impl Trace {
    pub fn read(path: &Path, options: &ReadOptions) -> Result<Self> {
        Self::from_table(source::read(path, options.preset, &options.limits)?, options)
            .map_err(Error::in_file(path))
    }

    /// Reads a synthetic counterpart of this trace: with the same preset, columns, roles and types.
    pub fn read_counterpart(&self, path: &Path, limits: &Limits) -> Result<Self> {
        let mut table = source::read(path, Some(self.preset), limits)?;
        let mut warnings = Vec::new();
        self.preset.normalise(&mut table, &mut warnings);
        self.check_columns(&table)?;
        let trace =
            Self::normalised(table, &BTreeMap::new(), Some(self.schema.clone()), self.preset, warnings)
                .map_err(Error::in_file(path))?;
        self.check_known(&trace)?;
        Ok(trace)
    }

    pub fn from_table(mut table: Table, options: &ReadOptions) -> Result<Self, TraceError> {
        if table.n_rows() == 0 {
            return Err(TraceError::NoJobs);
        }
        let mut warnings = Vec::new();
        let has_submission = options.roles.values().any(|role| matches!(role, Role::Submit | Role::Interval));
        let preset = match options.preset {
            Some(preset) => preset,
            // Whoever describes the columns does not want them to be recognised.
            None if has_submission || options.schema.is_some() => Preset::Csv,
            None => Preset::of(&table),
        };
        preset.normalise(&mut table, &mut warnings);
        let mut roles = preset.roles();
        for (column, role) in &options.roles {
            if table.column(column).is_none() {
                let available = table.column_names();
                return Err(TraceError::NoColumn { column: column.clone(), available });
            }
            roles.retain(|_, known| known != role);
            roles.insert(column.as_str(), *role);
        }
        if let Some(column) = preset.submission_column()
            && !has_submission
            && options.schema.is_none()
            && table.column(column).is_none()
        {
            return Err(TraceError::NotOfPreset { preset, column });
        }
        Self::normalised(table, &roles, options.schema.clone(), preset, warnings)
    }

    fn normalised(
        mut table: Table,
        roles: &BTreeMap<&str, Role>,
        schema: Option<Schema>,
        preset: Preset,
        mut warnings: Vec<Warning>,
    ) -> Result<Self, TraceError> {
        let named = |role: Role, table: &Table| -> Option<String> {
            match &schema {
                Some(schema) => schema.with_role(role).map(|spec| spec.name.clone()),
                None => {
                    let mut named = roles.iter().filter(|(_, known)| **known == role).map(|(name, _)| *name);
                    named.find(|name| table.column(name).is_some()).map(str::to_owned)
                }
            }
        };
        for role in Role::ALL.into_iter().filter(|role| role.is_number()) {
            if let Some(column) = named(role, &table) {
                numbers_from_text(&mut table, &column, &mut warnings)?;
            }
        }
        if let Some(submit) = named(Role::Submit, &table) {
            table = in_order(table, &submit, &mut warnings)?;
        } else if let Some(interval) = named(Role::Interval, &table) {
            correct_intervals(&mut table, &interval, &mut warnings)?;
        }
        let schema = match schema {
            Some(schema) => checked(schema, &table)?,
            None => Schema::infer(&table, roles)?,
        };
        Ok(Self { schema, table, preset, warnings })
    }

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn preset(&self) -> Preset {
        self.preset
    }

    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Where the trace comes from, for the manifest of a model: the file, its hash, and the time it covers if it is tied to a
    /// calendar.
    pub fn data_origin(&self, path: &Path) -> Result<DataOrigin> {
        let mut file = File::open(path).map_err(Error::io(path))?;
        let mut hash = Sha256::new();
        std::io::copy(&mut file, &mut hash).map_err(Error::io(path))?;
        let sha256 = hexadecimal(&hash.finalize());
        let submissions =
            self.schema.with_role(Role::Submit).and_then(|spec| self.table.column(&spec.name)?.as_numbers());
        let time = |seconds: Option<&f64>| {
            let seconds = self.schema.epoch()? + seconds?;
            Some(Timestamp((seconds * 1e3).round() as i64))
        };
        Ok(DataOrigin {
            address: path.display().to_string(),
            from: time(submissions.and_then(<[f64]>::first)),
            to: time(submissions.and_then(<[f64]>::last)),
            sha256: Some(sha256),
        })
    }

    /// Rejects a table that lacks columns of this trace, or has others.
    fn check_columns(&self, table: &Table) -> Result<(), MismatchError> {
        let preset = self.preset;
        for spec in &self.schema.columns {
            if table.column(&spec.name).is_none() {
                return Err(MismatchError::MissingColumn { preset, column: spec.name.clone() });
            }
        }
        for column in &table.columns {
            if self.schema.column(&column.name).is_none() {
                return Err(MismatchError::ExtraColumn { preset, column: column.name.clone() });
            }
        }
        Ok(())
    }

    /// Rejects a counterpart that knows nothing about a column of this trace. SWF files always have all columns, but
    /// one that was converted from another layout has only a few of them filled in.
    fn check_known(&self, other: &Self) -> Result<(), MismatchError> {
        for column in &self.table.columns {
            let is_known_here = 2 * self.n_known(column) > column.len();
            let counterpart = other.table.column(&column.name);
            if is_known_here && counterpart.is_some_and(|counterpart| self.n_known(counterpart) == 0) {
                let (preset, column) = (self.preset, column.name.clone());
                return Err(MismatchError::UnknownColumn { preset, column });
            }
        }
        Ok(())
    }

    fn n_known(&self, column: &Column) -> usize {
        let is_swf = self.preset == Preset::Swf;
        match &column.values {
            Values::Numbers { values, .. } => {
                let is_unknown = |value: f64| value.is_nan() || (is_swf && value == SWF_UNKNOWN);
                values.iter().filter(|value| !is_unknown(**value)).count()
            }
            Values::Text { codes, names } => {
                codes.iter().filter(|code| !is_missing(&names[**code as usize])).count()
            }
        }
    }
}
