//! The files of one control group. What is missing or garbled is absent, never zero.

use std::fs;
use std::path::{Path, PathBuf};

use workload::{JobId, JobReading, Pressure};

use crate::cpuset::CpuSet;

/// How many processes are asked who they are before giving up.
const PROCESSES_ASKED: usize = 16;

/// The words of a file of one line.
pub fn words(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The CPUs that a group may use.
pub fn cpus_of(group: &Path) -> Option<CpuSet> {
    let names = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
    names.iter().find_map(|name| CpuSet::parse(&fs::read_to_string(group.join(name)).ok()?))
}

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
            found.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()));
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.map(|entry| entry.path()));
        }
        found.pop()
    })
}

/// The number of a Slurm job, from the title of a step's daemon: `slurmstepd: [3385.extern]`.
pub fn slurm_id(job: &Path, procfs: &Path) -> Option<String> {
    processes(job).take(PROCESSES_ASKED).find_map(|pid| {
        let title = fs::read(procfs.join(pid.to_string()).join("cmdline")).ok()?;
        slurm_id_in(&String::from_utf8_lossy(&title))
    })
}

fn slurm_id_in(title: &str) -> Option<String> {
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

fn condor_id_in(ad: &str) -> Option<String> {
    let value = |name: &str| {
        ad.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().parse::<u64>().ok()).flatten()
        })
    };
    Some(format!("{}.{}", value("ClusterId")?, value("ProcId")?))
}

/// Memory and pressure of a job. A limit that is "max", or as good as none, is absent.
pub fn read_job(job: JobId, memory: &Path, unified: Option<&Path>) -> JobReading {
    let number = |name: &str| fs::read_to_string(memory.join(name)).ok()?.trim().parse::<u64>().ok();
    let pressure = |name: &str| unified.map(|group| read_pressure(&group.join(name))).unwrap_or_default();
    // Where v1 has no limit, it shows the largest number of pages it can count.
    let real_limit = |limit: &u64| *limit < 1 << 60;
    JobReading {
        job,
        memory_bytes: number("memory.current").or_else(|| number("memory.usage_in_bytes")),
        memory_peak_bytes: number("memory.peak").or_else(|| number("memory.max_usage_in_bytes")),
        memory_limit_bytes: number("memory.max")
            .or_else(|| number("memory.limit_in_bytes"))
            .filter(real_limit),
        cpu_pressure: pressure("cpu.pressure"),
        memory_pressure: pressure("memory.pressure"),
        io_pressure: pressure("io.pressure"),
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`, and the same for `full`.
fn read_pressure(path: &Path) -> Pressure {
    let text = fs::read_to_string(path).unwrap_or_default();
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.split_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok())
    };
    Pressure { some_usec: total("some"), full_usec: total("full") }
}

fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok()).flatten()
    })
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
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,80}") {
            let _ = (slurm_id_in(&text), condor_id_in(&text), value_of(&text, "populated"));
        }
    }
}
