//! The kinds of jobs that a campaign runs, and their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More ranks than any node has threads; a kind that asks for more is a slip of the pen.
const MOST_RANKS: u16 = 1_024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// A maximum-likelihood fit of a partial-wave model.
    Np,
    /// A writer a thread, buffered by the operating system.
    GoodIo,
    /// Ranks that compute for a random time and then meet, over and over.
    Mpi(u16),
    /// Threads that a job owns and does not use.
    Idle,
    /// A writer a thread, in a way that defeats buffering.
    BadIo,
    /// Ranks as in [`Kind::Mpi`], and a stranger that computes on the first rank's thread.
    CpuHog,
    /// A fit, beside one that takes and gives back memory as fast as it can.
    MemoryPressure,
    /// Ranks of which one never comes to the meeting.
    StuckRank,
    /// A fit that is held up for most of every period, as a bandwidth limit would.
    Throttled,
    /// A fit that forgets to give back memory.
    Leak,
}

impl Kind {
    /// Those that a cluster should run.
    pub const NORMAL: [&'static str; 4] = ["np", "good-io", "mpi-N", "idle"];
    pub const ANOMALOUS: [Self; 6] =
        [Self::BadIo, Self::CpuHog, Self::MemoryPressure, Self::StuckRank, Self::Throttled, Self::Leak];

    pub fn is_anomalous(self) -> bool {
        Self::ANOMALOUS.contains(&self)
    }

    /// How many threads it has to have, where it cannot be chosen.
    pub const fn fixed_threads(self) -> Option<u16> {
        match self {
            Self::Mpi(ranks) => Some(ranks),
            _ => None,
        }
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
    "{name:?} is no kind of job; there are {}, and as anomalies {}",
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
        let mpi = ranks.filter(|ranks| (1..=MOST_RANKS).contains(ranks)).map(Self::Mpi);
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
