//! Writes rows to files that are ready to become visible.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use rayon::prelude::*;
use ulid::Ulid;
use workload::{NodeName, Source, Stop, Timestamp};

use crate::error::{Error, Result};
use crate::file::{FileInfo, FileWriter};
use crate::layout::{FileName, IDS_FOR_PARTS, Partition, Table, date_of};
use crate::rows::{JobRows, ThreadRows};
use crate::segment::{NodeRows, SegmentIndex};
use crate::spool::StagedSet;

/// Readings of a node that are sorted in memory at once; one takes about 90 bytes.
const ROWS_IN_MEMORY: usize = 500_000;

/// A file while it is being prepared.
pub type NewFile = FileWriter<BufWriter<File>>;

/// What a prepared file is made for.
pub struct Target<'a> {
    pub partition: Partition,
    pub source: &'a Source,
    pub id: Ulid,
    pub level: u32,
    pub replaces: BTreeSet<Ulid>,
}

/// A file that is ready to become visible.
pub struct Prepared {
    pub path: PathBuf,
    /// Where in the archive it belongs.
    pub place: String,
    pub info: FileInfo,
    pub bytes: u64,
}

/// Prepares one file; `fill` writes its rows.
pub fn prepare_file(
    set: &StagedSet,
    target: Target<'_>,
    fill: impl FnOnce(&mut NewFile) -> Result<()>,
) -> Result<Prepared> {
    let path = set.prepare();
    let prepare = || -> Result<(FileInfo, u32, u64)> {
        let file = files::create_new(&path)?;
        let Partition { table, node, .. } = &target.partition;
        let sink = BufWriter::with_capacity(1 << 18, file);
        let mut writer =
            FileWriter::new(sink, *table, node, target.source, target.replaces).map_err(failed(&path))?;
        fill(&mut writer)?;
        let (sink, info, crc) = writer.finish().map_err(failed(&path))?;
        let file = sink.into_inner().map_err(|error| Error::io(&path)(error.into_error()))?;
        let bytes = file.sync_all().and_then(|()| file.metadata()).map_err(Error::io(&path))?.len();
        Ok((info, crc, bytes))
    };
    match prepare() {
        Ok((info, crc, bytes)) => {
            let name =
                FileName { first: info.first(), last: info.last(), id: target.id, level: target.level, crc };
            let place = format!("{}/{name}", target.partition.folder());
            Ok(Prepared { path, place, info, bytes })
        }
        Err(error) => {
            let _ = fs::remove_file(&path);
            Err(error)
        }
    }
}

/// Unwraps I/O errors of the Parquet writer, so that a full disk is recognised.
pub fn failed(path: &Path) -> impl FnOnce(ParquetError) -> Error + '_ {
    move |error| match error {
        ParquetError::External(cause) => match cause.downcast::<std::io::Error>() {
            Ok(io) => Error::io(path)(*io),
            Err(other) => Error::io(path)(std::io::Error::other(other)),
        },
        other => Error::io(path)(std::io::Error::other(other)),
    }
}

/// Prepares the files of a segment of the journal, nodes in parallel. Their ids follow from the
/// segment's own, so that doing it again after a crash names them as before.
pub fn prepare_segment(set: &StagedSet, index: &SegmentIndex, stop: &Stop) -> Result<Vec<Prepared>> {
    let nodes: Vec<_> = index.nodes().collect();
    let prepared: Result<Vec<Vec<Prepared>>> = nodes
        .par_iter()
        .map(|node| {
            let mut files = Vec::new();
            index.for_each_part(node, ROWS_IN_MEMORY, |rows| {
                stop.check()?;
                let part = (files.len() as u128).min(IDS_FOR_PARTS - 1);
                files.extend(prepare_rows(set, node, Ulid(index.id.0 + part), rows)?);
                Ok(())
            })?;
            Ok(files)
        })
        .collect();
    Ok(prepared?.into_iter().flatten().collect())
}

/// Prepares the files for one node's rows: one for each day and table.
fn prepare_rows(set: &StagedSet, node: &NodeName, id: Ulid, rows: NodeRows) -> Result<Vec<Prepared>> {
    let NodeRows { source, threads, jobs } = rows;
    let mut files = Vec::new();
    let mut prepare = |date, table, fill: &dyn Fn(&mut NewFile) -> Result<(), ParquetError>| {
        let partition = Partition { table, date, node: node.clone() };
        let target = Target { partition, source: &source, id, level: 0, replaces: BTreeSet::new() };
        let file =
            prepare_file(set, target, |writer| fill(writer).map_err(failed(Path::new(node.as_str()))))?;
        set.add(&file.path, file.place.clone());
        files.push(file);
        Ok::<(), Error>(())
    };
    for (date, rows) in threads_by_date(threads) {
        prepare(date, Table::Cpu, &|writer| writer.write_threads(&rows))?;
    }
    let jobs = jobs.sorted().rows;
    for day in jobs.chunk_by(|a, b| date_of(a.0) == date_of(b.0)) {
        let rows = JobRows { rows: day.to_vec() };
        prepare(date_of(day[0].0), Table::Cgroup, &|writer| writer.write_jobs(&rows))?;
    }
    Ok(files)
}

fn threads_by_date(rows: ThreadRows) -> Vec<(chrono::NaiveDate, ThreadRows)> {
    let mut rest = rows.sorted();
    let mut days = Vec::new();
    // Sorted rows go hour by hour, so that days follow each other.
    while let Some(first) = rest.times.first() {
        let date = date_of(Timestamp(*first));
        let end = rest.times.partition_point(|time| date_of(Timestamp(*time)) <= date);
        let tail = rest.split_off(end);
        days.push((date, std::mem::replace(&mut rest, tail)));
    }
    days
}
