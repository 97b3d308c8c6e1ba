//! Checks every byte of an archive.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde::Serialize;
use workload::{Control, Timestamp};

use crate::Archive;
use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::hours;
use crate::journal::JournalFiles;
use crate::labels;
use crate::layout::{StoredFile, Table, date_of};
use crate::segment::SegmentIndex;
use crate::spool;

/// A problem, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Undamaged Parquet files.
    pub files: usize,
    /// Readings in these files.
    pub readings: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Segments of the journal, whose readings are not in Parquet yet.
    pub journal_segments: usize,
    /// Damage.
    pub problems: Vec<Finding>,
    /// Harmless leftovers of a crash, which the next write or compaction clears away.
    pub leftovers: Vec<Finding>,
}

impl Archive {
    /// Reads everything. Progress is counted in files.
    pub fn verify(&self, control: &Control<'_>) -> Result<VerifyReport> {
        self.with_stop(control.stop()).verify_all(control)
    }

    fn verify_all(&self, control: &Control<'_>) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let mut stored = Vec::new();
        for table in Table::ALL {
            let (files, foreign) = hours::list_files(&self.store, table, table.name())?;
            stored.extend(files);
            report.problems.extend(foreign.iter().map(|path| Finding {
                path: self.store.full_path(path),
                problem: self.store.foreign(path).to_string(),
            }));
        }
        let n_done = AtomicU64::new(0);
        let checked: Result<Vec<_>> = stored
            .par_iter()
            .map(|file| {
                let outcome = self.check(file);
                control.report(n_done.fetch_add(1, Ordering::Relaxed) + 1, stored.len() as u64)?;
                Ok((file, outcome))
            })
            .collect();
        let mut sound = Vec::new();
        for (file, outcome) in checked? {
            match outcome {
                Ok(readings) => {
                    report.files += 1;
                    report.readings += readings;
                    report.bytes += file.bytes;
                    sound.push(file.clone());
                }
                // A compaction at the same time has removed it.
                Err(error) if error.is_not_found() => {}
                Err(error) => report
                    .problems
                    .push(Finding { path: self.store.full_path(&file.path), problem: error.to_string() }),
            }
        }
        for day in sound.chunk_by(|a, b| a.partition == b.partition) {
            let opened: Result<Vec<OpenFile>> = hours::open_files(&self.store, day).into_iter().collect();
            let (_, replaced) = hours::visible(opened?);
            report.leftovers.extend(replaced.iter().map(|file| Finding {
                path: self.store.full_path(&file.stored.path),
                problem: "a newer file replaces it; compaction removes it".into(),
            }));
        }
        for (path, error) in labels::problems(&self.store)? {
            let path = self.store.full_path(&path);
            report.problems.push(Finding { path, problem: error.to_string() });
        }
        self.check_spool(&mut report)?;
        Ok(report)
    }

    fn check_spool(&self, report: &mut VerifyReport) -> Result<()> {
        let finding = |path: &Path, problem: String| Finding { path: path.display().to_string(), problem };
        let files = JournalFiles::list(&self.spool.journal())?;
        for path in &files.set_aside {
            let problem = format!("{} was set aside: a part of it could not be read", path.display());
            report.problems.push(finding(path, problem));
        }
        for path in &files.strays {
            let problem = Error::Foreign { path: path.display().to_string() }.to_string();
            report.leftovers.push(finding(path, problem));
        }
        for path in self.spool.sets()? {
            match spool::check_set(&path) {
                Ok(()) => {
                    let problem = "a write in progress, or one that was interrupted";
                    report.leftovers.push(finding(&path, problem.into()));
                }
                Err(error) => report.problems.push(finding(&path, error.to_string())),
            }
        }
        for path in &files.segments {
            self.store.check_stop()?;
            report.journal_segments += 1;
            let read_all = |index: SegmentIndex| {
                index.nodes().try_for_each(|node| index.read_node(node).map(drop))?;
                Ok(index)
            };
            match SegmentIndex::read(path).and_then(read_all) {
                Ok(index) => {
                    report.problems.extend(index.damage().into_iter().map(|damage| finding(path, damage)));
                    // A write in progress, one that was interrupted, or damage.
                    report.leftovers.extend(index.cut_off().map(|gap| {
                        finding(path, format!("its last {} bytes are not a whole record", gap.bytes))
                    }));
                }
                Err(error) => report.problems.push(finding(path, error.to_string())),
            }
        }
        Ok(())
    }

    /// Checks one file against its name, its footer and itself; returns how many readings it has.
    fn check(&self, stored: &StoredFile) -> Result<u64> {
        let path = self.store.full_path(&stored.path);
        let file = OpenFile::open(&self.store, stored)?;
        if self.store.read_range(&stored.path, 0..4)?.as_ref() != b"PAR1" {
            return Err(Error::damaged(&path, "its first bytes are not those of Parquet"));
        }
        for (group, info) in file.info.row_groups.iter().enumerate() {
            self.store.check_stop()?;
            let mut keys: Vec<(i64, u16)> = Vec::new();
            let times: Vec<i64> = match stored.partition.table {
                Table::Cpu => {
                    let rows = file.read_threads(&self.store, group)?;
                    keys.extend(rows.times.iter().copied().zip(rows.cpus.iter().copied()));
                    rows.times
                }
                Table::Cgroup => {
                    file.read_jobs(&self.store, group)?.rows.iter().map(|(time, _)| time.0).collect()
                }
            };
            let bounds = (times.iter().min().copied(), times.iter().max().copied());
            if bounds != (Some(info.first.0), Some(info.last.0)) {
                return Err(Error::damaged(&path, "its times are not those in its footer"));
            }
            if times.iter().any(|time| date_of(Timestamp(*time)) != stored.partition.date) {
                return Err(Error::damaged(&path, "it has readings of another day"));
            }
            if keys.windows(2).any(|pair| (pair[0].1, pair[0].0) > (pair[1].1, pair[1].0)) {
                return Err(Error::damaged(&path, "its readings are not sorted by thread and time"));
            }
        }
        Ok(file.info.rows())
    }
}
