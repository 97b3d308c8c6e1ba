//! Paths of an archive, and what their names contain.
//!
//! `cpu/date=2026-11-15/node=n001/<first>-<last>-<id>-<level>-<crc>.parquet`: hive partitions
//! that DuckDB, pandas and Polars understand, and file names that contain the time range.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ulid::Ulid;
use workload::{Millis, NodeName, Timestamp};

use crate::error::{Error, Result};
use crate::store::Object;

/// The version of everything below and of the file format.
pub const FORMAT: u32 = 2;
/// The file that marks a directory, or a prefix of a bucket, as an archive.
pub const MARKER: &str = "archive.json";
/// The directory of a local archive in which writes are prepared.
pub const SPOOL: &str = ".spool";

const UNSAFE_IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');
const MOMENT: &str = "%Y%m%dT%H%M%SZ";

/// The two tables of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// Ticks per thread, mode and second, with the owner.
    Cpu,
    /// Memory and pressure per job and second.
    Cgroup,
}

impl Table {
    /// Both tables.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Cgroup];

    /// The name of its directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cgroup => "cgroup",
        }
    }
}

/// One node's day of one table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub table: Table,
    pub date: NaiveDate,
    pub node: NodeName,
}

impl Partition {
    pub fn folder(&self) -> String {
        let node = utf8_percent_encode(self.node.as_str(), UNSAFE_IN_PATHS);
        format!("{}/node={node}", date_folder(self.table, self.date))
    }
}

pub fn date_folder(table: Table, date: NaiveDate) -> String {
    format!("{}/date={date}", table.name())
}

/// The UTC day a moment falls into.
pub fn date_of(time: Timestamp) -> NaiveDate {
    let beyond = if time.0 < 0 { NaiveDate::MIN } else { NaiveDate::MAX };
    DateTime::from_timestamp_millis(time.0).map_or(beyond, |moment| moment.date_naive())
}

/// Rejects a node whose directory name would be too long.
pub fn check_node(node: &NodeName) -> Result<()> {
    let length = utf8_percent_encode(node.as_str(), UNSAFE_IN_PATHS).map(str::len).sum::<usize>();
    if length <= 240 { Ok(()) } else { Err(Error::NodeName { name: node.to_string() }) }
}

/// Whether a file name can hold this time: its year has four digits.
pub fn is_storable(time: Timestamp) -> bool {
    (Timestamp(0)..Timestamp::from_seconds(253_402_300_800)).contains(&time)
}

/// Rejects a time that no file name can hold.
pub fn check_time(node: &NodeName, time: Timestamp) -> Result<()> {
    if is_storable(time) { Ok(()) } else { Err(Error::Time { node: node.to_string(), time: time.0 }) }
}

/// How many ids may follow from one that [`next_id`] gave, for the parts of what it names.
pub const IDS_FOR_PARTS: u128 = 1 << 16;

/// An id for something new: later ones are larger, also within a millisecond.
pub fn next_id() -> Ulid {
    static LAST: Mutex<Ulid> = Mutex::new(Ulid(0));
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = Ulid(Ulid::generate().0 / IDS_FOR_PARTS * IDS_FOR_PARTS);
    *last = fresh.max(Ulid(last.0 + IDS_FOR_PARTS));
    *last
}

/// The parts of the name of a stored file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName {
    /// In whole seconds, not after the first reading.
    pub first: Timestamp,
    /// In whole seconds, not after the last reading.
    pub last: Timestamp,
    /// Later files win over earlier ones where they disagree.
    pub id: Ulid,
    /// How often this has been compacted.
    pub level: u32,
    /// CRC-32 of the footer, which in turn has that of every row group.
    pub crc: u32,
}

