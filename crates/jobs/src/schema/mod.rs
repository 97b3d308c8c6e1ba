//! What the columns of a job trace are: found by looking at them, corrected in a file.

mod infer;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::Format;

/// Epoch seconds are larger than this, other times are not.
const LEAST_EPOCH: f64 = 1e8;
/// How SWF says in its header what its seconds are counted from.
pub const UNIX_START: &str = "UnixStartTime:";

/// What a column means to a batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Index,
    Submit,
    /// Seconds since the job before.
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
    /// What else it belongs to: a project, a queue.
    Group,
}

impl Role {
    /// Whether its cells are numbers or times; others may be words.
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

/// What the values of a column are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Another one for every job; made anew.
    Index {
        first: Option<f64>,
    },
    /// Always the same cell.
    Constant {
        cell: String,
    },
    /// Whole numbers.
    Count,
    /// Numbers with this many digits after the point.
    Real,
    Category,
    /// A moment: the submission, or a time after one.
    Time,
    /// `of` minus `less`, always.
    Difference {
        of: String,
        less: String,
    },
    /// Seconds since the submission of the job before.
    SincePrevious,
    /// The product of these columns times `scale`, plus `offset`, always.
    Product {
        of: Vec<String>,
        scale: f64,
        offset: f64,
    },
}

impl Kind {
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
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// How its numbers are written; nothing for words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    pub kind: Kind,
}

/// What holds between two columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    AtMost { column: String, limit: String },
    MultipleOf { column: String, unit: String },
}

/// How often a rule holds in the trace that it was found in; one that always holds is kept to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    pub rule: Rule,
    pub share: f64,
}

impl Constraint {
    pub fn is_kept(&self) -> bool {
        self.share >= 1.0
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    pub columns: Vec<ColumnSpec>,
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    /// The moment of the first submission, where it is known.
    #[serde(default)]
    pub begins: Option<f64>,
    /// What the file says of itself, line by line.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Schema {
    pub fn with_role(&self, role: Role) -> Option<&ColumnSpec> {
        self.columns.iter().find(|column| column.role == Some(role))
    }

    /// The epoch second that moments are counted from, where there is a calendar at all.
    pub fn epoch(&self) -> Option<f64> {
        if self.begins? > LEAST_EPOCH {
            return Some(0.0);
        }
        let start = self.notes.iter().find_map(|note| note.strip_prefix(UNIX_START))?;
        start.trim().parse().ok().filter(|epoch| *epoch > LEAST_EPOCH)
    }

    pub fn column(&self, name: &str) -> Option<&ColumnSpec> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column that moments of this one are counted from: ends from starts, the rest from submissions.
    pub fn reference(&self, column: &ColumnSpec) -> Option<&ColumnSpec> {
        let start = self.with_role(Role::Start).filter(|_| column.role == Some(Role::End));
        start.or_else(|| self.with_role(Role::Submit)).filter(|found| found.name != column.name)
    }

    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        toml::from_str(&text).map_err(|error| Error::file(path, error))
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = toml::to_string_pretty(self).map_err(|error| Error::file(path, error))?;
        std::fs::write(path, text).map_err(Error::io(path))
    }
}
