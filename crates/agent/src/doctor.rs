//! Reports which jobs are found on a node, which threads they own, what was skipped, and what to change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use report::text::{show_bytes, show_table};
use serde_json::{Value, json};
use workload::{Millis, Owner, ThreadReading, Timestamp};

use crate::cgroup::layout::{Manager, is_nest, sluid_submit_millis};
use crate::cgroup::tree::{Hierarchy, Trees};
use crate::cgroup::{CgroupCollector, Job, LookError, MOST_JOBS, SkipReason, Skipped};
use crate::cpu::{CpuCollector, CpuError};
use crate::owner::Ownership;

/// What was found, and what to change.
#[derive(Debug)]
pub struct Report {
    root: String,
    trees: Trees,
    threads: Vec<ThreadReading>,
    jobs: Vec<Arc<Job>>,
    skipped: Vec<Skipped>,
    /// Where batch systems keep their jobs.
    nests: Vec<String>,
    /// What keeps ownership from being known, and what to change.
    pub advice: Vec<String>,
}

/// Examines a node once.
pub fn examine(procfs: &Path, cgroupfs: &Path, now: Timestamp) -> Result<Report, CpuError> {
    let mut threads = CpuCollector::new(procfs).read()?;
    let mut cgroup = CgroupCollector::new(cgroupfs, procfs);
    let looked = cgroup.look(now);
    cgroup.read_usage(now, Millis::SECOND, Duration::MAX);
    let jobs: Vec<Arc<Job>> = cgroup.jobs().cloned().collect();
    Ownership::of(jobs.iter().map(|job| &**job)).flag(&mut threads);
    let nests: Vec<PathBuf> = cgroup.nests().collect();
    let mut advice = advice(cgroupfs, cgroup.trees(), &jobs);
    advice.extend(advice_on_nests(cgroup.trees(), &nests, &jobs));
    advice.extend(advice_on_skipped(&cgroup));
    if let Err(LookError::Unreadable { path, source }) = looked {
        advice.push(format!("{} cannot be listed ({source}): let the agent read it", path.display()));
    }
    Ok(Report {
        root: cgroupfs.display().to_string(),
        trees: cgroup.trees().clone(),
        threads,
        skipped: cgroup.skipped().collect(),
        nests: nests.iter().map(|nest| nest.display().to_string()).collect(),
        jobs,
        advice,
    })
}

fn advice(root: &Path, trees: &Trees, jobs: &[Arc<Job>]) -> Vec<String> {
    let mut advice = Vec::new();
    let has_cpuset = |controllers: &[String]| controllers.iter().any(|controller| controller == "cpuset");
    match &trees.hierarchy {
        Hierarchy::Absent => advice.push(format!(
            "no control groups below {}: mount them, or give their path with --path.cgroupfs",
            root.display()
        )),
        Hierarchy::Unified if !has_cpuset(&trees.controllers) => advice
            .push("the kernel offers no cpuset controller, so that no job can be confined to threads".into()),
        Hierarchy::Legacy { controllers, .. } if !has_cpuset(controllers) => {
            advice.push(
                "the cpuset controller is not mounted, so that no job can be confined to threads".into(),
            );
        }
        Hierarchy::Unified | Hierarchy::Legacy { .. } => {}
    }
    let mut managers: Vec<Manager> =
        jobs.iter().filter(|job| job.cpus.is_none()).map(|job| job.manager).collect();
    managers.sort();
    managers.dedup();
    for manager in managers {
        let change = match manager {
            Manager::Slurm => {
                "TaskPlugin=task/cgroup,task/affinity in slurm.conf and ConstrainCores=yes in cgroup.conf"
            }
            Manager::HtCondor => "ASSIGN_CPU_AFFINITY=True in the configuration of the execute node",
            Manager::Kubernetes => "the kubelet's static CPU manager policy, with whole CPUs requested",
            Manager::Pbs => "the cpuset subsystem in the configuration of the cgroups hook",
            Manager::Systemd => "AllowedCPUs= in the unit",
        };
        advice.push(format!(
            "jobs of {} run on any thread, so that owners cannot be known: set {change}",
            manager.name()
        ));
    }
    let is_nameless = |job: &&Arc<Job>| job.sluid.as_deref() == Some(job.id.as_str());
    if let Some(job) = jobs.iter().find(is_nameless) {
        advice.push(format!(
            "job {} has a directory without its number, and no title of a process tells it: let the agent \
             read /proc (hidepid), or set CgroupJobIdPaths=yes in cgroup.conf",
            job.id
        ));
    }
    let is_slot = |job: &&Arc<Job>| job.manager == Manager::HtCondor && job.id.as_str().starts_with("slot");
    if let Some(job) = jobs.iter().find(is_slot) {
        advice.push(format!(
            "the job in {} is known by its slot only: give the agent CAP_SYS_PTRACE and \
             CAP_DAC_READ_SEARCH to read its .job.ad",
            job.id
        ));
    }
    advice
}

/// The most frequent question: why is nothing found, or less than was there before?
fn advice_on_nests(trees: &Trees, nests: &[PathBuf], jobs: &[Arc<Job>]) -> Vec<String> {
    if trees.hierarchy == Hierarchy::Absent {
        return Vec::new();
    }
    if nests.is_empty() && jobs.is_empty() {
        return vec![
            "no batch system keeps control groups here. If jobs run on this node: Slurm needs \
             ProctrackType=proctrack/cgroup, HTCondor BASE_CGROUP, PBS its cgroups hook"
                .into(),
        ];
    }
    let lacks = |nest: &&PathBuf, controller: &str| {
        let offered = std::fs::read_to_string(nest.join("cgroup.controllers"));
        trees.hierarchy == Hierarchy::Unified
            && offered.is_ok_and(|offered| !offered.split_whitespace().any(|one| one == controller))
    };
    let mut advice = Vec::new();
    for (controller, loss) in [("cpuset", "owners of threads"), ("memory", "memory of jobs")] {
        if let Some(nest) = nests.iter().find(|nest| lacks(nest, controller)) {
            advice.push(format!(
                "the {controller} controller is not handed down to {}, so that {loss} cannot be known: enable it \
                 in cgroup.subtree_control of the groups above (Slurm: EnableControllers=yes in cgroup.conf)",
                nest.display()
            ));
        }
    }
    advice
}

