//! Looks for folders that are jobs, by their names, in folders that belong to the owner of the tree:
//! who may make groups in one may give them any name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::LookError;
use super::layout::{Manager, Named, is_nest, is_of_users, recognise};

/// Deeper than any batch system puts its jobs.
const DEEPEST: usize = 8;
/// A tree with more groups than this is not walked to its end.
const MOST_GROUPS: usize = 100_000;

/// A group with a job's name.
#[derive(Debug)]
pub struct Found {
    pub named: Named,
    pub inode: u64,
}

/// What is found on one look.
#[derive(Debug)]
pub struct Search {
    /// The user that every folder must belong to in which jobs are found. The folder of a job itself need
    /// not: HTCondor hands it to the user of the job.
    owner: u32,
    pub found: BTreeMap<String, Found>,
    pub nests: Vec<(PathBuf, String)>,
    /// Folders of other users, in which nothing is looked for.
    pub foreign: BTreeSet<String>,
    pub unreadable: Option<LookError>,
    n_seen: usize,
}

impl Search {
    pub fn new(owner: u32) -> Self {
        Self {
            owner,
            found: BTreeMap::new(),
            nests: Vec::new(),
            foreign: BTreeSet::new(),
            unreadable: None,
            n_seen: 0,
        }
    }

    /// Looks for jobs below a directory of a tree.
    pub fn look_into(&mut self, tree: &Path, folder: &str) {
        self.n_seen = 0;
        let mut parts: Vec<String> =
            folder.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let place = tree.join(folder);
        let mut above = place.ancestors().take_while(|above| above.starts_with(tree));
        let is_foreign = |folder: &Path| fs::metadata(folder).is_ok_and(|found| found.uid() != self.owner);
        if above.any(is_foreign) {
            self.foreign.insert(folder.to_owned());
        } else {
            self.descend(tree, &place, &mut parts);
        }
    }

    /// A unit of systemd's in which a batch system keeps its jobs is none itself.
    pub fn drop_units_around_jobs(&mut self) {
        let is_unit = |found: &Found| found.named.manager == Manager::Systemd;
        let holds_jobs = |unit: &String| {
            let inside = format!("{unit}/");
            let below = self.found.range(inside.clone()..).take_while(|(path, _)| path.starts_with(&inside));
            below.into_iter().any(|(_, found)| !is_unit(found))
        };
        let units = self.found.iter().filter(|(_, found)| is_unit(found)).map(|(path, _)| path);
        let around: Vec<String> = units.filter(|unit| holds_jobs(unit)).cloned().collect();
        around.iter().for_each(|unit| drop(self.found.remove(unit)));
    }

    fn descend(&mut self, tree: &Path, folder: &Path, parts: &mut Vec<String>) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            // A group may vanish after it was listed; that is not an error.
            Err(error) if has_vanished(&error) => return,
            Err(source) => {
                self.unreadable = Some(LookError::Unreadable { path: folder.to_owned(), source });
                return;
            }
        };
        for entry in entries.flatten() {
            if self.n_seen == MOST_GROUPS || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            self.n_seen += 1;
            parts.push(name);
            self.visit(tree, &entry, parts);
            parts.pop();
        }
    }

    fn visit(&mut self, tree: &Path, entry: &fs::DirEntry, parts: &mut Vec<String>) {
        let path: Vec<&str> = parts.iter().map(String::as_str).collect();
        let named = recognise(&path);
        let goes_deeper = named.as_ref().is_none_or(|named| named.manager == Manager::Systemd);
        let last = path.last().copied().unwrap_or_default();
        if is_of_users(last) {
            return;
        }
        if let Some(named) = named {
            self.found.entry(path.join("/")).or_insert(Found { named, inode: entry.ino() });
        }
        if !goes_deeper {
            return;
        }
        // A folder that has vanished is found to have when it is listed.
        if entry.metadata().is_ok_and(|found| found.uid() != self.owner) {
            self.foreign.insert(path.join("/"));
            return;
        }
        if is_nest(last) {
            self.nests.push((tree.to_owned(), path.join("/")));
        }
        if parts.len() < DEEPEST {
            self.descend(tree, &entry.path(), parts);
        }
    }
}

fn has_vanished(error: &io::Error) -> bool {
    let no_device = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(no_device)
}
