//! Reading hour by hour. A row group never reaches over the end of an hour, so an hour is
//! whole when the row groups that begin in it are read.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use ulid::Ulid;
use workload::{Millis, Timestamp};

use crate::error::Result;
use crate::file::OpenFile;
use crate::layout::{Partition, StoredFile, Table};
use crate::rows::{JobRows, ThreadRows};
use crate::store::Store;

/// A row group: the index of its file, and its own.
pub type Piece = (usize, usize);

/// The row groups of each hour that have readings in `[from, to)`. Files come in the order in
/// which they were written, so that what was written last comes last.
pub fn pieces_by_hour(files: &[OpenFile], from: Timestamp, to: Timestamp) -> BTreeMap<Timestamp, Vec<Piece>> {
    let mut hours: BTreeMap<Timestamp, Vec<Piece>> = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        for group in file.groups_between(from, to) {
            let hour = file.info.row_groups[group].first.floor(Millis::HOUR);
            hours.entry(hour).or_default().push((index, group));
        }
    }
    hours
}

/// The sorted thread readings of one hour.
pub fn read_threads(store: &Store, files: &[OpenFile], pieces: &[Piece]) -> Result<ThreadRows> {
    ThreadRows::merged(pieces.iter().map(|(file, group)| files[*file].read_threads(store, *group)))
}

/// The sorted job readings of one hour.
pub fn read_jobs(store: &Store, files: &[OpenFile], pieces: &[Piece]) -> Result<JobRows> {
    let mut rows = JobRows::default();
    for (file, group) in pieces {
        rows.rows.extend(files[*file].read_jobs(store, *group)?.rows);
    }
    Ok(rows.sorted())
}

/// Opens files in the order in which they were written, without those that another replaces.
/// The second list is what is replaced.
pub fn open_visible(store: &Store, stored: &[StoredFile]) -> Result<(Vec<OpenFile>, Vec<OpenFile>)> {
    let opened: Result<Vec<OpenFile>> = stored.par_iter().map(|file| OpenFile::open(store, file)).collect();
    let mut opened = opened?;
    opened.sort_by_key(|file| (file.stored.name.id, file.stored.name.level));
    // A compacted file carries the id of the newest file it replaces, at a higher level.
    let mut replaced: HashMap<(Partition, Ulid), u32> = HashMap::new();
    for file in &opened {
        for id in &file.info.replaces {
            let level = replaced.entry((file.stored.partition.clone(), *id)).or_default();
            *level = (*level).max(file.stored.name.level);
        }
    }
    let is_replaced = |file: &OpenFile| {
        let by = replaced.get(&(file.stored.partition.clone(), file.stored.name.id));
        by.is_some_and(|level| *level > file.stored.name.level)
    };
    Ok(opened.into_iter().partition(|file| !is_replaced(file)))
}

/// The files of a table, each understood; one that is none of ours is an error.
pub fn list_files(store: &Store, table: Table, folder: &str) -> Result<Vec<StoredFile>> {
    debug_assert!(folder.starts_with(table.name()));
    let objects = store.list(folder)?;
    let parquet = objects.into_iter().filter(|object| object.path.ends_with(".parquet"));
    parquet
        .map(|object| {
            StoredFile::parse(&object)
                .ok_or_else(|| crate::Error::Foreign { path: store.full_path(&object.path) })
        })
        .collect()
}
