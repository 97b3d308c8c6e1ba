//! How control groups are mounted: one tree for all controllers, or a tree for each.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// One tree for all controllers.
    Unified,
    /// One tree per controller, and perhaps a unified tree without controllers.
    Legacy {
        controllers: Vec<String>,
        has_unified: bool,
    },
    Absent,
}

/// Where to look for what. In a unified hierarchy all of them are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trees {
    pub hierarchy: Hierarchy,
    /// Controllers that the root offers to groups below it (unified only).
    pub controllers: Vec<String>,
    pub cpuset: PathBuf,
    pub cpu: PathBuf,
    pub cpuacct: PathBuf,
    pub memory: PathBuf,
    pub blkio: PathBuf,
    pub pids: PathBuf,
    /// Where version 1 keeps jobs together even if it neither confines nor limits them.
    pub freezer: PathBuf,
    pub unified: Option<PathBuf>,
}

impl Trees {
    pub fn find(root: &Path) -> Self {
        let controllers = fs::read_to_string(root.join("cgroup.controllers"));
        let hierarchy = if controllers.is_ok() { Hierarchy::Unified } else { legacy(root) };
        let (is_unified, has_unified) = match &hierarchy {
            Hierarchy::Unified => (true, true),
            Hierarchy::Legacy { has_unified, .. } => (false, *has_unified),
            Hierarchy::Absent => (false, false),
        };
        let tree = |names: [&str; 2]| {
            if is_unified {
                return root.to_owned();
            }
            let mounted = names.map(|name| root.join(name)).into_iter().find(|tree| tree.is_dir());
            mounted.unwrap_or_else(|| root.join(names[0]))
        };
        Self {
            controllers: controllers.unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            cpuset: tree(["cpuset", "cpuset"]),
            cpu: tree(["cpu", "cpu,cpuacct"]),
            cpuacct: tree(["cpuacct", "cpu,cpuacct"]),
            memory: tree(["memory", "memory"]),
            blkio: tree(["blkio", "blkio"]),
            pids: tree(["pids", "pids"]),
            freezer: tree(["freezer", "freezer"]),
            unified: has_unified.then(|| if is_unified { root.to_owned() } else { root.join("unified") }),
            hierarchy,
        }
    }

    /// The trees in which jobs are looked for: where they are confined, limited, kept together.
    pub fn searched(&self) -> Vec<&Path> {
        let mut trees: Vec<&Path> = match self.hierarchy {
            Hierarchy::Absent => Vec::new(),
            Hierarchy::Unified => vec![&self.cpuset],
            Hierarchy::Legacy { .. } => vec![&self.cpuset, &self.memory, &self.freezer],
        };
        trees.extend(self.unified.as_deref());
        trees.dedup();
        trees
    }
}

fn legacy(root: &Path) -> Hierarchy {
    let known = ["cpuset", "memory", "cpu", "cpuacct", "cpu,cpuacct", "blkio", "pids"];
    let controllers: Vec<String> =
        known.into_iter().filter(|name| root.join(name).is_dir()).map(str::to_owned).collect();
    let has_unified = root.join("unified/cgroup.controllers").exists();
    if controllers.is_empty() && !has_unified {
        return Hierarchy::Absent;
    }
    Hierarchy::Legacy { controllers, has_unified }
}
