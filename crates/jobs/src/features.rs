//! The numeric view of a trace that generators are trained on: one column of numbers per feature.

use std::ops::Range;

use learn::artifact::restore::{RestoreError, ensure};
use serde::{Deserialize, Serialize};

use crate::error::TraceError;
use crate::format::Format;
use crate::schema::Role;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureKind {
    Number {
        format: Format,
    },
    /// Values are indices into `names`.
    Category {
        names: Vec<String>,
    },
}

/// One feature of jobs: a column, or the difference of two times.
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

    /// Checks a feature that was read from a file.
    pub fn check(&self) -> Result<(), RestoreError> {
        match &self.kind {
            FeatureKind::Number { .. } => Ok(()),
            FeatureKind::Category { names } => ensure(!names.is_empty(), "a category has no names"),
        }
    }

    /// Checks stored values: codes of categories have to have names.
    pub fn check_values(&self, values: &[f64]) -> Result<(), RestoreError> {
        let FeatureKind::Category { names } = &self.kind else { return Ok(()) };
        let has_name = |code: &f64| (0.0..names.len() as f64).contains(code);
        ensure(values.iter().all(has_name), "a value of a category has no name")
    }

    /// The value that would be read back after writing this one.
    pub fn round(&self, value: f64) -> f64 {
        match &self.kind {
            FeatureKind::Number { format } if !value.is_nan() => format.round(value),
            _ => value,
        }
    }
}

/// Jobs in the order of submission, as one column of numbers per feature. NaN is an unknown value.
///
/// The first feature is always the interval: seconds since the submission of the previous job.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureTable {
    specs: Vec<FeatureSpec>,
    columns: Vec<Vec<f64>>,
}

/// Submission times in seconds after the first job. The interval of the first job is ignored.
pub fn arrivals_of(intervals: &[f64]) -> Vec<f64> {
    let mut time = 0.0;
    let arrival = |(job, interval): (usize, &f64)| {
        time += if job == 0 { 0.0 } else { *interval };
        time
    };
    intervals.iter().enumerate().map(arrival).collect()
}

impl FeatureTable {
    /// Columns of equal length, the interval first.
    pub fn new(specs: Vec<FeatureSpec>, columns: Vec<Vec<f64>>) -> Result<Self, TraceError> {
        if specs.first().and_then(|spec| spec.role) != Some(Role::Interval) || specs.len() != columns.len() {
            return Err(TraceError::IntervalNotFirst);
        }
        let expected = columns[0].len();
        for (spec, column) in specs.iter().zip(&columns) {
            if column.len() != expected {
                let (feature, found) = (spec.name.clone(), column.len());
                return Err(TraceError::UnevenFeatures { feature, found, expected });
            }
        }
        Ok(Self { specs, columns })
    }

    /// A table with the features of this one and other jobs. `columns` have to be as many as there are features.
    pub(crate) fn with_columns(&self, columns: Vec<Vec<f64>>) -> Self {
        debug_assert_eq!(columns.len(), self.specs.len());
        Self { specs: self.specs.clone(), columns }
    }

    pub fn n_jobs(&self) -> usize {
        self.columns[0].len()
    }

    pub fn specs(&self) -> &[FeatureSpec] {
        &self.specs
    }

    pub fn columns(&self) -> &[Vec<f64>] {
        &self.columns
    }

    pub(crate) fn columns_mut(&mut self) -> &mut [Vec<f64>] {
        &mut self.columns
    }

    pub fn column(&self, feature: usize) -> &[f64] {
        &self.columns[feature]
    }

    pub fn value(&self, feature: usize, job: usize) -> f64 {
        self.columns[feature][job]
    }

    pub fn intervals(&self) -> &[f64] {
        &self.columns[0]
    }

    /// The first feature of a role.
    pub fn position(&self, role: Role) -> Option<usize> {
        self.specs.iter().position(|spec| spec.role == Some(role))
    }

    pub fn with_role(&self, role: Role) -> Option<&[f64]> {
        self.position(role).map(|feature| self.column(feature))
    }

    /// Consecutive jobs.
    #[must_use]
    pub fn slice(&self, jobs: Range<usize>) -> Self {
        self.with_columns(self.columns.iter().map(|column| column[jobs.clone()].to_vec()).collect())
    }

    /// The given jobs, in the given order. Their intervals are unchanged.
    #[must_use]
    pub fn select(&self, jobs: &[usize]) -> Self {
        let select = |column: &Vec<f64>| jobs.iter().map(|job| column[*job]).collect();
        self.with_columns(self.columns.iter().map(select).collect())
    }

    /// Submission times in seconds after the first job.
    pub fn arrivals(&self) -> Vec<f64> {
        arrivals_of(self.intervals())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, role: Role) -> FeatureSpec {
        let kind = FeatureKind::Number { format: Format::Plain { decimals: 0 } };
        FeatureSpec { name: name.into(), role: Some(role), kind }
    }

    #[test]
    fn the_interval_comes_first_and_columns_are_of_one_length() {
        let (interval, run) = (spec("interval", Role::Interval), spec("run", Role::RunTime));
        let table =
            FeatureTable::new(vec![interval.clone(), run.clone()], vec![vec![9.0, 1.0, 2.0], vec![5.0; 3]])
                .unwrap();
        assert_eq!(table.arrivals(), [0.0, 1.0, 3.0]);
        assert_eq!(table.select(&[2, 0]).intervals(), [2.0, 9.0]);
        let error = FeatureTable::new(vec![run.clone()], vec![vec![1.0]]).unwrap_err();
        assert_eq!(error, TraceError::IntervalNotFirst);
        let error = FeatureTable::new(vec![interval, run], vec![vec![1.0], vec![]]).unwrap_err();
        assert_eq!(error, TraceError::UnevenFeatures { feature: "run".into(), found: 0, expected: 1 });
    }
}
