//! Readings: the counters of a node at one time.

use serde::{Deserialize, Serialize};

use crate::id::{Cpu, JobId, NodeName};
use crate::mode::{ModeSet, Ticks};
use crate::time::{Millis, Timestamp};

/// Who owned a thread when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Exactly this job was confined to the thread.
    Job(JobId),
    /// No job was allowed on the thread.
    Nobody,
    /// Several jobs were allowed on the thread.
    Shared,
    /// Not known: the source has no owners, or jobs run without a cpuset.
    Unknown,
}

impl Owner {
    /// The job, if exactly one job owns the thread.
    pub fn job(&self) -> Option<&JobId> {
        match self {
            Self::Job(job) => Some(job),
            Self::Nobody | Self::Shared | Self::Unknown => None,
        }
    }

    /// The name of each state, as it is stored.
    pub const fn state(&self) -> &'static str {
        match self {
            Self::Job(_) => "job",
            Self::Nobody => "nobody",
            Self::Shared => "shared",
            Self::Unknown => "unknown",
        }
    }
}

/// What the ticks of a source count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Ticks since some start, which only grow until they are reset (`/proc/stat`).
    Counter,
    /// Ticks spent during the interval that ends with the reading (percentages).
    Interval,
}

/// Where readings come from, and what their ticks mean.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A description of the program, file or server.
    pub origin: String,
    /// Whether ticks count since boot or per interval.
    pub measure: Measure,
    /// The resolution: 100 for the kernel's clock ticks, 1000 for percentages with one decimal.
    pub ticks_per_second: u32,
    /// The modes that the source has.
    pub modes: ModeSet,
    /// How often the source reads.
    pub period: Millis,
}

/// A source that no reading can come from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a source cannot have {what}")]
pub struct SourceError {
    what: String,
}

impl Source {
    /// The longest description.
    pub const MAX_ORIGIN_BYTES: usize = 16_384;
    /// The longest interval between readings.
    pub const MAX_PERIOD: Millis = Millis::DAY;
    /// The finest resolution.
    pub const MAX_TICKS_PER_SECOND: u32 = 1_000_000_000;

    /// Checks a source that came over a network or from a file.
    pub fn check(&self) -> Result<(), SourceError> {
        let refused = |what: String| Err(SourceError { what });
        if !(Millis(1)..=Self::MAX_PERIOD).contains(&self.period) {
            return refused(format!("a sampling interval of {} ms", self.period.0));
        }
        if !(1..=Self::MAX_TICKS_PER_SECOND).contains(&self.ticks_per_second) {
            return refused(format!("{} ticks per second", self.ticks_per_second));
        }
        if self.modes == ModeSet::EMPTY {
            return refused("no modes".into());
        }
        if self.origin.len() > Self::MAX_ORIGIN_BYTES {
            return refused(format!("a description of {} bytes", self.origin.len()));
        }
        Ok(())
    }
}

/// One hardware thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadReading {
    /// The number of the thread.
    pub cpu: Cpu,
    /// Ticks in each mode.
    pub ticks: Ticks,
    /// Who owned the thread.
    pub owner: Owner,
}

/// Microseconds during which some, or all, of a job's tasks waited for a resource, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Time in which at least one task waited.
    pub some_usec: Option<u64>,
    /// Time in which all tasks waited.
    pub full_usec: Option<u64>,
}

/// One job's control group on one node at one moment; what the kernel does not offer is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReading {
    /// The job.
    pub job: JobId,
    /// Memory charged to the job, including page cache.
    pub memory_bytes: Option<u64>,
    /// The maximum of that since the job began.
    pub memory_peak_bytes: Option<u64>,
    /// Absent when the job has no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Waiting for a CPU.
    pub cpu_pressure: Pressure,
    /// Waiting for memory.
    pub memory_pressure: Pressure,
    /// Waiting for I/O.
    pub io_pressure: Pressure,
    /// CPU time of the job since its start, on all threads, in user mode.
    pub cpu_user_usec: Option<u64>,
    /// The same in system mode.
    pub cpu_system_usec: Option<u64>,
    /// The memory of the node, which bounds a job without a limit.
    pub node_memory_bytes: Option<u64>,
}

