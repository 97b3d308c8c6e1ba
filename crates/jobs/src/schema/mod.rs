//! The schema of a job trace: the role, type and format of each column, and constraints between columns.
//! It is inferred from the data and can be corrected in a TOML file.

mod infer;
mod relations;

use std::path::Path;

use files::Limits;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::Format;

/// Epoch seconds are larger than this; times counted from the start of a trace are smaller.
const MIN_EPOCH_SECONDS: f64 = 1e8;
/// The SWF header line with the epoch second that times are counted from.
pub const UNIX_START: &str = "UnixStartTime:";

/// What a column means to a batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Index,
    Submit,
    /// Seconds since the submission of the previous job.
    Interval,
    Start,
    End,
    Wait,
    RunTime,
    RequestedTime,
    Cores,
    Nodes,
    Gpus,
    Status,
    User,
    /// A project, account or queue.
    Group,
}

impl Role {
    /// Whether cells have to be numbers or times. Other roles allow text.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Index | Self::Status | Self::User | Self::Group)
    }

    pub const ALL: [Self; 14] = [
        Self::Index,
        Self::Submit,
        Self::Interval,
        Self::Start,
        Self::End,
        Self::Wait,
        Self::RunTime,
        Self::RequestedTime,
        Self::Cores,
        Self::Nodes,
        Self::Gpus,
        Self::Status,
        Self::User,
        Self::Group,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Submit => "submit",
            Self::Interval => "interval",
            Self::Start => "start",
            Self::End => "end",
            Self::Wait => "wait",
            Self::RunTime => "run-time",
            Self::RequestedTime => "requested-time",
            Self::Cores => "cores",
            Self::Nodes => "nodes",
            Self::Gpus => "gpus",
            Self::Status => "status",
            Self::User => "user",
            Self::Group => "group",
        }
    }
}

/// The type of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// A running number or a unique id. Generators number jobs anew.
    Index {
        first: Option<f64>,
    },
    /// The same cell in every row.
    Constant {
        cell: String,
    },
    /// Whole numbers.
    Count,
    /// Numbers with decimals.
    Real,
    Category,
    /// A time: the submission, or a later time of the job.
    Time,
    /// `of` minus `less`.
    Difference {
        of: String,
        less: String,
    },
    /// Seconds since the submission of the previous job.
    SincePrevious,
    /// The product of the columns `of`, times `scale`, plus `offset`.
    Product {
        of: Vec<String>,
        scale: f64,
        offset: f64,
    },
}

impl ColumnKind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Index { .. } => "index",
            Self::Constant { .. } => "constant",
            Self::Count => "count",
            Self::Real => "real",
            Self::Category => "category",
            Self::Time => "time",
            Self::Difference { .. } => "difference",
            Self::SincePrevious => "since previous",
            Self::Product { .. } => "product",
        }
    }

    /// Whether cells of such a column have to be numbers.
    pub fn needs_numbers(&self) -> bool {
        matches!(self, Self::Count | Self::Real | Self::Time)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// How numbers are written; none for text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    pub kind: ColumnKind,
}

/// A relation between two columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    AtMost { column: String, limit: String },
    MultipleOf { column: String, unit: String },
}

/// A rule, and the fraction of jobs for which it holds. Synthetic jobs always obey a rule without exceptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    pub rule: Rule,
    #[serde(alias = "share")]
    pub fraction: f64,
}

impl Constraint {
    /// Whether the rule holds without exception, and is enforced.
    pub fn is_enforced(&self) -> bool {
        self.fraction >= 1.0
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    pub columns: Vec<ColumnSpec>,
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    /// The first submission time, if there is a column of them.
    #[serde(default, alias = "begins")]
    pub first_submission: Option<f64>,
    /// Header comments of the file, line by line.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Schema {
    pub fn with_role(&self, role: Role) -> Option<&ColumnSpec> {
        self.columns.iter().find(|column| column.role == Some(role))
    }

    /// The epoch second that times are counted from, if the trace is tied to a calendar.
    pub fn epoch(&self) -> Option<f64> {
        if self.first_submission? > MIN_EPOCH_SECONDS {
            return Some(0.0);
        }
        let start = self.notes.iter().find_map(|note| note.strip_prefix(UNIX_START))?;
        start.trim().parse().ok().filter(|epoch| *epoch > MIN_EPOCH_SECONDS)
    }

    pub fn column(&self, name: &str) -> Option<&ColumnSpec> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column that times of this one are relative to: starts for ends, submissions for the rest.
    pub fn reference(&self, column: &ColumnSpec) -> Option<&ColumnSpec> {
        let start = self.with_role(Role::Start).filter(|_| column.role == Some(Role::End));
        start.or_else(|| self.with_role(Role::Submit)).filter(|found| found.name != column.name)
    }

    pub fn read(path: &Path, limits: &Limits) -> Result<Self> {
        let fault = |message: String| Error::SchemaFile { path: path.display().to_string(), message };
        let text =
            String::from_utf8(files::read(path, limits)?).map_err(|_| fault("it is not UTF-8".into()))?;
        toml::from_str(&text).map_err(|error| {
            let line = error
                .span()
                .map_or(1, |span| 1 + text.get(..span.start).unwrap_or_default().matches('\n').count());
            fault(format!("line {line}: {}", error.message()))
        })
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = toml::to_string_pretty(self).map_err(|error| Error::SchemaFile {
            path: path.display().to_string(),
            message: error.to_string(),
        })?;
        Ok(files::write(path, text.as_bytes())?)
    }
}
