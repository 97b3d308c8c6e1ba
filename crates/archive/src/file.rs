//! A stored file: one node's readings of one day (or less), in Parquet, an hour a row group.
//!
//! Its footer says, under the key `tracewise`, where the readings come from, which jobs they
//! name, which files they replace, and a checksum for each row group, which every read checks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::writer::SerializedFileWriter;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use ulid::Ulid;
use workload::derive::Scale;
use workload::{JobId, JobReading, Measure, Millis, Mode, NodeName, Owner, Pressure, Source, Timestamp};

use crate::columns::{self, Column, Kind, Region, Values};
use crate::error::{Error, Result};
use crate::layout::{FORMAT, StoredFile, Table};
use crate::rows::{JobRows, ThreadRows};
use crate::store::Store;

const FOOTER_KEY: &str = "tracewise";
/// Enough for the footer of a day file, so that most files take one read to open.
const FOOTER_GUESS: u64 = 64 * 1024;
const MAGIC: &[u8] = b"PAR1";

const CPU_COLUMNS: [Column; 12] = [
    Column { name: "time", kind: Kind::Time },
    Column { name: "cpu", kind: Kind::Number },
    Column { name: "owner", kind: Kind::Word },
    Column { name: "job", kind: Kind::Word },
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

const CGROUP_COLUMNS: [Column; 11] = [
    Column { name: "time", kind: Kind::Time },
    Column { name: "job", kind: Kind::Word },
    Column { name: "memory_bytes", kind: Kind::Count },
    Column { name: "memory_peak_bytes", kind: Kind::Count },
    Column { name: "memory_limit_bytes", kind: Kind::Count },
    Column { name: "cpu_pressure_some_usec", kind: Kind::Count },
    Column { name: "cpu_pressure_full_usec", kind: Kind::Count },
    Column { name: "memory_pressure_some_usec", kind: Kind::Count },
    Column { name: "memory_pressure_full_usec", kind: Kind::Count },
    Column { name: "io_pressure_some_usec", kind: Kind::Count },
    Column { name: "io_pressure_full_usec", kind: Kind::Count },
];

const fn columns_of(table: Table) -> &'static [Column] {
    match table {
        Table::Cpu => &CPU_COLUMNS,
        Table::Cgroup => &CGROUP_COLUMNS,
    }
}

