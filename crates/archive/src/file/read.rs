//! Rows out of a file.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use rayon::prelude::*;
use serde::Deserialize;
use workload::derive::Scale;
use workload::{JobId, JobReading, Mode, Owner, Timestamp};

use super::{CPU_COLUMNS, FOOTER_KEY, FileInfo, N_KEY_COLUMNS, RowGroupInfo, columns_in, columns_of};
use crate::columns::{self, Region, Values};
use crate::error::{Error, Result};
use crate::layout::{FORMAT, StoredFile, date_of};
use crate::rows::{JobRows, Numbered, ThreadRows};
use crate::store::Store;
use crate::text_runs::TextRuns;

/// Enough for the footers of most files, so that they take one read to open.
const FOOTER_GUESS: u64 = 64 * 1024;
const MAGIC: &[u8] = b"PAR1";
/// How many rows a row group can have: equal values take next to no space, so that a few bytes can hold
/// many. Tracewise writes at most an hour of one thread, or about 50,000 rows.
const MIN_ROWS: u64 = 100_000;
const ROWS_PER_BYTE: u64 = 4_096;
const MAX_ROWS: u64 = 1 << 24;

/// A file whose footer has been read.
#[derive(Debug, Clone)]
pub struct OpenFile {
    pub stored: StoredFile,
    pub info: FileInfo,
    metadata: OnceLock<ParquetMetaData>,
}

impl OpenFile {
    pub fn open(store: &Store, stored: &StoredFile) -> Result<Self> {
        let path = store.full_path(&stored.path);
        let damaged = |reason: String| Error::damaged(&path, reason);
        let metadata = read_footer(store, stored)?;
        let text = footer_text(&metadata).ok_or_else(|| damaged("Tracewise did not write it".into()))?;
        let version: Version = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        if version.format > FORMAT {
            return Err(Error::NewerFormat { address: path, found: version.format, known: FORMAT });
        }
        let info: FileInfo = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        info.source.check().map_err(|error| damaged(error.to_string()))?;
        check_shape(&metadata, &info, stored).map_err(|reason| Error::damaged(&path, reason))?;
        Ok(Self { stored: stored.clone(), info, metadata: OnceLock::new() })
    }

    /// Parquet's own metadata, a megabyte for a large node's day: kept once rows are read, and not
    /// for every file of a listing.
    fn metadata(&self, store: &Store) -> Result<&ParquetMetaData> {
        if let Some(metadata) = self.metadata.get() {
            return Ok(metadata);
        }
        let read = read_footer(store, &self.stored)?;
        Ok(self.metadata.get_or_init(|| read))
    }

    /// The row groups with readings in `[from, to)`.
    pub fn groups_between(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = usize> + '_ {
        let groups = self.info.row_groups.iter().enumerate();
        groups.filter(move |(_, group)| group.first < to && group.last >= from).map(|(index, _)| index)
    }

    /// Reads one row group of the `cpu` table.
    pub fn read_threads(&self, store: &Store, group: usize) -> Result<ThreadRows> {
        let modes = self.info.source.modes;
        let wanted: Vec<usize> = (0..CPU_COLUMNS.len())
            .filter(|index| *index < N_KEY_COLUMNS || modes.contains(Mode::ALL[index - N_KEY_COLUMNS]))
            .collect();
        let (columns, n_rows) = self.read_columns(store, group, &wanted)?;
        let damaged = |reason: &str| Error::damaged(&store.full_path(&self.stored.path), reason);
        let mut rows = ThreadRows {
            scale_of_row: vec![0; n_rows],
            scales: [Scale::from(&self.info.source)].into_iter().collect(),
            ..ThreadRows::default()
        };
        let (mut states, mut jobs) = (None, None);
        for (index, values) in wanted.into_iter().zip(columns) {
            match (index, values) {
                (0, Values::Times(times)) => rows.times = times,
                (1, Values::Ints(cpus)) => rows.cpus = cpus.into_iter().map(|cpu| cpu as u16).collect(),
                (2, Values::Texts(texts)) => states = Some(texts),
                (3, Values::Texts(texts)) => jobs = Some(texts),
                (index, Values::Counts { values, present }) if present.is_empty() => {
                    rows.ticks[index - N_KEY_COLUMNS] = values;
                }
                _ => return Err(damaged("a column has values of another kind")),
            }
        }
        for column in rows.ticks.iter_mut().filter(|column| column.is_empty()) {
            *column = columns::filled(0, n_rows);
        }
        let (Some(states), Some(jobs)) = (states, jobs) else {
            return Err(damaged("a column is missing"));
        };
        (rows.owners, rows.owner_of_row) =
            owners(&states, &jobs, n_rows).ok_or_else(|| damaged("an owner cannot be understood"))?;
        Ok(rows)
    }