fn advice_on_skipped(cgroup: &CgroupCollector) -> Vec<String> {
    let mut advice = Vec::new();
    let n_left_out = cgroup.skipped().filter(|skipped| skipped.reason == SkipReason::TooMany).count();
    if n_left_out > 0 {
        advice.push(format!(
            "{n_left_out} jobs are left out, because the agent exposes {MOST_JOBS} by default, and free threads \
             are unknown: find out who makes so many control groups, or set --collector.cgroup.max-jobs"
        ));
    }
    let is_of_batch_system = |skipped: &Skipped| {
        let name = skipped.path.rsplit('/').next().unwrap_or_default();
        skipped.reason == SkipReason::Foreign && (is_nest(name) || name.starts_with("condor"))
    };
    if let Some(skipped) = cgroup.skipped().find(is_of_batch_system) {
        advice.push(format!(
            "{} does not belong to root, so that its jobs do not count: run the batch system as root",
            skipped.path
        ));
    }
    advice
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = &self.root;
        match &self.trees.hierarchy {
            Hierarchy::Unified => {
                writeln!(f, "{root}: version 2, controllers {}", self.trees.controllers.join(" "))?;
            }
            Hierarchy::Legacy { controllers, has_unified } => {
                let beside = if *has_unified { ", and a version 2 tree without controllers" } else { "" };
                writeln!(f, "{root}: version 1, controllers {}{beside}", controllers.join(" "))?;
            }
            Hierarchy::Absent => writeln!(f, "{root}: no control groups")?,
        }
        let count = |is: fn(&Owner) -> bool| self.threads.iter().filter(|thread| is(&thread.owner)).count();
        writeln!(
            f,
            "{} threads: {} of one job, {} shared by several, {} of nobody, {} unknown",
            self.threads.len(),
            count(|owner| matches!(owner, Owner::Job(_))),
            count(|owner| *owner == Owner::Shared),
            count(|owner| *owner == Owner::Nobody),
            count(|owner| *owner == Owner::Unknown),
        )?;
        for nest in &self.nests {
            writeln!(f, "jobs are kept in {nest}")?;
        }
        if !self.jobs.is_empty() {
            let head = ["job", "manager", "threads", "memory", "limit", "submitted", "control group"];
            let rows: Vec<Vec<String>> = self.jobs.iter().map(|job| row(job)).collect();
            writeln!(f, "\n{}", show_table(&head, &rows))?;
        }
        for skipped in &self.skipped {
            writeln!(f, "skipped {}: {}", skipped.path, skipped.reason)?;
        }
        writeln!(f)?;
        for line in &self.advice {
            writeln!(f, "! {line}")?;
        }
        if self.advice.is_empty() { writeln!(f, "nothing to change") } else { Ok(()) }
    }
}

fn row(job: &Job) -> Vec<String> {
    let absent = || "-".to_owned();
    let used = job.used.as_ref().map(|used| &used.total);
    let size = |bytes: Option<u64>| bytes.map_or_else(absent, show_bytes);
    let submitted = job.sluid.as_deref().and_then(sluid_submit_millis).map(|millis| {
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
    });
    vec![
        job.id.to_string(),
        job.manager.name().to_owned(),
        job.cpus.as_ref().map_or_else(|| "anywhere".to_owned(), ToString::to_string),
        size(used.and_then(|used| used.memory_bytes)),
        size(used.and_then(|used| used.memory_limit_bytes)),
        submitted.unwrap_or_else(absent),
        job.path.clone(),
    ]
}

impl Report {
    pub fn as_json(&self) -> Value {
        let hierarchy = match &self.trees.hierarchy {
            Hierarchy::Unified => json!({ "version": 2, "controllers": self.trees.controllers }),
            Hierarchy::Legacy { controllers, has_unified } => {
                json!({ "version": 1, "controllers": controllers, "has_unified": has_unified })
            }
            Hierarchy::Absent => Value::Null,
        };
        let job = |job: &Arc<Job>| {
            let used = job.used.as_ref().map(|used| &used.total);
            json!({ "job": job.id, "manager": job.manager.name(), "sluid": job.sluid, "uid": job.uid,
                "cgroup": job.path, "cpus": job.cpus.as_ref().map(ToString::to_string),
                "memory_bytes": used.and_then(|used| used.memory_bytes),
                "memory_limit_bytes": used.and_then(|used| used.memory_limit_bytes) })
        };
        let thread = |thread: &ThreadReading| json!({ "cpu": thread.cpu, "owner": thread.owner.state(), "job": thread.owner.job() });
        let skipped =
            |skipped: &Skipped| json!({ "cgroup": skipped.path, "reason": skipped.reason.to_string() });
        json!({
            "hierarchy": hierarchy,
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
            "threads": self.threads.iter().map(thread).collect::<Vec<_>>(),
            "skipped": self.skipped.iter().map(skipped).collect::<Vec<_>>(),
            "nests": self.nests,
            "advice": self.advice,
        })
    }
}
