//! The features of a trace: which columns generators are trained on, and as what.

use super::Trace;
use crate::error::TraceError;
use crate::features::{FeatureKind, FeatureSpec, FeatureTable};
use crate::format::Format;
use crate::schema::{ColumnKind, ColumnSpec, Role};
use crate::table::{Column, Values};

/// The name of the interval if no column has it.
const INTERVAL: &str = "interval";

impl Trace {
    /// The features that generators are trained on.
    pub fn features(&self) -> Result<FeatureTable, TraceError> {
        let mut specs = Vec::new();
        let mut columns = Vec::new();
        let (spec, intervals) = self.intervals()?;
        specs.push(spec);
        columns.push(intervals);
        for column in &self.schema.columns {
            if let Some((spec, values)) = self.feature(column)? {
                specs.push(spec);
                columns.push(values);
            }
        }
        FeatureTable::new(specs, columns)
    }

    fn numbers(&self, column: &str) -> Result<&[f64], TraceError> {
        let found = self.column(column)?;
        found.as_numbers().ok_or_else(|| TraceError::NotNumbers {
            column: column.to_owned(),
            cell: if found.is_empty() { String::new() } else { found.cell(0) },
        })
    }

    fn column(&self, column: &str) -> Result<&Column, TraceError> {
        self.table.column(column).ok_or_else(|| TraceError::NotInTrace { column: column.to_owned() })
    }

    fn intervals(&self) -> Result<(FeatureSpec, Vec<f64>), TraceError> {
        let interval =
            self.schema.with_role(Role::Interval).filter(|column| column.kind != ColumnKind::SincePrevious);
        let (intervals, format) = if let Some(submit) = self.schema.with_role(Role::Submit) {
            let submissions = self.numbers(&submit.name)?;
            let gaps = submissions.windows(2).map(|pair| pair[1] - pair[0]);
            (std::iter::once(0.0).chain(gaps).collect(), submit.format)
        } else if let Some(interval) = interval {
            (self.numbers(&interval.name)?.to_vec(), interval.format)
        } else {
            return Err(TraceError::NoSubmission);
        };
        let name =
            self.schema.with_role(Role::Interval).map_or(INTERVAL, |column| column.name.as_str()).to_owned();
        let format = format.filter(|format| !format.is_time()).unwrap_or(Format::Plain { decimals: 0 });
        let kind = FeatureKind::Number { format };
        Ok((FeatureSpec { name, role: Some(Role::Interval), kind }, intervals))
    }

    /// The feature of a column; none if the column is generated anew or follows from others.
    fn feature(&self, spec: &ColumnSpec) -> Result<Option<(FeatureSpec, Vec<f64>)>, TraceError> {
        if matches!(spec.role, Some(Role::Submit | Role::Interval)) {
            return Ok(None);
        }
        let (role, kind, values) = match &spec.kind {
            ColumnKind::Index { .. }
            | ColumnKind::Constant { .. }
            | ColumnKind::Difference { .. }
            | ColumnKind::Product { .. }
            | ColumnKind::SincePrevious => return Ok(None),
            ColumnKind::Category => {
                let (codes, names) = self.column(&spec.name)?.categories();
                let codes = codes.into_iter().map(f64::from).collect();
                (spec.role, FeatureKind::Category { names }, codes)
            }
            ColumnKind::Time => {
                let Some(reference) = self.schema.reference(spec) else { return Ok(None) };
                let times = self.numbers(&spec.name)?.iter().zip(self.numbers(&reference.name)?);
                let offsets = times.map(|(time, reference)| time - reference).collect();
                let format = Format::Plain { decimals: 0 };
                (self.role_of_offset(spec), FeatureKind::Number { format }, offsets)
            }
            ColumnKind::Count | ColumnKind::Real => {
                let Values::Numbers { values, format } = &self.column(&spec.name)?.values else {
                    let (column, kind) = (spec.name.clone(), spec.kind.name());
                    return Err(TraceError::TextForKind { column, kind });
                };
                (spec.role, FeatureKind::Number { format: *format }, values.clone())
            }
        };
        Ok(Some((FeatureSpec { name: spec.name.clone(), role, kind }, values)))
    }

    /// The time from submission to start is the wait, from start to end the run time, unless another column has it.
    fn role_of_offset(&self, spec: &ColumnSpec) -> Option<Role> {
        let role = match spec.role? {
            Role::Start => Role::Wait,
            Role::End if self.schema.with_role(Role::Start).is_some() => Role::RunTime,
            _ => return None,
        };
        let other = self.schema.with_role(role);
        other.is_none_or(|other| matches!(other.kind, ColumnKind::Difference { .. })).then_some(role)
    }
}
