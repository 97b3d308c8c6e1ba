//! Merges small files, and removes old ones.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use workload::derive::Scale;
use workload::{Control, Millis, Source, Timestamp};

use crate::Archive;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::hours;
use crate::layout::{Partition, StoredFile, Table};
use crate::stage::{Target, failed, prepare_file};

/// What to remove; by default nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Remove files whose last reading is older than this.
    pub max_age: Option<Millis>,
    /// Remove the oldest files until the rest is not larger than this.
    pub max_bytes: Option<u64>,
}

/// What a compaction did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Files before.
    pub files_before: usize,
    /// Files after.
    pub files_after: usize,
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes after.
    pub bytes_after: u64,
    /// Files that retention removed, or would remove in a dry run.
    pub removed: Vec<String>,
    /// Days that could not be merged, and why.
    pub problems: Vec<String>,
}

impl Archive {
    /// Merges the files of each node's day. At any moment readers see either the old files or the
    /// new one; the old ones stay for `grace`, for readers that use them, and are removed by a
    /// later compaction. Progress is counted in days. Stopped, it keeps the days that are done.
    pub fn compact(&self, now: Timestamp, grace: Millis, control: &Control<'_>) -> Result<CompactReport> {
        let archive = self.with_stop(control.stop());
        archive.recover();
        let days = archive.files_by_day()?;
        let mut report = CompactReport::default();
        let n_days = days.len() as u64;
        for (done, (partition, stored)) in (0..).zip(days) {
            control.report(done, n_days)?;
            match archive.compact_day(&partition, &stored, now, grace) {
                Ok(day) => {
                    report.files_before += day.files_before;
                    report.files_after += day.files_after;
                    report.bytes_before += day.bytes_before;
                    report.bytes_after += day.bytes_after;
                }
                Err(error @ Error::Stopped(_)) => return Err(error),
                Err(error) => report.problems.push(error.to_string()),
            }
        }
        control.report(n_days, n_days)?;
        Ok(report)
    }

    fn compact_day(
        &self,
        partition: &Partition,
        stored: &[StoredFile],
        now: Timestamp,
        grace: Millis,
    ) -> Result<CompactReport> {
        let opened: Result<Vec<OpenFile>> = hours::open_files(&self.store, stored).into_iter().collect();
        let (visible, replaced) = hours::visible(opened?);
        let newest = visible.iter().map(|file| file.stored.modified).max();
        if grace.0 == 0 || newest.is_none_or(|newest| newest <= now - grace) {
            for file in &replaced {
                self.store.delete(&file.stored.path)?;
            }
        }
        let mut report = CompactReport {
            files_before: visible.len(),
            bytes_before: visible.iter().map(|file| file.stored.bytes).sum(),
            ..CompactReport::default()
        };
        for run in visible.chunk_by(|a, b| alike(&a.info.source, &b.info.source)) {
            report.files_after += 1;
            report.bytes_after += match run {
                [only] => only.stored.bytes,
                run => self.merge(partition, run, grace)?,
            };
        }
        Ok(report)
    }

    /// Puts one file in the place of several that were written one after the other.
    fn merge(&self, partition: &Partition, files: &[OpenFile], grace: Millis) -> Result<u64> {
        let newest = &files[files.len() - 1].stored.name;
        let level = files.iter().map(|file| file.stored.name.level).max().unwrap_or(0) + 1;
        let source = joined_source(files);
        let replaces = files.iter().map(|file| file.stored.name.id).collect();
        let target = Target { partition: partition.clone(), source: &source, id: newest.id, level, replaces };
        let set = self.spool.stage()?;
        let prepared = prepare_file(&set, target, |writer| {
            for pieces in hours::pieces_by_hour(files, Timestamp::MIN, Timestamp::MAX).values() {
                self.store.check_stop()?;
                match partition.table {
                    Table::Cpu => writer.write_threads(&hours::read_threads(&self.store, files, pieces)?),
                    Table::Cgroup => writer.write_jobs(&hours::read_jobs(&self.store, files, pieces)?),
                }
                .map_err(failed(self.store.address().as_ref()))?;
            }
            Ok(())
        })?;
        set.add(&prepared.path, prepared.place);
        set.commit(&self.store)?;
        if grace.0 == 0 {
            for file in files {
                self.store.delete(&file.stored.path)?;
            }
        }
        Ok(prepared.bytes)
    }

    /// Removes whole files, as `retention` demands.
    pub fn prune(&self, retention: &Retention, now: Timestamp, dry_run: bool) -> Result<CompactReport> {
        let mut files: Vec<StoredFile> = self.files_by_day()?.into_values().flatten().collect();
        files.sort_by_key(|file| file.name.last);
        let mut left: u64 = files.iter().map(|file| file.bytes).sum();
        let mut report =
            CompactReport { files_before: files.len(), bytes_before: left, ..CompactReport::default() };
        for file in &files {
            let too_old = retention.max_age.is_some_and(|age| file.name.last < now - age);
            let too_much = retention.max_bytes.is_some_and(|most| left > most);
            if too_old || too_much {
                left -= file.bytes;
                report.removed.push(file.path.clone());
                if !dry_run {
                    self.store.delete(&file.path)?;
                }
            }
        }
        report.files_after = files.len() - report.removed.len();
        report.bytes_after = left;
        Ok(report)
    }

    fn files_by_day(&self) -> Result<BTreeMap<Partition, Vec<StoredFile>>> {
        let mut days: BTreeMap<Partition, Vec<StoredFile>> = BTreeMap::new();
        for table in Table::ALL {
            let (files, foreign) = hours::list_files(&self.store, table, table.name())?;
            foreign.iter().for_each(|path| self.store.warn_of(&self.store.foreign(path)));
            for file in files {
                days.entry(file.partition.clone()).or_default().push(file);
            }
        }
        Ok(days)
    }
}

/// Whether ticks of one source mean the same as those of another.
fn alike(a: &Source, b: &Source) -> bool {
    Scale::from(a) == Scale::from(b) && a.modes == b.modes
}

/// The source of all files, with as many of their descriptions as one may have.
fn joined_source(files: &[OpenFile]) -> Source {
    let origins: BTreeSet<&str> = files.iter().flat_map(|file| file.info.source.origin.split("; ")).collect();
    let mut joined = String::new();
    for origin in origins {
        if joined.len() + origin.len() + 2 > Source::MAX_ORIGIN_BYTES {
            break;
        }
        let separator = if joined.is_empty() { "" } else { "; " };
        joined.extend([separator, origin]);
    }
    Source { origin: joined, ..files[0].info.source.clone() }
}
