//! What of an archive is visible: the segments of its journal, and its files without those that are
//! damaged, foreign, replaced, or part of a write that is not complete.

use std::collections::BTreeMap;

use workload::{Millis, NodeName};

use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::hours;
use crate::journal::JournalFiles;
use crate::layout::{Partition, StoredFile, Table, date_folder, date_of};
use crate::segment::SegmentIndex;
use crate::snapshot::{LOOKBACK, Selection};
use crate::spool::Spool;
use crate::store::Store;

/// The segments of the journal.
pub fn read_journal(store: &Store, spool: &Spool) -> Result<Vec<SegmentIndex>> {
    let files = JournalFiles::list(&spool.journal())?;
    for path in &files.strays {
        store.warn_of(&Error::Foreign { path: path.display().to_string() });
    }
    let mut segments = Vec::new();
    for path in files.segments {
        store.check_stop()?;
        match SegmentIndex::read(&path) {
            Ok(index) => {
                for reason in index.damage() {
                    store.warn_of(&Error::damaged(&path.to_string_lossy(), reason));
                }
                segments.push(index);
            }
            Err(_) if !path.exists() => {}
            Err(error @ Error::Damaged { .. }) => store.warn_of(&error),
            Err(error) => return Err(error),
        }
    }
    Ok(segments)
}

/// The files of each node.
pub type FilesByNode = BTreeMap<NodeName, Vec<OpenFile>>;

/// Opens the files of both tables, without those of a set that is not wholly published, so that a write
/// is visible completely or not at all.
pub fn open_published(
    store: &Store,
    spool: &Spool,
    selection: &Selection,
) -> Result<(FilesByNode, FilesByNode)> {
    let mut before = spool.unpublished(store)?;
    loop {
        let mut listed = Vec::new();
        for table in Table::ALL {
            listed.push(list_selected(store, table, selection)?);
        }
        let after = spool.unpublished(store)?;
        // A set that was published meanwhile may have been seen in part.
        if !before.is_subset(&after) {
            before = after;
            continue;
        }
        let open = |files: Vec<StoredFile>| {
            open_by_node(store, files.into_iter().filter(|file| !after.contains(&file.path)).collect())
        };
        let jobs = listed.pop().unwrap_or_default();
        let threads = listed.pop().unwrap_or_default();
        return Ok((open(threads)?, open(jobs)?));
    }
}

fn list_selected(store: &Store, table: Table, selection: &Selection) -> Result<Vec<StoredFile>> {
    let (from, to) = (selection.from - LOOKBACK, selection.to);
    let mut stored: Vec<StoredFile> = Vec::new();
    for folder in store.subfolders(table.name())? {
        let Some(date) = folder.strip_prefix("date=").and_then(|date| date.parse().ok()) else { continue };
        if date < date_of(from) || date > date_of(to - Millis(1)) {
            continue;
        }
        let folder = match &selection.node {
            Some(node) => Partition { table, date, node: node.clone() }.folder(),
            None => date_folder(table, date),
        };
        let (files, foreign) = hours::list_files(store, table, &folder)?;
        foreign.iter().for_each(|path| store.warn_of(&store.foreign(path)));
        stored.extend(files.into_iter().filter(|file| file.name.overlaps(from, to)));
    }
    Ok(stored)
}

fn open_by_node(store: &Store, stored: Vec<StoredFile>) -> Result<FilesByNode> {
    let mut opened = Vec::with_capacity(stored.len());
    for file in hours::open_files(store, &stored) {
        match file {
            Err(error @ Error::Damaged { .. }) => store.warn_of(&error),
            file => opened.push(file?),
        }
    }
    let mut by_node = FilesByNode::new();
    for file in hours::visible(opened).0 {
        by_node.entry(file.stored.partition.node.clone()).or_default().push(file);
    }
    Ok(by_node)
}
