//! Which CPUs a group is confined to.

use std::fs;
use std::path::Path;

use crate::cpuset::CpuSet;
use crate::kernel::Buffer;

/// The CPUs that a group may use, if it has a cpuset.
pub fn cpus_of(group: &Path, buffer: &mut Buffer) -> Option<CpuSet> {
    let names = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
    names.iter().find_map(|name| CpuSet::parse(buffer.read(&group.join(name)).ok()?))
}

/// The CPUs a group is confined to, by itself or by a group above it. One that may use all of them
/// counts as confined only if one of these says so, as a job that has the whole node does.
pub fn confined_to(
    tree: &Path,
    path: &str,
    everything: Option<&CpuSet>,
    buffer: &mut Buffer,
) -> Option<CpuSet> {
    let mut group = tree.join(path);
    let cpus = loop {
        if group == *tree {
            return None;
        }
        match cpus_of(&group, buffer) {
            Some(cpus) if !cpus.is_empty() => break cpus,
            _ => group.pop(),
        };
    };
    if everything != Some(&cpus) {
        return Some(cpus);
    }
    while group != *tree {
        if asks_for_cpus(&group, buffer) {
            return Some(cpus);
        }
        group.pop();
    }
    None
}

/// The CPUs that the containers of a pod ask for, all together. The one that holds the pod open asks
/// for none.
pub fn cpus_of_containers(pod: &Path, buffer: &mut Buffer) -> Option<CpuSet> {
    let folders =
        fs::read_dir(pod).ok()?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let asked = folders.filter_map(|container| {
        let cpus = CpuSet::parse(buffer.read(&container.path().join("cpuset.cpus")).ok()?)?;
        (!cpus.is_empty()).then_some(cpus)
    });
    asked.reduce(CpuSet::union)
}

/// Whether a unit of systemd's asks for CPUs of its own, and none above it does.
pub fn is_confined_unit(tree: &Path, path: &str, buffer: &mut Buffer) -> bool {
    let group = tree.join(path);
    let mut above = group.ancestors().skip(1).take_while(|above| *above != tree);
    asks_for_cpus(&group, buffer) && !above.any(|above| asks_for_cpus(above, buffer))
}

fn asks_for_cpus(group: &Path, buffer: &mut Buffer) -> bool {
    buffer.read(&group.join("cpuset.cpus")).is_ok_and(|asked| !asked.trim().is_empty())
}
