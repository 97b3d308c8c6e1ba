//! The identity of a job from its processes: its number, if the path does not contain it, and its user.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::cpuset::CpuSet;
use crate::kernel::{lines, value_of};

/// How many processes are examined before giving up.
const PROCESSES_ASKED: usize = 16;
/// How many groups below a job are searched for processes: users may have made some of them.
const GROUPS_SEARCHED: usize = 4096;
/// What the kernel shows for a user that a user namespace does not know.
const UNMAPPED: u32 = 65_534;
const MOST_OF_AN_AD: u64 = 64 * 1024;

/// Whether any process is in the group or below it.
pub fn is_populated(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    value_of(&events, "populated")
        .map_or_else(|| processes(group).next().is_some(), |populated| populated > 0)
}

/// The processes in a group and below it.
fn processes(group: &Path) -> impl Iterator<Item = u32> + use<> {
    let mut folders: Vec<PathBuf> = vec![group.to_owned()];
    let mut found: Vec<u32> = Vec::new();
    let mut n_left = GROUPS_SEARCHED;
    std::iter::from_fn(move || {
        while found.is_empty() {
            n_left = n_left.checked_sub(1)?;
            let folder = folders.pop()?;
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            found.extend(lines(&text).filter_map(|line| line.trim().parse::<u32>().ok()));
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.map(|entry| entry.path()));
        }
        found.pop()
    })
}

/// The user of a job: the owner of its first process that does not belong to root.
pub fn uid(job: &Path, procfs: &Path) -> Option<u32> {
    let owner = |pid: u32| owner(&procfs.join(pid.to_string()));
    processes(job).take(PROCESSES_ASKED).filter_map(owner).find(|uid| !matches!(*uid, 0 | UNMAPPED))
}

fn owner(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.uid())
}

/// The number of a Slurm job, from the title of a step's daemon: `slurmstepd: [3385.extern]`. Only
/// daemons are asked, which live in a group of their own and run as the kernel's files do.
pub fn slurm_id(job: &Path, procfs: &Path) -> Option<String> {
    let steps = fs::read_dir(job).ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("step_")
    });
    let root = owner(procfs);
    steps.flat_map(|step| processes(&step.path().join("slurm"))).find_map(|pid| {
        let process = procfs.join(pid.to_string());
        if owner(&process) != root {
            return None;
        }
        let title = fs::read(process.join("cmdline")).ok()?;
        slurm_id_in(&String::from_utf8_lossy(&title))
    })
}

/// The number in the title of a step's daemon.
pub fn slurm_id_in(title: &str) -> Option<String> {
    let (_, rest) = title.strip_prefix("slurmstepd: ")?.split_once('[')?;
    let id: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!id.is_empty()).then_some(id)
}

/// The id of an HTCondor job, from the `.job.ad` in the working directory of its processes.
pub fn condor_id(slot: &Path, procfs: &Path) -> Option<String> {
    processes(slot).take(PROCESSES_ASKED).find_map(|pid| {
        let folder = procfs.join(pid.to_string()).join("cwd");
        condor_id_in(&read_users_file(&folder.join(".job.ad"))?)
    })
}

/// A file that a user may have put there: only a plain one, only its beginning, and without waiting.
fn read_users_file(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::File::from(openat(CWD, path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST_OF_AN_AD).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// The CPUs that the first process of a group may run on.
pub fn affinity(group: &Path, procfs: &Path) -> Option<CpuSet> {
    let status = fs::read_to_string(procfs.join(processes(group).next()?.to_string()).join("status")).ok()?;
    lines(&status).find_map(|line| CpuSet::parse(line.strip_prefix("Cpus_allowed_list:")?))
}

/// Cluster and process in the text of a job's ad.
pub fn condor_id_in(ad: &str) -> Option<String> {
    let value = |name: &str| {
        lines(ad).find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().parse::<u64>().ok()).flatten()
        })
    };
    Some(format!("{}.{}", value("ClusterId")?, value("ProcId")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_step_daemon_names_its_job() {
        assert_eq!(slurm_id_in("slurmstepd: [3385.extern]\0"), Some("3385".into()));
        assert_eq!(slurm_id_in("slurmstepd: [.extern]"), None);
        assert_eq!(slurm_id_in("sleep"), None);
    }

    #[test]
    fn a_job_ad_names_cluster_and_process() {
        assert_eq!(condor_id_in("MyType = \"Job\"\nProcId = 3\nClusterId = 120\n"), Some("120.3".into()));
        assert_eq!(condor_id_in("ClusterId = 120\n"), None);
        assert_eq!(condor_id_in("ProcId = 3\nClusterId = 12"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,80}") {
            let _ = (slurm_id_in(&text), condor_id_in(&text));
        }
    }
}
