//! A stored file: one node's readings of one day (or less), in Parquet. A row group holds whole
//! threads of one hour.
//!
//! Its footer contains, under the key `tracewise`, the source of the readings, their jobs, the files
//! that it replaces, and a checksum for each row group. The name of the file has
//! the footer's own checksum. Every read checks them, so that no damage gives a wrong number.

mod read;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use ulid::Ulid;
use workload::time::epoch_millis;
use workload::{JobId, JobReading, NodeName, Source, Timestamp};

use crate::columns::{Column, Kind};
use crate::layout::Table;

pub use read::OpenFile;
pub use write::FileWriter;

const FOOTER_KEY: &str = "tracewise";

const CPU_COLUMNS: [Column; 12] = [
    Column { name: "time", kind: Kind::Time },
    Column { name: "cpu", kind: Kind::Int },
    Column { name: "owner", kind: Kind::Text },
    Column { name: "job", kind: Kind::Text },
    Column { name: "user", kind: Kind::Count },
    Column { name: "nice", kind: Kind::Count },
    Column { name: "system", kind: Kind::Count },
    Column { name: "idle", kind: Kind::Count },
    Column { name: "iowait", kind: Kind::Count },
    Column { name: "irq", kind: Kind::Count },
    Column { name: "softirq", kind: Kind::Count },
    Column { name: "steal", kind: Kind::Count },
];
const N_KEY_COLUMNS: usize = 4;

const fn job_count(index: usize) -> Column {
    Column { name: JobReading::COUNTS[index], kind: Kind::Count }
}

const CGROUP_COLUMNS: [Column; 2 + JobReading::N_COUNTS] = [
    Column { name: "time", kind: Kind::Time },
    Column { name: "job", kind: Kind::Text },
    job_count(0),
    job_count(1),
    job_count(2),
    job_count(3),
    job_count(4),
    job_count(5),
    job_count(6),
    job_count(7),
    job_count(8),
    job_count(9),
    job_count(10),
    job_count(11),
];

/// The columns that a file of a format has. In the first format, jobs had no CPU time.
fn columns_in(table: Table, format: u32) -> &'static [Column] {
    match (table, format) {
        (Table::Cgroup, 1) => &CGROUP_COLUMNS[..2 + JobReading::N_FIRST_COUNTS],
        _ => columns_of(table),
    }
}

const fn columns_of(table: Table) -> &'static [Column] {
    match table {
        Table::Cpu => &CPU_COLUMNS,
        Table::Cgroup => &CGROUP_COLUMNS,
    }
}

/// The content of a file's footer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    pub format: u32,
    pub table: Table,
    pub node: NodeName,
    pub source: Source,
    /// First and last reading of each job that owned a thread.
    pub jobs: BTreeMap<JobId, Span>,
    pub cpus: BTreeSet<u16>,
    /// Files that this one was made from, and stands in for.
    pub replaces: BTreeSet<Ulid>,
    pub row_groups: Vec<RowGroupInfo>,
}

/// First and last moment, stored as an array of two numbers of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span(#[serde(with = "epoch_millis")] pub Timestamp, #[serde(with = "epoch_millis")] pub Timestamp);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowGroupInfo {
    #[serde(with = "epoch_millis")]
    pub first: Timestamp,
    #[serde(with = "epoch_millis")]
    pub last: Timestamp,
    pub rows: u64,
    /// Distinct threads and moments: less than `rows` where several jobs are known of one.
    pub moments: u64,
    pub offset: u64,
    pub length: u64,
    pub crc: u32,
}

impl FileInfo {
    pub fn rows(&self) -> u64 {
        self.row_groups.iter().map(|group| group.rows).sum()
    }

    pub fn first(&self) -> Timestamp {
        self.row_groups.iter().map(|group| group.first).min().unwrap_or(Timestamp::MAX)
    }

    pub fn last(&self) -> Timestamp {
        self.row_groups.iter().map(|group| group.last).max().unwrap_or(Timestamp::MIN)
    }
}
