//! Who a group's processes are: the job's number where its path does not say, and its user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::kernel::{lines, value_of};

/// How many processes are asked who they are before giving up.
const PROCESSES_ASKED: usize = 16;

/// Whether any process is in the group or below it.
pub fn is_populated(group: &Path) -> bool {
    let events = fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    value_of(&events, "populated")
        .map_or_else(|| processes(group).next().is_some(), |populated| populated > 0)
}

/// The processes in a group and below it.
fn processes(group: &Path) -> impl Iterator<Item = u32> {
    let mut folders: Vec<PathBuf> = vec![group.to_owned()];
    let mut found: Vec<u32> = Vec::new();
    std::iter::from_fn(move || {
        while found.is_empty() {
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

/// The user of a job: whoever runs its first process that is not root's.
pub fn uid(job: &Path, procfs: &Path) -> Option<u32> {
    let owner = |pid: u32| fs::metadata(procfs.join(pid.to_string())).ok().map(|found| found.uid());
    processes(job).take(PROCESSES_ASKED).filter_map(owner).find(|uid| *uid != 0)
}

/// The number of a Slurm job, from the title of a step's daemon: `slurmstepd: [3385.extern]`.
pub fn slurm_id(job: &Path, procfs: &Path) -> Option<String> {
    processes(job).take(PROCESSES_ASKED).find_map(|pid| {
        let title = fs::read(procfs.join(pid.to_string()).join("cmdline")).ok()?;
        slurm_id_in(&String::from_utf8_lossy(&title))
    })
}

/// The number in the title of a step's daemon.
pub fn slurm_id_in(title: &str) -> Option<String> {
    let (_, rest) = title.strip_prefix("slurmstepd: ")?.split_once('[')?;
    let id: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!id.is_empty()).then_some(id)
}

/// The id of an HTCondor job, from the `.job.ad` in the folder that its processes work in.
pub fn condor_id(slot: &Path, procfs: &Path) -> Option<String> {
    processes(slot).take(PROCESSES_ASKED).find_map(|pid| {
        let folder = procfs.join(pid.to_string()).join("cwd");
        condor_id_in(&fs::read_to_string(folder.join(".job.ad")).ok()?)
    })
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
