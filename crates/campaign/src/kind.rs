//! The kinds of jobs that a campaign can run, and their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More ranks than any node has threads; a kind with more is a typing error.
const MAX_RANKS: u16 = 1_024;
/// A process that computes all the time.
const FULL_TIME: u8 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Kind {
    /// Maximum-likelihood fits of partial-wave models.
    Np,
    /// One writer per thread, buffered by the operating system.
    GoodIo,
    /// Ranks that compute for a random time and then meet in an Allreduce, in a loop.
    Mpi(u16),
    /// As [`Kind::Mpi`], but all ranks compute for nearly the same time.
    SteadyMpi(u16),
    /// A job that owns threads and does nothing.
    Idle,
    /// One writer per thread, each write forced to disk.
    BadIo,
    /// Ranks as in [`Kind::Mpi`], and a process of somebody else that computes on the first rank's thread for this
    /// percentage of the time.
    CpuHog(u8),
    /// A fit, and another process that allocates and frees memory as fast as it can.
    MemoryPressure,
    /// Ranks as in [`Kind::Mpi`]; one of them never reaches the Allreduce.
    StuckRank,
    /// A fit that is stopped for most of every period, as by a CPU bandwidth limit.
    Throttled,
    /// A fit that leaks memory.
    Leak,
    /// A process that belongs to no job and computes on a free thread for this percentage of the time.
    Runaway(u8),
}

impl Kind {
    /// The names of the kinds that are normal by default.
    pub const NORMAL: [&'static str; 5] = ["np", "good-io", "mpi-N", "mpi-steady-N", "idle"];
    /// The kinds of anomalous jobs, which a simulated cluster runs.
    pub const ANOMALOUS: [Self; 6] = [
        Self::BadIo,
        Self::CpuHog(FULL_TIME),
        Self::MemoryPressure,
        Self::StuckRank,
        Self::Throttled,
        Self::Leak,
    ];

    /// Whether its jobs are anomalous unless a plan says otherwise.
    pub const fn is_anomalous(self) -> bool {
        match self {
            Self::Np | Self::GoodIo | Self::Mpi(_) | Self::SteadyMpi(_) | Self::Idle => false,
            Self::BadIo
            | Self::CpuHog(_)
            | Self::MemoryPressure
            | Self::StuckRank
            | Self::Throttled
            | Self::Leak
            | Self::Runaway(_) => true,
        }
    }

    /// Whether it is a job, which owns its threads.
    pub const fn owns_threads(self) -> bool {
        !matches!(self, Self::Runaway(_))
    }

    /// The percentage of the time that a process of somebody else computes on its first thread.
    pub const fn hogged_percent(self) -> Option<u8> {
        match self {
            Self::CpuHog(percent) => Some(percent),
            _ => None,
        }
    }

    /// The number of threads, where the kind fixes it.
    pub const fn fixed_threads(self) -> Option<u16> {
        match self {
            Self::Mpi(ranks) | Self::SteadyMpi(ranks) => Some(ranks),
            _ => None,
        }
    }

    /// Whether its threads are MPI ranks.
    pub const fn has_ranks(self) -> bool {
        matches!(self, Self::Mpi(_) | Self::SteadyMpi(_) | Self::StuckRank | Self::CpuHog(_))
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
            Self::SteadyMpi(ranks) => return write!(f, "mpi-steady-{ranks}"),
            Self::CpuHog(percent) if *percent < FULL_TIME => return write!(f, "cpu-hog-{percent}"),
            Self::Runaway(percent) if *percent < FULL_TIME => return write!(f, "runaway-{percent}"),
            Self::Np => "np",
            Self::GoodIo => "good-io",
            Self::Idle => "idle",
            Self::BadIo => "bad-io",
            Self::CpuHog(_) => "cpu-hog",
            Self::Runaway(_) => "runaway",
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
    Kind::ANOMALOUS.map(|kind| kind.to_string()).join(", ") + ", cpu-hog-PERCENT, runaway and runaway-PERCENT"
)]
pub struct UnknownKind {
    name: String,
}

/// The number at the end of a name, after a prefix.
fn number_after<T: FromStr>(name: &str, prefix: &str) -> Option<T> {
    name.strip_prefix(prefix)?.parse().ok()
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let named = [Self::Np, Self::GoodIo, Self::Idle, Self::Runaway(FULL_TIME)];
        let numbered = [
            number_after(name, "mpi-").filter(|ranks| (1..=MAX_RANKS).contains(ranks)).map(Self::Mpi),
            number_after(name, "mpi-steady-")
                .filter(|ranks| (1..=MAX_RANKS).contains(ranks))
                .map(Self::SteadyMpi),
            number_after(name, "cpu-hog-")
                .filter(|percent| (1..FULL_TIME).contains(percent))
                .map(Self::CpuHog),
            number_after(name, "runaway-")
                .filter(|percent| (1..FULL_TIME).contains(percent))
                .map(Self::Runaway),
        ];
        numbered
            .into_iter()
            .flatten()
            .chain(named)
            .chain(Self::ANOMALOUS)
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
        let normal = [Kind::Np, Kind::GoodIo, Kind::Mpi(16), Kind::SteadyMpi(2), Kind::Idle];
        let others = [Kind::CpuHog(25), Kind::Runaway(50), Kind::Runaway(100)];
        for kind in normal.into_iter().chain(Kind::ANOMALOUS).chain(others) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!(others.into_iter().chain(Kind::ANOMALOUS).all(Kind::is_anomalous));
        assert!(!normal.into_iter().any(Kind::is_anomalous));
        let names = Kind::ANOMALOUS.map(|kind| kind.to_string());
        assert_eq!(names.map(String::leak).map(|name| &*name), workload::label::ANOMALOUS_KINDS[..6]);
        for bad in ["", "mpi", "mpi-0", "mpi-02", "mpi-9999", "NP", "cpu-hog-0", "cpu-hog-100", "runaway-101"]
        {
            assert!(bad.parse::<Kind>().is_err(), "{bad}");
        }
    }
}