    /// Reads one row group of the `cgroup` table.
    pub fn read_jobs(&self, store: &Store, group: usize) -> Result<JobRows> {
        let damaged = |reason: &str| Error::damaged(&store.full_path(&self.stored.path), reason);
        let n_columns = columns_in(self.info.table, self.info.format).len();
        let wanted: Vec<usize> = (0..n_columns).collect();
        let (columns, n_rows) = self.read_columns(store, group, &wanted)?;
        let mut columns = columns.into_iter();
        let (Some(Values::Times(times)), Some(Values::Texts(jobs))) = (columns.next(), columns.next()) else {
            return Err(damaged("a column is missing"));
        };
        let mut counts = columns.map(|values| match values {
            Values::Counts { values, present } => {
                let mut values = values.into_iter();
                let mut next = move || values.next().map(|count| count.max(0) as u64);
                let column: Vec<Option<u64>> = match present.as_slice() {
                    [] => (0..n_rows).map(|_| next()).collect(),
                    present => present.iter().map(|present| present.then(&mut next).flatten()).collect(),
                };
                column
            }
            _ => vec![None; n_rows],
        });
        let mut column = || counts.next().unwrap_or_else(|| vec![None; n_rows]);
        let columns: [Vec<Option<u64>>; JobReading::N_COUNTS] = std::array::from_fn(|_| column());
        let known: Result<Vec<JobId>, _> = jobs.known.iter().map(JobId::new).collect();
        let known = known.map_err(|_| damaged("a job cannot be understood"))?;
        let mut jobs = jobs.runs.iter().flat_map(|(n_rows, word)| std::iter::repeat_n(*word, *n_rows));
        let mut rows = Vec::with_capacity(n_rows);
        for (row, time) in times.into_iter().enumerate() {
            let job = jobs.next().flatten().and_then(|word| known.get(word as usize));
            let job = job.ok_or_else(|| damaged("a job is missing"))?.clone();
            let counts = std::array::from_fn(|index| columns[index].get(row).copied().flatten());
            rows.push((Timestamp(time), JobReading::from_counts(job, counts)));
        }
        Ok(JobRows { rows })
    }

    fn read_columns(&self, store: &Store, group: usize, wanted: &[usize]) -> Result<(Vec<Values>, usize)> {
        let info = &self.info.row_groups[group];
        let range = info.offset..info.offset + info.length;
        let bytes = store.read_range(&self.stored.path, range).map_err(|error| {
            if error.is_not_found() {
                Error::Gone { path: store.full_path(&self.stored.path) }
            } else {
                error
            }
        })?;
        let damaged = |reason: String| Error::damaged(&store.full_path(&self.stored.path), reason);
        if crc32fast::hash(&bytes) != info.crc {
            return Err(damaged(format!("the checksum of row group {group} is wrong")));
        }
        let region = Arc::new(Region { offset: info.offset, bytes });
        let columns = columns_of(self.info.table);
        let metadata = self.metadata(store)?;
        let group = metadata.row_group(group);
        let values: Result<Vec<Values>, ParquetError> = wanted
            .par_iter()
            .map(|index| {
                check_pages(group.column(*index), &region)?;
                without_panic(|| columns::read_column(metadata, group, &region, *index, columns[*index].kind))
            })
            .collect();
        Ok((values.map_err(|error| damaged(error.to_string()))?, group.num_rows() as usize))
    }
}

/// Reads a footer, and checks it against the name of its file.
fn read_footer(store: &Store, stored: &StoredFile) -> Result<ParquetMetaData> {
    let path = store.full_path(&stored.path);
    let damaged = |reason: String| Error::damaged(&path, reason);
    if stored.bytes < 12 {
        return Err(damaged(format!("it has {} bytes", stored.bytes)));
    }
    let start = stored.bytes.saturating_sub(FOOTER_GUESS);
    let mut tail = store.read_range(&stored.path, start..stored.bytes)?;
    if !tail.ends_with(MAGIC) {
        return Err(damaged("it is cut off or is not Parquet".into()));
    }
    let [.., a, b, c, d, _, _, _, _] = tail[..] else { return Err(damaged("it is cut off".into())) };
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    if length + 8 > stored.bytes {
        return Err(damaged("its footer is longer than the file".into()));
    }
    if length + 8 > tail.len() as u64 {
        tail = store.read_range(&stored.path, stored.bytes - length - 8..stored.bytes)?;
    }
    let footer = tail.slice(tail.len() - 8 - length as usize..);
    if crc32fast::hash(&footer) != stored.name.crc {
        return Err(damaged("the checksum of its footer is not the one in its name".into()));
    }
    let thrift = &footer[..footer.len() - 8];
    without_panic(|| ParquetMetaDataReader::decode_metadata(thrift))
        .map_err(|error| damaged(error.to_string()))
}

/// Where a column begins in its file.
fn start_of(column: &ColumnChunkMetaData) -> i64 {
    column.dictionary_page_offset().unwrap_or(i64::MAX).min(column.data_page_offset())
}

