//! Labels of the jobs in an archive, one file per campaign that was added, and faults that were injected into
//! its traces.
//!
//! `labels/<id>-<crc>.json` and `injections/<id>-<crc>.json`; the checksum in the name is that of the file's text.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ulid::Ulid;
use workload::label::{self, overlapping_sets};
use workload::{Injection, JobId, Label, Set};

use crate::Archive;
use crate::error::{Error, Result};
use crate::layout::next_id;
use crate::loader::Loader;
use crate::spool::{Spool, StagedSet};
use crate::store::Store;

/// Each is a directory, and the name of the list in its files.
const LABELS: &str = "labels";
const INJECTIONS: &str = "injections";
const VERSION: u32 = 1;

impl Archive {
    /// The labels of jobs, in order of time.
    pub fn labels(&self) -> Result<Vec<Label>> {
        read_labels(&self.store)
    }

    /// The faults that were injected into its traces.
    pub fn injections(&self) -> Result<Vec<Injection>> {
        read_all(&self.store, INJECTIONS)
    }

    /// Adds labels, all of them or none. Refused are a job that has a label, a campaign in two sets, and
    /// sets that overlap in time.
    pub fn add_labels(&self, labels: &[Label]) -> Result<()> {
        let set = self.spool.stage()?;
        commit_with_labels(&self.store, &self.spool, set, labels)
    }
}

impl Loader {
    /// Adds labels that become visible together with the readings, in [`Loader::finish`]. Those that the
    /// archive would refuse now are refused; `finish` checks them again.
    pub fn add_labels(&mut self, labels: &[Label]) -> Result<()> {
        let known = read_labels(&self.store)?;
        check_added(&self.store, known, self.labels.iter().chain(labels))?;
        self.labels.extend_from_slice(labels);
        Ok(())
    }

    /// Adds injected faults, which become visible together with the readings.
    pub fn add_injections(&mut self, injections: &[Injection]) -> Result<()> {
        stage(&self.set, INJECTIONS, injections)
    }
}

/// Commits a set with labels: reading the known labels, checking, staging and publishing are one
/// critical section.
pub fn commit_with_labels(store: &Store, spool: &Spool, set: StagedSet, labels: &[Label]) -> Result<()> {
    if labels.is_empty() {
        return set.commit(store);
    }
    let _lock = spool.lock_labels(store.stop())?;
    // A writer that crashed may have committed labels that are not visible yet.
    spool.recover(store)?;
    check_added(store, read_labels(store)?, labels)?;
    stage(&set, LABELS, labels)?;
    set.commit(store)
}

fn check_added<'a>(
    store: &Store,
    mut known: Vec<Label>,
    added: impl IntoIterator<Item = &'a Label>,
) -> Result<()> {
    known.extend(added.into_iter().cloned());
    check(&known).map_err(|reason| Error::Labels { address: store.address().to_owned(), reason })
}

fn stage(set: &StagedSet, folder: &str, known: &[impl Serialize]) -> Result<()> {
    let text = serde_json::to_vec(&json!({ "version": VERSION, folder: known }))
        .map_err(|error| Error::io(set.folder())(error.into()))?;
    let prepared = set.prepare();
    files::write(&prepared, &text)?;
    set.add(&prepared, format!("{folder}/{}-{:08x}.json", next_id(), crc32fast::hash(&text)));
    Ok(())
}

fn read_labels(store: &Store) -> Result<Vec<Label>> {
    let mut labels = read_all(store, LABELS)?;
    label::sort(&mut labels);
    Ok(labels)
}

fn read_all<T: DeserializeOwned>(store: &Store, folder: &str) -> Result<Vec<T>> {
    let mut known = Vec::new();
    for object in store.list(folder)? {
        known.extend(read_file(store, folder, &object.path)?);
    }
    Ok(known)
}

/// Whether this is the path of a file of labels or injected faults.
pub fn is_file(path: &str) -> bool {
    let name = path.split_once('/').filter(|(folder, _)| [LABELS, INJECTIONS].contains(folder));
    let parts = name.and_then(|(_, name)| name.strip_suffix(".json")?.split_once('-'));
    parts.is_some_and(|(id, crc)| Ulid::from_string(id).is_ok() && u32::from_str_radix(crc, 16).is_ok())
}

/// Every file that cannot be read, with why, and contradictions between those that can.
pub fn problems(store: &Store) -> Result<Vec<(String, Error)>> {
    let mut problems = Vec::new();
    let mut readable = Vec::new();
    for object in store.list(LABELS)? {
        match read_file::<Label>(store, LABELS, &object.path) {
            Ok(labels) => readable.extend(labels),
            Err(error) => problems.push((object.path, error)),
        }
    }
    label::sort(&mut readable);
    if let Err(reason) = check(&readable) {
        let address = store.address().to_owned();
        problems.push((LABELS.into(), Error::ContradictoryLabels { address, reason }));
    }
    for object in store.list(INJECTIONS)? {
        let read = read_file::<Injection>(store, INJECTIONS, &object.path);
        problems.extend(read.err().map(|error| (object.path, error)));
    }
    Ok(problems)
}

fn read_file<T: DeserializeOwned>(store: &Store, folder: &str, path: &str) -> Result<Vec<T>> {
    let shown = store.full_path(path);
    let Some(text) = store.read(path)? else { return Err(Error::Gone { path: shown }) };
    let crc = path.strip_suffix(".json").and_then(|path| path.rsplit_once('-'));
    let crc = crc.and_then(|(_, crc)| u32::from_str_radix(crc, 16).ok());
    match crc {
        None => return Err(Error::Foreign { path: shown }),
        Some(crc) if crc != crc32fast::hash(&text) => {
            return Err(Error::damaged(&shown, "its text does not match the checksum in its name"));
        }
        Some(_) => {}
    }
    let mut file: Value = serde_json::from_slice(&text).map_err(|error| Error::damaged(&shown, error))?;
    match file["version"].as_u64() {
        None => return Err(Error::damaged(&shown, "it has no version")),
        Some(found) if found > u64::from(VERSION) => {
            let address = store.address().to_owned();
            return Err(Error::NewerFormat { address, found: found as u32, known: VERSION });
        }
        Some(_) => {}
    }
    serde_json::from_value(file[folder].take()).map_err(|error| Error::damaged(&shown, error))
}

/// Job ids are unique, a campaign belongs to one set, and no two sets share a moment.
fn check(labels: &[Label]) -> Result<(), String> {
    let mut jobs: BTreeSet<&JobId> = BTreeSet::new();
    let mut sets: BTreeMap<&str, Set> = BTreeMap::new();
    for label in labels {
        if label.start >= label.end {
            return Err(format!("job {} has no length", label.job));
        }
        if !jobs.insert(&label.job) {
            return Err(format!("job {} has a label already", label.job));
        }
        let set = *sets.entry(&label.campaign).or_insert(label.set);
        if set != label.set {
            return Err(format!("campaign {} cannot be both {set} and {}", label.campaign, label.set));
        }
    }
    match overlapping_sets(labels) {
        None => Ok(()),
        Some((one, other)) => Err(format!(
            "campaign {} ({}) and campaign {} ({}) overlap in time",
            one.campaign, one.set, other.campaign, other.set
        )),
    }
}
