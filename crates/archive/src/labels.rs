//! What is known for certain of the jobs in an archive: one file for each campaign that was added.
//!
//! `labels/<id>-<crc>.json`; the checksum in the name is that of the file's text.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use workload::label::{self, overlapping_sets};
use workload::{JobId, Label, Set};

use crate::Archive;
use crate::error::{Error, Result};
use crate::layout::next_id;
use crate::loader::Loader;
use crate::spool::{StagedSet, write_durably};
use crate::store::Store;

pub const FOLDER: &str = "labels";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct LabelFile {
    version: u32,
    labels: Vec<Label>,
}

impl Archive {
    /// What is known of jobs, in order of time.
    pub fn labels(&self) -> Result<Vec<Label>> {
        read_all(&self.store)
    }

    /// Adds labels, all of them or none.
    pub fn add_labels(&self, labels: &[Label]) -> Result<()> {
        let set = self.spool.stage()?;
        stage(&self.store, &set, labels)?;
        set.commit(&self.store)
    }
}

impl Loader {
    /// Adds labels that become visible together with the readings.
    pub fn add_labels(&mut self, labels: &[Label]) -> Result<()> {
        stage(&self.store, &self.set, labels)
    }
}

fn stage(store: &Store, set: &StagedSet, labels: &[Label]) -> Result<()> {
    let all: Vec<Label> = read_all(store)?.into_iter().chain(labels.iter().cloned()).collect();
    check(&all).map_err(|reason| Error::Labels { address: store.address().to_owned(), reason })?;
    let text = serde_json::to_vec(&LabelFile { version: VERSION, labels: labels.to_vec() })
        .map_err(|error| Error::io(set.folder())(error.into()))?;
    let prepared = set.prepare();
    write_durably(&prepared, &text)?;
    set.add(&prepared, format!("{FOLDER}/{}-{:08x}.json", next_id(), crc32fast::hash(&text)));
    Ok(())
}

fn read_all(store: &Store) -> Result<Vec<Label>> {
    let mut labels = Vec::new();
    for object in store.list(FOLDER)? {
        labels.extend(read_file(store, &object.path)?);
    }
    label::sort(&mut labels);
    Ok(labels)
}

pub fn read_file(store: &Store, path: &str) -> Result<Vec<Label>> {
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
    let file: LabelFile = serde_json::from_slice(&text).map_err(|error| Error::damaged(&shown, error))?;
    if file.version > VERSION {
        let address = store.address().to_owned();
        return Err(Error::NewerFormat { address, found: file.version, known: VERSION });
    }
    Ok(file.labels)
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
            "campaign {} ({}) and campaign {} ({}) would overlap in time",
            one.campaign, one.set, other.campaign, other.set
        )),
    }
}
