//! The kinds of jobs that a campaign can run, and their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More ranks than any node has threads; a kind with more is a typing error.
const MAX_RANKS: u16 = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// Maximum-likelihood fits of partial-wave models.
    Np,
    /// One writer per thread, buffered by the operating system.
    GoodIo,
    /// Ranks that compute and then meet in an Allreduce, in a loop.
    Mpi(u16),
    /// A job that owns threads and does nothing.
    Idle,
    /// One writer per thread, each write forced to disk.
    BadIo,
    /// Ranks as in [`Kind::Mpi`], and another process that computes on the first rank's thread.
    CpuHog,
    /// A fit, and another process that allocates and frees memory as fast as it can.
    MemoryPressure,
    /// Ranks as in [`Kind::Mpi`]; one of them never reaches the Allreduce.
    StuckRank,
    /// A fit that is stopped for most of every period, as by a CPU bandwidth limit.
    Throttled,
    /// A fit that leaks memory.
    Leak,
}

impl Kind {
    /// The names of the kinds that are normal by default.
    pub const NORMAL: [&'static str; 4] = ["np", "good-io", "mpi-N", "idle"];
    /// The kinds that are anomalous by default.
    pub const ANOMALOUS: [Self; 6] =
        [Self::BadIo, Self::CpuHog, Self::MemoryPressure, Self::StuckRank, Self::Throttled, Self::Leak];

    /// Whether its jobs are anomalous unless a plan says otherwise.
    pub fn is_anomalous(self) -> bool {
        Self::ANOMALOUS.contains(&self)
    }

    /// The number of threads, where the kind fixes it.
    pub const fn fixed_threads(self) -> Option<u16> {
        match self {
            Self::Mpi(ranks) => Some(ranks),
            _ => None,
        }
    }

    /// Whether its threads are MPI ranks.
    pub const fn has_ranks(self) -> bool {
        matches!(self, Self::Mpi(_) | Self::StuckRank | Self::CpuHog)
    }

    /// Whether it writes files.
    pub const fn writes(self) -> bool {
        matches!(self, Self::GoodIo | Self::BadIo)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Mpi(ranks) => return write!(f, "mpi-{ranks}"),
            Self::Np => "np",
            Self::GoodIo => "good-io",
            Self::Idle => "idle",
            Self::BadIo => "bad-io",
            Self::CpuHog => "cpu-hog",
            Self::MemoryPressure => "memory-pressure",
            Self::StuckRank => "stuck-rank",
            Self::Throttled => "throttled",
            Self::Leak => "leak",
        };
        f.write_str(name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a kind of job; the normal kinds are {}, the anomalous kinds {}",
    Kind::NORMAL.join(", "),
    Kind::ANOMALOUS.map(|kind| kind.to_string()).join(", ")
)]
pub struct UnknownKind {
    name: String,
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let named = [Self::Np, Self::GoodIo, Self::Idle].into_iter().chain(Self::ANOMALOUS);
        let ranks = name.strip_prefix("mpi-").and_then(|ranks| ranks.parse().ok());
        let mpi = ranks.filter(|ranks| (1..=MAX_RANKS).contains(ranks)).map(Self::Mpi);
        mpi.into_iter()
            .chain(named)
            .find(|kind| kind.to_string() == name)
            .ok_or_else(|| UnknownKind { name: name.to_owned() })
    }
}

impl TryFrom<String> for Kind {
    type Error = UnknownKind;
    fn try_from(name: String) -> Result<Self, UnknownKind> {
        name.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_back_by_its_name() {
        let normal = [Kind::Np, Kind::GoodIo, Kind::Mpi(16), Kind::Idle];
        for kind in normal.into_iter().chain(Kind::ANOMALOUS) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let names = Kind::ANOMALOUS.map(|kind| kind.to_string());
        assert_eq!(names.map(String::leak).map(|name| &*name), workload::label::ANOMALOUS_KINDS);
        for bad in ["", "mpi", "mpi-0", "mpi-02", "mpi-9999", "NP"] {
            assert!(bad.parse::<Kind>().is_err(), "{bad}");
        }
    }
}