impl JobReading {
    /// What [`counts`](Self::counts) are called.
    pub const COUNTS: [&'static str; Self::N_COUNTS] = [
        "memory_bytes",
        "memory_peak_bytes",
        "memory_limit_bytes",
        "cpu_pressure_some_usec",
        "cpu_pressure_full_usec",
        "memory_pressure_some_usec",
        "memory_pressure_full_usec",
        "io_pressure_some_usec",
        "io_pressure_full_usec",
        "cpu_user_usec",
        "cpu_system_usec",
        "node_memory_bytes",
    ];
    /// The number of values.
    pub const N_COUNTS: usize = 12;
    /// The number of values that readings had before CPU time and the memory of the node were added.
    pub const N_FIRST_COUNTS: usize = 9;

    /// All values, in the order of [`COUNTS`](Self::COUNTS).
    pub fn counts(&self) -> [Option<u64>; Self::N_COUNTS] {
        [
            self.memory_bytes,
            self.memory_peak_bytes,
            self.memory_limit_bytes,
            self.cpu_pressure.some_usec,
            self.cpu_pressure.full_usec,
            self.memory_pressure.some_usec,
            self.memory_pressure.full_usec,
            self.io_pressure.some_usec,
            self.io_pressure.full_usec,
            self.cpu_user_usec,
            self.cpu_system_usec,
            self.node_memory_bytes,
        ]
    }

    /// A reading with values in the order of [`COUNTS`](Self::COUNTS).
    pub fn from_counts(job: JobId, counts: [Option<u64>; Self::N_COUNTS]) -> Self {
        let pressure = |at: usize| Pressure { some_usec: counts[at], full_usec: counts[at + 1] };
        Self {
            job,
            memory_bytes: counts[0],
            memory_peak_bytes: counts[1],
            memory_limit_bytes: counts[2],
            cpu_pressure: pressure(3),
            memory_pressure: pressure(5),
            io_pressure: pressure(7),
            cpu_user_usec: counts[9],
            cpu_system_usec: counts[10],
            node_memory_bytes: counts[11],
        }
    }

    /// The CPU time in user and in system mode, in seconds, since an earlier reading.
    pub fn cpu_seconds_since(&self, earlier: &Self) -> Option<[f64; 2]> {
        let user = self.cpu_user_usec?.saturating_sub(earlier.cpu_user_usec?);
        let system = self.cpu_system_usec?.saturating_sub(earlier.cpu_system_usec?);
        Some([user, system].map(|usec| usec as f64 / 1e6))
    }

    /// A reading in which the kernel offered nothing.
    pub fn empty(job: JobId) -> Self {
        Self::from_counts(job, [None; Self::N_COUNTS])
    }
}

/// The CPU time that others used on the threads of a job, given the time of the threads and of the job in user and in
/// system mode.
///
/// Both user time and total time have to exceed those of the job: kernel threads that write a job's data use system
/// time, and the kernel only estimates how a task's time divides into user and system time.
pub fn foreign_cpu(of_threads: [f64; 2], of_job: [f64; 2]) -> f64 {
    let [user, system] = [0, 1].map(|mode| of_threads[mode] - of_job[mode]);
    user.min(user + system).max(0.0)
}

/// One node at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReading {
    /// The node.
    pub node: NodeName,
    /// When it was read.
    pub time: Timestamp,
    /// Its hardware threads.
    pub threads: Vec<ThreadReading>,
    /// Its jobs.
    pub jobs: Vec<JobReading>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_checked() {
        let good = Source {
            origin: "test".into(),
            measure: Measure::Counter,
            ticks_per_second: 100,
            modes: ModeSet::ALL,
            period: Millis::SECOND,
        };
        assert_eq!(good.check(), Ok(()));
        let refused = [
            Source { period: Millis(0), ..good.clone() },
            Source { period: Millis(-1_000), ..good.clone() },
            Source { period: Millis(i64::MAX), ..good.clone() },
            Source { ticks_per_second: 0, ..good.clone() },
            Source { ticks_per_second: u32::MAX, ..good.clone() },
            Source { modes: ModeSet::EMPTY, ..good.clone() },
            Source { origin: "x".repeat(20_000), ..good },
        ];
        for source in refused {
            let error = source.check().unwrap_err().to_string();
            assert!(error.starts_with("a source cannot have ") && error.len() < 80, "{error}");
        }
    }
}