/// The Parquet library allocates what the header of a page says, so that is checked first.
fn check_pages(column: &ColumnChunkMetaData, region: &Region) -> Result<(), ParquetError> {
    let read_at = |at: u64, buffer: &mut [u8]| {
        let rest = region.bytes.get(at.saturating_sub(region.offset) as usize..).unwrap_or_default();
        let n_bytes = rest.len().min(buffer.len());
        buffer[..n_bytes].copy_from_slice(&rest[..n_bytes]);
        Ok(n_bytes)
    };
    let (start, length) = (start_of(column) as u64, column.compressed_size() as u64);
    let checked = files::check_pages(read_at, start, length, &files::Limits::default());
    checked.map_err(|error| ParquetError::General(error.to_string()))
}

/// The Parquet library panics on some files that nobody writes by accident.
fn without_panic<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    files::contain_panic(read)
        .unwrap_or_else(|| Err(ParquetError::General("the Parquet reader failed".into())))
}

/// The part that every version of the footer has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

fn footer_text(metadata: &ParquetMetaData) -> Option<&str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == FOOTER_KEY)?.value.as_deref()
}

/// The footer has to agree with itself, and with the path, before its offsets are trusted.
fn check_shape(metadata: &ParquetMetaData, info: &FileInfo, stored: &StoredFile) -> Result<(), String> {
    if (info.table, &info.node) != (stored.partition.table, &stored.partition.node) {
        return Err(format!("it holds the table {} of {}", info.table.name(), info.node));
    }
    let columns = columns_in(info.table, info.format);
    let names = metadata.file_metadata().schema_descr();
    let same = names.num_columns() == columns.len()
        && columns.iter().enumerate().all(|(index, column)| names.column(index).name() == column.name);
    if !same {
        return Err("it has other columns".into());
    }
    let groups = metadata.row_groups();
    let agree = groups.len() == info.row_groups.len()
        && groups.iter().zip(&info.row_groups).all(|(group, info)| group_agrees(group, info, stored));
    if agree { Ok(()) } else { Err("its footer contradicts itself".into()) }
}

/// Whether a row group lies inside its file, with its columns and its day, and has no more rows than its
/// bytes can hold.
fn group_agrees(group: &RowGroupMetaData, info: &RowGroupInfo, stored: &StoredFile) -> bool {
    let most_rows = MIN_ROWS.saturating_add(info.length.saturating_mul(ROWS_PER_BYTE)).min(MAX_ROWS);
    let has_rows =
        group.num_rows() == info.rows as i64 && info.moments <= info.rows && info.rows <= most_rows;
    let date = stored.partition.date;
    let has_times = info.first <= info.last && date_of(info.first) == date && date_of(info.last) == date;
    let Some(end) = info.offset.checked_add(info.length).filter(|end| *end <= stored.bytes) else {
        return false;
    };
    let is_inside = |column: &ColumnChunkMetaData| {
        let start = start_of(column);
        let last = start.checked_add(column.compressed_size());
        start >= info.offset as i64
            && column.compressed_size() >= 0
            && last.is_some_and(|last| last <= end as i64)
    };
    has_rows && has_times && group.columns().iter().all(is_inside)
}

/// Owners from the two columns that hold them.
fn owners(states: &TextRuns, jobs: &TextRuns, n_rows: usize) -> Option<(Numbered<Owner>, Vec<u32>)> {
    let mut owners = Numbered::default();
    let mut owner_of_row = Vec::with_capacity(n_rows);
    // The number of the owner for each pair of state and job that has come up.
    let mut known: HashMap<(u32, Option<u32>), u32> = HashMap::new();
    let mut runs_of_jobs = jobs.runs.iter();
    let (mut n_left_of_job, mut job) = (0, None);
    for (n_rows, state) in &states.runs {
        let state = (*state)?;
        let mut left = *n_rows;
        while left > 0 {
            if n_left_of_job == 0 {
                (n_left_of_job, job) = *runs_of_jobs.next()?;
            }
            let number = match known.get(&(state, job)) {
                Some(number) => *number,
                None => {
                    let job_name = match job {
                        Some(word) => Some(jobs.known.get(word as usize)?.as_str()),
                        None => None,
                    };
                    let owner = match (states.known.get(state as usize)?.as_str(), job_name) {
                        ("job", Some(job)) => Owner::Job(JobId::new(job).ok()?),
                        ("nobody", None) => Owner::Nobody,
                        ("shared", None) => Owner::Shared,
                        ("unknown", None) => Owner::Unknown,
                        _ => return None,
                    };
                    let number = owners.number_of(&owner);
                    known.insert((state, job), number);
                    number
                }
            };
            let n_alike = left.min(n_left_of_job);
            owner_of_row.resize(owner_of_row.len() + n_alike, number);
            left -= n_alike;
            n_left_of_job -= n_alike;
        }
    }
    (owner_of_row.len() == n_rows).then_some((owners, owner_of_row))
}