/// What a file's footer says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    pub format: u32,
    pub table: Table,
    pub node: NodeName,
    pub source: Source,
    /// First and last reading of each job that owned a thread.
    pub jobs: BTreeMap<JobId, (Timestamp, Timestamp)>,
    pub cpus: BTreeSet<u16>,
    /// Files that this one was made from, and stands in for.
    pub replaces: BTreeSet<Ulid>,
    pub row_groups: Vec<RowGroupInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowGroupInfo {
    pub first: Timestamp,
    pub last: Timestamp,
    pub rows: u64,
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

/// Passes bytes on and keeps their checksums, of the whole and of each part.
struct Summed<W> {
    inner: W,
    whole: crc32fast::Hasher,
    part: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n_bytes = self.inner.write(bytes)?;
        self.whole.update(&bytes[..n_bytes]);
        self.part.update(&bytes[..n_bytes]);
        Ok(n_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes one file, hour by hour.
pub struct FileWriter<W: Write + Send> {
    parquet: SerializedFileWriter<Summed<W>>,
    info: FileInfo,
}

impl<W: Write + Send> FileWriter<W> {
    pub fn new(
        sink: W,
        table: Table,
        node: &NodeName,
        source: &Source,
        replaces: BTreeSet<Ulid>,
    ) -> Result<Self, ParquetError> {
        let sink = Summed { inner: sink, whole: crc32fast::Hasher::new(), part: crc32fast::Hasher::new() };
        let growing = table == Table::Cgroup || source.measure == Measure::Counter;
        let properties = columns::properties(columns_of(table), growing)?;
        let schema = columns::schema(columns_of(table))?;
        let info = FileInfo {
            format: FORMAT,
            table,
            node: node.clone(),
            source: source.clone(),
            jobs: BTreeMap::new(),
            cpus: BTreeSet::new(),
            replaces,
            row_groups: Vec::new(),
        };
        Ok(Self { parquet: SerializedFileWriter::new(sink, schema, Arc::new(properties))?, info })
    }

    /// Adds rows of the `cpu` table, sorted, a row group for each hour they touch.
    pub fn write_threads(&mut self, rows: &ThreadRows) -> Result<(), ParquetError> {
        let hour = |row: usize| rows.times[row].div_euclid(Millis::HOUR.0);
        let mut start = 0;
        while start < rows.len() {
            let end = (start..rows.len()).find(|row| hour(*row) != hour(start)).unwrap_or(rows.len());
            let columns = thread_columns(rows, start..end, &self.info.source);
            let times = &rows.times[start..end];
            let bounds = (times.iter().min().copied(), times.iter().max().copied());
            self.write_group(&columns, end - start, bounds)?;
            for row in start..end {
                // Owners come in long runs: a row like the one before adds nothing but its time.
                if let Some(job) = rows.owner(row).job() {
                    note_job(&mut self.info.jobs, job, Timestamp(rows.times[row]));
                }
            }
            self.info.cpus.extend(rows.by_thread().map(|(cpu, _)| cpu.0));
            start = end;
        }
        Ok(())
    }

    /// Adds rows of the `cgroup` table, sorted, a row group for each hour they touch.
    pub fn write_jobs(&mut self, rows: &JobRows) -> Result<(), ParquetError> {
        for hour in rows.rows.chunk_by(|a, b| a.0.floor(Millis::HOUR) == b.0.floor(Millis::HOUR)) {
            let times = hour.iter().map(|(time, _)| time.0);
            self.write_group(&job_columns(hour), hour.len(), (times.clone().min(), times.max()))?;
            for (time, reading) in hour {
                note_job(&mut self.info.jobs, &reading.job, *time);
            }
        }
        Ok(())
    }

    fn write_group(
        &mut self,
        columns: &[Values],
        rows: usize,
        (first, last): (Option<i64>, Option<i64>),
    ) -> Result<(), ParquetError> {
        let offset = self.parquet.bytes_written() as u64;
        self.parquet.flush()?;
        self.parquet.inner_mut().part = crc32fast::Hasher::new();
        columns::write_row_group(self.parquet.next_row_group()?, columns)?;
        self.parquet.flush()?;
        let length = self.parquet.bytes_written() as u64 - offset;
        let crc = self.parquet.inner().part.clone().finalize();
        let (first, last) = (Timestamp(first.unwrap_or(0)), Timestamp(last.unwrap_or(0)));
        self.info.row_groups.push(RowGroupInfo { first, last, rows: rows as u64, offset, length, crc });
        Ok(())
    }

    /// Writes the footer; returns the sink, what the footer says, and the file's checksum.
    pub fn finish(mut self) -> Result<(W, FileInfo, u32), ParquetError> {
        let text =
            serde_json::to_string(&self.info).map_err(|error| ParquetError::External(Box::new(error)))?;
        self.parquet.append_key_value_metadata(KeyValue::new(FOOTER_KEY.into(), text));
        let sink = self.parquet.into_inner()?;
        Ok((sink.inner, self.info, sink.whole.finalize()))
    }
}

fn note_job(jobs: &mut BTreeMap<JobId, (Timestamp, Timestamp)>, job: &JobId, time: Timestamp) {
    match jobs.get_mut(job) {
        Some((first, last)) => (*first, *last) = ((*first).min(time), (*last).max(time)),
        None => drop(jobs.insert(job.clone(), (time, time))),
    }
}

fn thread_columns(rows: &ThreadRows, range: Range<usize>, source: &Source) -> Vec<Values> {
    let states: Vec<ByteArray> = rows.owners.iter().map(|owner| ByteArray::from(owner.state())).collect();
    let jobs: Vec<Option<ByteArray>> =
        rows.owners.iter().map(|owner| owner.job().map(|job| ByteArray::from(job.as_str()))).collect();
    let owners = &rows.owner_of_row[range.clone()];
    let mut columns = vec![
        Values::Times(rows.times[range.clone()].to_vec()),
        Values::Numbers(rows.cpus[range.clone()].iter().map(|cpu| i32::from(*cpu)).collect()),
        Values::Words {
            values: owners.iter().map(|owner| states[*owner as usize].clone()).collect(),
            present: Vec::new(),
        },
        Values::Words {
            values: owners.iter().filter_map(|owner| jobs[*owner as usize].clone()).collect(),
            present: owners.iter().map(|owner| jobs[*owner as usize].is_some()).collect(),
        },
    ];
    columns.extend(Mode::ALL.map(|mode| match source.modes.contains(mode) {
        true => {
            Values::Counts { values: rows.ticks[mode as usize][range.clone()].to_vec(), present: Vec::new() }
        }
        false => Values::Counts { values: Vec::new(), present: vec![false; range.len()] },
    }));
    columns
}

fn job_columns(rows: &[(Timestamp, JobReading)]) -> Vec<Values> {
    let count = |value: fn(&JobReading) -> Option<u64>| {
        let values = rows.iter().map(|(_, reading)| value(reading));
        Values::Counts {
            values: values.clone().flatten().map(|count| i64::try_from(count).unwrap_or(i64::MAX)).collect(),
            present: values.map(|value| value.is_some()).collect(),
        }
    };
    vec![
        Values::Times(rows.iter().map(|(time, _)| time.0).collect()),
        Values::Words {
            values: rows.iter().map(|(_, reading)| ByteArray::from(reading.job.as_str())).collect(),
            present: Vec::new(),
        },
        count(|reading| reading.memory_bytes),
        count(|reading| reading.memory_peak_bytes),
        count(|reading| reading.memory_limit_bytes),
        count(|reading| reading.cpu_pressure.some_usec),
        count(|reading| reading.cpu_pressure.full_usec),
        count(|reading| reading.memory_pressure.some_usec),
        count(|reading| reading.memory_pressure.full_usec),
        count(|reading| reading.io_pressure.some_usec),
        count(|reading| reading.io_pressure.full_usec),
    ]
}

/// A file whose footer has been read.
#[derive(Debug, Clone)]
pub struct OpenFile {
    pub stored: StoredFile,
    pub info: FileInfo,
    metadata: Arc<ParquetMetaData>,
}

impl OpenFile {
    pub fn open(store: &Store, stored: &StoredFile) -> Result<Self> {
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
        let length_at = tail.len() - 8;
        let footer_length =
            u64::from(u32::from_le_bytes(tail[length_at..length_at + 4].try_into().unwrap_or_default()));
        if footer_length + 8 > stored.bytes {
            return Err(damaged("its footer is longer than the file".into()));
        }
        if footer_length + 8 > tail.len() as u64 {
            tail = store.read_range(&stored.path, stored.bytes - footer_length - 8..stored.bytes)?;
        }
        let footer = tail.slice(tail.len() - 8 - footer_length as usize..tail.len() - 8);
        let metadata =
            ParquetMetaDataReader::decode_metadata(&footer).map_err(|error| damaged(error.to_string()))?;
        let info = info_of(&metadata).map_err(damaged)?;
        if info.format > FORMAT {
            return Err(Error::NewerFormat { address: path, found: info.format, known: FORMAT });
        }
        check_shape(&metadata, &info, stored).map_err(|reason| Error::damaged(&path, reason))?;
        Ok(Self { stored: stored.clone(), info, metadata: Arc::new(metadata) })
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
            scales: vec![Scale::from(&self.info.source)],
            ..ThreadRows::default()
        };
        let (mut states, mut jobs) = (None, None);
        for (index, values) in wanted.into_iter().zip(columns) {
            match (index, values) {
                (0, Values::Times(times)) => rows.times = times,
                (1, Values::Numbers(cpus)) => rows.cpus = cpus.into_iter().map(|cpu| cpu as u16).collect(),
                (2, Values::Words { values, present }) => states = Some((values, present)),
                (3, Values::Words { values, present }) => jobs = Some((values, present)),
                (index, Values::Counts { values, present }) if present.is_empty() => {
                    rows.ticks[index - N_KEY_COLUMNS] = values;
                }
                _ => return Err(damaged("a column has values of another kind")),
            }
        }
        for column in rows.ticks.iter_mut().filter(|column| column.is_empty()) {
            *column = vec![0; n_rows];
        }
        let (Some((states, _)), Some((jobs, has_job))) = (states, jobs) else {
            return Err(damaged("a column is missing"));
        };
        (rows.owners, rows.owner_of_row) =
            owners(&states, &jobs, &has_job).ok_or_else(|| damaged("an owner cannot be understood"))?;
        Ok(rows)
    }

    /// Reads one row group of the `cgroup` table.
    pub fn read_jobs(&self, store: &Store, group: usize) -> Result<JobRows> {
        let damaged = |reason: &str| Error::damaged(&store.full_path(&self.stored.path), reason);
        let wanted: Vec<usize> = (0..CGROUP_COLUMNS.len()).collect();
        let (columns, n_rows) = self.read_columns(store, group, &wanted)?;
        let mut columns = columns.into_iter();
        let (Some(Values::Times(times)), Some(Values::Words { values: jobs, .. })) =
            (columns.next(), columns.next())
        else {
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
        let columns: [Vec<Option<u64>>; 9] = std::array::from_fn(|_| column());
        if times.len() != n_rows || jobs.len() != n_rows {
            return Err(damaged("columns differ in length"));
        }
        let mut rows = Vec::with_capacity(n_rows);
        for (row, (time, job)) in times.into_iter().zip(jobs).enumerate() {
            let job = job.as_utf8().ok().and_then(|job| JobId::new(job).ok());
            let job = job.ok_or_else(|| damaged("a job cannot be understood"))?;
            let at = |index: usize| columns[index].get(row).copied().flatten();
            let pressure = |index: usize| Pressure { some_usec: at(index), full_usec: at(index + 1) };
            let reading = JobReading {
                job,
                memory_bytes: at(0),
                memory_peak_bytes: at(1),
                memory_limit_bytes: at(2),
                cpu_pressure: pressure(3),
                memory_pressure: pressure(5),
                io_pressure: pressure(7),
            };
            rows.push((Timestamp(time), reading));
        }
        Ok(JobRows { rows })
    }

    fn read_columns(&self, store: &Store, group: usize, wanted: &[usize]) -> Result<(Vec<Values>, usize)> {
        let info = &self.info.row_groups[group];
        let bytes = store.read_range(&self.stored.path, info.offset..info.offset + info.length)?;
        let damaged = |reason: String| Error::damaged(&store.full_path(&self.stored.path), reason);
        if crc32fast::hash(&bytes) != info.crc {
            return Err(damaged(format!("the checksum of row group {group} is wrong")));
        }
        let region = Arc::new(Region { offset: info.offset, bytes });
        let columns = columns_of(self.info.table);
        let group = self.metadata.row_group(group);
        let values: Result<Vec<Values>, ParquetError> = wanted
            .par_iter()
            .map(|index| columns::read_column(&self.metadata, group, &region, *index, columns[*index].kind))
            .collect();
        Ok((values.map_err(|error| damaged(error.to_string()))?, group.num_rows() as usize))
    }
}

fn info_of(metadata: &ParquetMetaData) -> Result<FileInfo, String> {
    let pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    let ours = pairs.into_iter().find(|pair| pair.key == FOOTER_KEY);
    let text = ours.and_then(|pair| pair.value.as_deref()).ok_or("it was not written by Tracewise")?;
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if version.format > FORMAT {
        return Err(format!("it has format {}, newer than this Tracewise knows", version.format));
    }
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The footer has to agree with itself, and with the path, before its offsets are trusted.
fn check_shape(metadata: &ParquetMetaData, info: &FileInfo, stored: &StoredFile) -> Result<(), String> {
    if (info.table, &info.node) != (stored.partition.table, &stored.partition.node) {
        return Err(format!("it holds the table {} of {}", info.table.name(), info.node));
    }
    let columns = columns_of(info.table);
    let names = metadata.file_metadata().schema_descr();
    let same = names.num_columns() == columns.len()
        && columns.iter().enumerate().all(|(index, column)| names.column(index).name() == column.name);
    if !same {
        return Err("it has other columns".into());
    }
    let groups = metadata.row_groups();
    let agree = groups.len() == info.row_groups.len()
        && groups.iter().zip(&info.row_groups).all(|(group, info)| {
            group.num_rows() == info.rows as i64
                && info.offset.checked_add(info.length).is_some_and(|end| end <= stored.bytes)
        });
    if agree { Ok(()) } else { Err("its footer contradicts itself".into()) }
}

/// Owners from the two columns that hold them; they come in long runs.
fn owners(states: &[ByteArray], jobs: &[ByteArray], has_job: &[bool]) -> Option<(Vec<Owner>, Vec<u32>)> {
    let mut owners: Vec<Owner> = Vec::new();
    let mut owner_of_row = Vec::with_capacity(states.len());
    let mut jobs = jobs.iter();
    let mut last: Option<(&[u8], Option<&[u8]>, u32)> = None;
    for (row, state) in states.iter().enumerate() {
        let job = if has_job.get(row).copied().unwrap_or(true) { Some(jobs.next()?.data()) } else { None };
        let number = match last {
            Some((last_state, last_job, number)) if last_state == state.data() && last_job == job => number,
            _ => {
                let owner = match (state.data(), job) {
                    (b"job", Some(job)) => Owner::Job(JobId::new(std::str::from_utf8(job).ok()?).ok()?),
                    (b"nobody", None) => Owner::Nobody,
                    (b"shared", None) => Owner::Shared,
                    (b"unknown", None) => Owner::Unknown,
                    _ => return None,
                };
                let known = owners.iter().rposition(|one| *one == owner);
                known.unwrap_or_else(|| {
                    owners.push(owner);
                    owners.len() - 1
                }) as u32
            }
        };
        last = Some((state.data(), job, number));
        owner_of_row.push(number);
    }
    Some((owners, owner_of_row))
}

/// The checksum that the name of a file carries.
pub fn checksum(bytes: &Bytes) -> u32 {
    crc32fast::hash(bytes)
}
