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

/// Opens files, in parallel and in their order.
pub fn open_files(store: &Store, stored: &[StoredFile]) -> Vec<Result<OpenFile>> {
    stored.par_iter().map(|file| OpenFile::open(store, file)).collect()
}

/// Sorts files in the order in which they were written, and takes out those that another replaces, which
/// are the second list.
pub fn visible(mut opened: Vec<OpenFile>) -> (Vec<OpenFile>, Vec<OpenFile>) {
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
    opened.into_iter().partition(|file| !is_replaced(file))
}

/// The files of a table below a directory, and the paths of Parquet files that are none of ours.
pub fn list_files(store: &Store, table: Table, folder: &str) -> Result<(Vec<StoredFile>, Vec<String>)> {
    debug_assert!(folder.starts_with(table.name()));
    let (mut files, mut foreign) = (Vec::new(), Vec::new());
    for object in store.list(folder)?.into_iter().filter(|object| object.path.ends_with(".parquet")) {
        match StoredFile::parse(&object) {
            Some(file) => files.push(file),
            None => foreign.push(object.path),
        }
    }
    Ok((files, foreign))
}
