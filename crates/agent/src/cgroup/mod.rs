//! The jobs on this node, found by looking at its control groups.

mod files;
pub mod layout;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use workload::{JobId, JobReading};

use crate::cpuset::CpuSet;
use layout::{JobName, Manager, Named, recognise};

/// Deeper than any batch system puts its jobs.
const DEEPEST: usize = 8;
/// A tree with more groups than this is not walked to its end.
const MOST_GROUPS: usize = 100_000;

/// One job's group on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub manager: Manager,
    pub sluid: Option<String>,
    pub uid: Option<u32>,
    /// Below the root of its hierarchy.
    pub path: String,
    /// The threads it is confined to; `None` if it may run anywhere.
    pub cpus: Option<CpuSet>,
    /// Memory and pressure.
    pub reading: JobReading,
}

/// A group that looks like a job and is not counted as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub path: String,
    pub reason: String,
}

/// How control groups are mounted here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// One tree for all controllers.
    Unified,
    /// A tree a controller, and perhaps a unified one without controllers beside them.
    Legacy {
        controllers: Vec<String>,
        has_unified: bool,
    },
    Absent,
}

/// What was found on one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    pub hierarchy: Hierarchy,
    /// Controllers that the root offers to groups below it (unified only).
    pub controllers: Vec<String>,
    pub jobs: Vec<Job>,
    pub skipped: Vec<Skipped>,
}

/// Looks for jobs below a cgroup root; `procfs` is asked for the titles of processes.
#[derive(Debug, Clone)]
pub struct CgroupCollector {
    root: PathBuf,
    procfs: PathBuf,
}

/// The trees that are walked, by what they are for.
struct Trees {
    /// Where CPUs are confined.
    cpuset: PathBuf,
    memory: PathBuf,
    unified: Option<PathBuf>,
}

impl CgroupCollector {
    pub fn new(root: &Path, procfs: &Path) -> Self {
        Self { root: root.to_owned(), procfs: procfs.to_owned() }
    }

    pub fn discover(&self) -> Discovery {
        let hierarchy = self.hierarchy();
        let trees = match &hierarchy {
            Hierarchy::Absent => {
                return Discovery {
                    hierarchy,
                    controllers: Vec::new(),
                    jobs: Vec::new(),
                    skipped: Vec::new(),
                };
            }
            Hierarchy::Unified => Trees {
                cpuset: self.root.clone(),
                memory: self.root.clone(),
                unified: Some(self.root.clone()),
            },
            Hierarchy::Legacy { has_unified, .. } => Trees {
                cpuset: self.root.join("cpuset"),
                memory: self.root.join("memory"),
                unified: has_unified.then(|| self.root.join("unified")),
            },
        };
        let mut groups: BTreeMap<String, Named> = BTreeMap::new();
        for tree in [Some(&trees.cpuset), Some(&trees.memory), trees.unified.as_ref()].into_iter().flatten() {
            let mut n_left = MOST_GROUPS;
            walk(tree, &mut Vec::new(), &mut groups, &mut n_left);
        }
        let mut found = Discovery {
            controllers: files::words(&self.root.join("cgroup.controllers")),
            hierarchy,
            jobs: Vec::new(),
            skipped: Vec::new(),
        };
        let everything = files::cpus_of(&trees.cpuset);
        for (path, named) in groups {
            match self.job(&trees, &path, named, everything.as_ref()) {
                Ok(job) => found.jobs.push(job),
                Err(Some(reason)) => found.skipped.push(Skipped { path, reason }),
                Err(None) => {}
            }
        }
        found
    }

    fn hierarchy(&self) -> Hierarchy {
        if self.root.join("cgroup.controllers").exists() {
            return Hierarchy::Unified;
        }
        let known = ["cpuset", "memory", "cpu", "cpuacct", "cpu,cpuacct", "blkio", "pids"];
        let controllers: Vec<String> =
            known.into_iter().filter(|name| self.root.join(name).is_dir()).map(str::to_owned).collect();
        let has_unified = self.root.join("unified/cgroup.controllers").exists();
        match controllers.is_empty() && !has_unified {
            true => Hierarchy::Absent,
            false => Hierarchy::Legacy { controllers, has_unified },
        }
    }

    /// A job out of a group with such a name, or why it is none. No reason means: not worth a word.
    fn job(
        &self,
        trees: &Trees,
        path: &str,
        named: Named,
        everything: Option<&CpuSet>,
    ) -> Result<Job, Option<String>> {
        let places: Vec<PathBuf> = [Some(&trees.cpuset), Some(&trees.memory), trees.unified.as_ref()]
            .into_iter()
            .flatten()
            .map(|tree| tree.join(path))
            .filter(|place| place.is_dir())
            .collect();
        let cpus = confined_to(&trees.cpuset, path, everything);
        if named.manager == Manager::Systemd && cpus.is_none() {
            return Err(None);
        }
        if !places.iter().any(|place| files::is_populated(place)) {
            return Err(Some("no process in it: a job that has ended".into()));
        }
        let (id, sluid) = match named.name {
            JobName::Id(id) => (id, None),
            JobName::Sluid(sluid) => {
                let number = places.iter().find_map(|place| files::slurm_id(place, &self.procfs));
                (number.unwrap_or_else(|| sluid.clone()), Some(sluid))
            }
            JobName::Slot(slot) => {
                let id = places.iter().find_map(|place| files::condor_id(place, &self.procfs));
                (id.unwrap_or(slot), None)
            }
        };
        let id = JobId::new(id).map_err(|error| Some(error.to_string()))?;
        let unified = trees.unified.as_ref().map(|tree| tree.join(path));
        let reading = files::read_job(id.clone(), &trees.memory.join(path), unified.as_deref());
        let Named { manager, uid, .. } = named;
        Ok(Job { id, manager, sluid, uid, path: path.to_owned(), cpus, reading })
    }
}

fn walk(folder: &Path, parts: &mut Vec<String>, groups: &mut BTreeMap<String, Named>, n_left: &mut usize) {
    // A group may vanish between the moment it is listed and now; that is no error.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if *n_left == 0 || parts.len() >= DEEPEST || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        *n_left -= 1;
        parts.push(name);
        let path: Vec<&str> = parts.iter().map(String::as_str).collect();
        let named = recognise(&path);
        let goes_deeper = named.as_ref().is_none_or(|named| named.manager == Manager::Systemd);
        if let Some(named) = named {
            groups.insert(path.join("/"), named);
        }
        if goes_deeper {
            walk(&entry.path(), parts, groups, n_left);
        }
        parts.pop();
    }
}

/// The CPUs a group is confined to. One that may use all of them counts as confined only if it
/// or a group above it says so, as a job that has the whole node does.
fn confined_to(tree: &Path, path: &str, everything: Option<&CpuSet>) -> Option<CpuSet> {
    let cpus = files::cpus_of(&tree.join(path)).filter(|cpus| !cpus.is_empty())?;
    if everything != Some(&cpus) {
        return Some(cpus);
    }
    let mut group = tree.join(path);
    while group != *tree {
        let asked = fs::read_to_string(group.join("cpuset.cpus")).unwrap_or_default();
        if !asked.trim().is_empty() {
            return Some(cpus);
        }
        group.pop();
    }
    None
}
