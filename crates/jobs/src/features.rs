//! Jobs as generators see them: a row of numbers a job, the first of which is how long after the one before it came.

use serde::{Deserialize, Serialize};
use workload::{JobRecord, JobStatus};

use crate::error::{Error, Result};
use crate::format::Format;
use crate::schema::Role;

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

/// Intervals one after the other, in seconds after the first job, whatever its own interval.
pub fn arrivals_of(intervals: &[f64]) -> Vec<f64> {
    let mut time = 0.0;
    let arrival = |(row, interval): (usize, &f64)| {
        time += if row == 0 { 0.0 } else { *interval };
        time
    };
    intervals.iter().enumerate().map(arrival).collect()
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
        arrivals_of(self.intervals())
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
