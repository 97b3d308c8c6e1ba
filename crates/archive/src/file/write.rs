//! Rows into a file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;
use ulid::Ulid;
use workload::{JobId, JobReading, Measure, Millis, Mode, NodeName, Source, Timestamp};

use super::{FOOTER_KEY, FileInfo, RowGroupInfo, Span, columns_of};
use crate::columns::{self, Values};
use crate::layout::{FORMAT, Table};
use crate::rows::{JobRows, ThreadRows};
use crate::text_runs::TextRuns;

/// Few enough for the columns of a row group to stay in a core's cache while they are decoded and
/// turned into rates, and enough to compress well.
const ROWS_IN_GROUP: usize = 50_000;

/// Passes bytes on and keeps the checksum of those since it was last begun.
struct Summed<W> {
    inner: W,
    part: crc32fast::Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n_bytes = self.inner.write(bytes)?;
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
        let sink = Summed { inner: sink, part: crc32fast::Hasher::new() };
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

    /// Adds rows of the `cpu` table, sorted: whole threads of one hour make a row group.
    pub fn write_threads(&mut self, rows: &ThreadRows) -> Result<(), ParquetError> {
        self.info.cpus.extend(rows.by_thread().map(|(cpu, _)| cpu.0));
        let key = |row: usize| (rows.times[row].div_euclid(Millis::HOUR.0), rows.cpus[row]);
        let ends = |start: usize, row: usize| {
            key(row).0 != key(start).0 || (row - start >= ROWS_IN_GROUP && key(row) != key(row - 1))
        };
        let mut start = 0;
        while start < rows.len() {
            let end = (start + 1..rows.len()).find(|row| ends(start, *row)).unwrap_or(rows.len());
            let columns = thread_columns(rows, start..end, &self.info.source);
            let is_new = |row: &usize| {
                *row == start
                    || (rows.cpus[*row], rows.times[*row]) != (rows.cpus[row - 1], rows.times[row - 1])
            };
            let moments = (start..end).filter(is_new).count();
            self.write_group(&columns, end - start, moments, bounds(&rows.times[start..end]))?;
            let mut at = start;
            for run in rows.owner_of_row[start..end].chunk_by(|a, b| a == b) {
                if let Some(job) = rows.owners[run[0] as usize].job() {
                    note_job(&mut self.info.jobs, job, bounds(&rows.times[at..at + run.len()]));
                }
                at += run.len();
            }
            start = end;
        }
        Ok(())
    }

    /// Adds rows of the `cgroup` table, sorted, a row group for each hour they touch.
    pub fn write_jobs(&mut self, rows: &JobRows) -> Result<(), ParquetError> {
        for hour in rows.rows.chunk_by(|a, b| a.0.floor(Millis::HOUR) == b.0.floor(Millis::HOUR)) {
            let times: Vec<i64> = hour.iter().map(|(time, _)| time.0).collect();
            self.write_group(&job_columns(hour), hour.len(), hour.len(), bounds(&times))?;
            for (time, reading) in hour {
                note_job(&mut self.info.jobs, &reading.job, Span(*time, *time));
            }
        }
        Ok(())
    }

    fn write_group(
        &mut self,
        columns: &[Values],
        rows: usize,
        moments: usize,
        Span(first, last): Span,
    ) -> Result<(), ParquetError> {
        let offset = self.parquet.bytes_written() as u64;
        self.parquet.flush()?;
        self.parquet.inner_mut().part = crc32fast::Hasher::new();
        columns::write_row_group(self.parquet.next_row_group()?, columns)?;
        self.parquet.flush()?;
        let length = self.parquet.bytes_written() as u64 - offset;
        let crc = self.parquet.inner().part.clone().finalize();
        self.info.row_groups.push(RowGroupInfo {
            first,
            last,
            rows: rows as u64,
            moments: moments as u64,
            offset,
            length,
            crc,
        });
        Ok(())
    }

    /// Writes the footer; returns the sink, the footer, and its checksum.
    pub fn finish(mut self) -> Result<(W, FileInfo, u32), ParquetError> {
        let text =
            serde_json::to_string(&self.info).map_err(|error| ParquetError::External(Box::new(error)))?;
        self.parquet.append_key_value_metadata(KeyValue::new(FOOTER_KEY.into(), text));
        self.parquet.flush()?;
        self.parquet.inner_mut().part = crc32fast::Hasher::new();
        let sink = self.parquet.into_inner()?;
        Ok((sink.inner, self.info, sink.part.finalize()))
    }
}

/// The first and the last of some moments.
fn bounds(times: &[i64]) -> Span {
    let (first, last) = (times.iter().min(), times.iter().max());
    Span(Timestamp(first.copied().unwrap_or(0)), Timestamp(last.copied().unwrap_or(0)))
}

fn note_job(jobs: &mut BTreeMap<JobId, Span>, job: &JobId, span: Span) {
    match jobs.get_mut(job) {
        Some(known) => *known = Span(known.0.min(span.0), known.1.max(span.1)),
        None => drop(jobs.insert(job.clone(), span)),
    }
}

fn thread_columns(rows: &ThreadRows, range: Range<usize>, source: &Source) -> Vec<Values> {
    let (mut states, mut jobs) = (TextRuns::default(), TextRuns::default());
    for run in rows.owner_of_row[range.clone()].chunk_by(|a, b| a == b) {
        let owner = &rows.owners[run[0] as usize];
        states.push(run.len(), Some(owner.state()));
        jobs.push(run.len(), owner.job().map(|job| job.as_str()));
    }
    let mut columns = vec![
        Values::Times(rows.times[range.clone()].to_vec()),
        Values::Ints(rows.cpus[range.clone()].iter().map(|cpu| i32::from(*cpu)).collect()),
        Values::Texts(states),
        Values::Texts(jobs),
    ];
    columns.extend(Mode::ALL.map(|mode| {
        if source.modes.contains(mode) {
            Values::Counts { values: rows.ticks[mode as usize][range.clone()].to_vec(), present: Vec::new() }
        } else {
            Values::Counts { values: Vec::new(), present: vec![false; range.len()] }
        }
    }));
    columns
}

fn job_columns(rows: &[(Timestamp, JobReading)]) -> Vec<Values> {
    let count = |index: usize| {
        let values = rows.iter().map(|(_, reading)| reading.counts()[index]);
        Values::Counts {
            values: values.clone().flatten().map(|count| i64::try_from(count).unwrap_or(i64::MAX)).collect(),
            present: values.map(|value| value.is_some()).collect(),
        }
    };
    let mut jobs = TextRuns::default();
    for run in rows.chunk_by(|a, b| a.1.job == b.1.job) {
        jobs.push(run.len(), Some(run[0].1.job.as_str()));
    }
    let mut columns = vec![Values::Times(rows.iter().map(|(time, _)| time.0).collect()), Values::Texts(jobs)];
    columns.extend((0..JobReading::COUNTS.len()).map(count));
    columns
}