impl FileName {
    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".parquet")?.split('-');
        let mut next = || parts.next();
        let moment = |text: &str| {
            let civil = NaiveDateTime::parse_from_str(text, MOMENT).ok()?;
            Some(Timestamp::from_seconds(civil.and_utc().timestamp()))
        };
        let name = Self {
            first: moment(next()?)?,
            last: moment(next()?)?,
            id: Ulid::from_string(next()?).ok()?,
            level: next()?.parse().ok()?,
            crc: u32::from_str_radix(next()?, 16).ok()?,
        };
        next().is_none().then_some(name)
    }

    /// Whether the file can have readings in `[from, to)`.
    pub fn overlaps(&self, from: Timestamp, to: Timestamp) -> bool {
        self.first < to && self.last + Millis::SECOND > from
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Times are checked before they are stored, see [`check_time`].
        let moment = |time: Timestamp| {
            let time = DateTime::from_timestamp(time.floor(Millis::SECOND).0 / 1_000, 0);
            time.map(|time| time.format(MOMENT).to_string()).ok_or(std::fmt::Error)
        };
        let (first, last) = (moment(self.first)?, moment(self.last)?);
        write!(f, "{first}-{last}-{}-{}-{:08x}.parquet", self.id, self.level, self.crc)
    }
}

/// A file of an archive, as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub partition: Partition,
    pub name: FileName,
    pub path: String,
    pub bytes: u64,
    pub modified: Timestamp,
}

impl StoredFile {
    /// Understands an object below an archive's root, unless it is none of ours.
    pub fn parse(object: &Object) -> Option<Self> {
        let Object { path, bytes, modified } = object;
        let mut parts = path.split('/');
        let table = parts.next()?;
        let table = Table::ALL.into_iter().find(|known| known.name() == table)?;
        let date = parts.next()?.strip_prefix("date=")?.parse().ok()?;
        let node = percent_decode_str(parts.next()?.strip_prefix("node=")?).decode_utf8().ok()?;
        let partition = Partition { table, date, node: NodeName::new(node).ok()? };
        let name = FileName::parse(parts.next()?)?;
        let whole = Self { partition, name, path: path.clone(), bytes: *bytes, modified: *modified };
        parts.next().is_none().then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_says_what_it_was_made_of(
            node in "[a-zA-Z0-9 =%/é:._-]{1,40}", seconds in 0i64..4_000_000_000, length in 0i64..86_400,
            id in any::<u128>(), level in any::<u32>(), crc in any::<u32>(),
        ) {
            let first = Timestamp::from_seconds(seconds);
            let partition =
                Partition { table: Table::Cpu, date: date_of(first), node: NodeName::new(node).unwrap() };
            let last = first + Millis(length * 1_000);
            let name = FileName { first, last, id: Ulid(id), level, crc };
            let path = format!("{}/{name}", partition.folder());
            let object = Object { path: path.clone(), bytes: 7, modified: first };
            let expected = StoredFile { partition, name, path, bytes: 7, modified: first };
            prop_assert_eq!(StoredFile::parse(&object), Some(expected));
        }
    }

    #[test]
    fn foreign_files_are_told_apart() {
        for path in [
            "cpu/date=2026-11-15/node=n1/part-0.parquet",
            "cpu/date=2026-11-15/n1/20261115T000000Z-20261115T000000Z-0-0-0.parquet",
            "gpu/date=2026-11-15/node=n1/x.parquet",
            "archive.json",
        ] {
            let object = Object { path: path.into(), bytes: 0, modified: Timestamp(0) };
            assert_eq!(StoredFile::parse(&object), None, "{path}");
        }
    }

    #[test]
    fn a_moment_belongs_to_its_utc_day() {
        assert_eq!(date_of(Timestamp(0)).to_string(), "1970-01-01");
        assert_eq!(date_of(Timestamp(-1)).to_string(), "1969-12-31");
        assert_eq!(date_of(Timestamp::from_seconds(1_525_737_599)).to_string(), "2018-05-07");
        assert_eq!(date_of(Timestamp::MIN), NaiveDate::MIN);
        assert_eq!(date_of(Timestamp::MAX), NaiveDate::MAX);
    }
}
