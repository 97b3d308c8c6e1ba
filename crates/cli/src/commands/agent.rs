//! `tracewise agent`

use std::process::ExitCode;

use agent::cgroup::layout::{Manager, sluid_submit_millis};
use agent::cgroup::{CgroupCollector, Discovery, Hierarchy, Job};
use agent::cpu::CpuCollector;
use agent::owner::Ownership;
use serde_json::json;
use workload::{Owner, ThreadReading, Timestamp};

use crate::args::KernelRoots;
use crate::output::{say, say_json, say_table};
use crate::units::{show_bytes, show_time};

/// `tracewise agent doctor`: exit code 1 if there is something to change.
pub fn doctor(roots: &KernelRoots, json: bool) -> anyhow::Result<ExitCode> {
    let found = CgroupCollector::new(&roots.cgroupfs, &roots.procfs).discover();
    let mut threads = CpuCollector::new(&roots.procfs).read()?;
    Ownership::of(&found.jobs).flag(&mut threads);
    let advice = advice(roots, &found);
    if json {
        say_json(&as_json(&found, &threads, &advice))?;
    } else {
        say_found(roots, &found, &threads)?;
        for line in &advice {
            say(&format!("! {line}"))?;
        }
        if advice.is_empty() {
            say("nothing to change")?;
        }
    }
    Ok(if advice.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hierarchy_in_words(roots: &KernelRoots, found: &Discovery) -> String {
    let root = roots.cgroupfs.display();
    match &found.hierarchy {
        Hierarchy::Unified => format!("{root}: version 2, controllers {}", found.controllers.join(" ")),
        Hierarchy::Legacy { controllers, has_unified } => {
            let beside = if *has_unified { ", and a version 2 tree without controllers" } else { "" };
            format!("{root}: version 1, controllers {}{beside}", controllers.join(" "))
        }
        Hierarchy::Absent => format!("{root}: no control groups"),
    }
}

fn say_found(roots: &KernelRoots, found: &Discovery, threads: &[ThreadReading]) -> anyhow::Result<()> {
    say(&hierarchy_in_words(roots, found))?;
    let count = |owner: fn(&Owner) -> bool| threads.iter().filter(|thread| owner(&thread.owner)).count();
    say(&format!(
        "{} threads: {} of one job, {} shared by several, {} of nobody, {} unknown",
        threads.len(),
        count(|owner| matches!(owner, Owner::Job(_))),
        count(|owner| *owner == Owner::Shared),
        count(|owner| *owner == Owner::Nobody),
        count(|owner| *owner == Owner::Unknown),
    ))?;
    if !found.jobs.is_empty() {
        let rows: Vec<Vec<String>> = found.jobs.iter().map(row).collect();
        say("")?;
        say_table(&["job", "manager", "threads", ">memory", ">limit", "submitted", "control group"], &rows)?;
    }
    for skipped in &found.skipped {
        say(&format!("skipped {}: {}", skipped.path, skipped.reason))?;
    }
    say("")
}

fn row(job: &Job) -> Vec<String> {
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), show_bytes);
    let submitted = job.sluid.as_deref().and_then(sluid_submit_millis);
    vec![
        job.id.to_string(),
        job.manager.name().to_owned(),
        job.cpus.as_ref().map_or_else(|| "anywhere".to_owned(), ToString::to_string),
        bytes(job.reading.memory_bytes),
        bytes(job.reading.memory_limit_bytes),
        submitted.map_or_else(|| "-".to_owned(), |millis| show_time(Timestamp(millis as i64))),
        job.path.clone(),
    ]
}

/// What keeps ownership from being known, and what to change.
fn advice(roots: &KernelRoots, found: &Discovery) -> Vec<String> {
    let mut advice = Vec::new();
    let has = |controllers: &[String]| controllers.iter().any(|controller| controller == "cpuset");
    match &found.hierarchy {
        Hierarchy::Absent => advice.push(format!(
            "no control groups below {}: mount them, or say where they are with --path.cgroupfs",
            roots.cgroupfs.display()
        )),
        Hierarchy::Unified if !has(&found.controllers) => advice
            .push("the kernel offers no cpuset controller, so that no job can be confined to threads".into()),
        Hierarchy::Legacy { controllers, .. } if !has(controllers) => {
            advice.push(
                "the cpuset controller is not mounted, so that no job can be confined to threads".into(),
            );
        }
        Hierarchy::Unified | Hierarchy::Legacy { .. } => {}
    }
    let mut managers: Vec<Manager> =
        found.jobs.iter().filter(|job| job.cpus.is_none()).map(|job| job.manager).collect();
    managers.sort();
    managers.dedup();
    for manager in managers {
        let change = match manager {
            Manager::Slurm => {
                "TaskPlugin=task/cgroup,task/affinity in slurm.conf and ConstrainCores=yes in cgroup.conf"
            }
            Manager::HtCondor => "ASSIGN_CPU_AFFINITY=True in the configuration of HTCondor",
            Manager::Kubernetes => "the kubelet's static CPU manager policy, with whole CPUs requested",
            Manager::Pbs => "the cpuset subsystem in the configuration of the cgroups hook",
            Manager::Systemd => "AllowedCPUs= in the unit",
        };
        advice.push(format!(
            "jobs of {} run on any thread, so that owners cannot be known: set {change}",
            manager.name()
        ));
    }
    advice
}

fn as_json(found: &Discovery, threads: &[ThreadReading], advice: &[String]) -> serde_json::Value {
    let hierarchy = match &found.hierarchy {
        Hierarchy::Unified => json!({ "version": 2, "controllers": found.controllers }),
        Hierarchy::Legacy { controllers, has_unified } => {
            json!({ "version": 1, "controllers": controllers, "has_unified": has_unified })
        }
        Hierarchy::Absent => serde_json::Value::Null,
    };
    let jobs: Vec<_> = found
        .jobs
        .iter()
        .map(|job| {
            json!({ "job": job.id, "manager": job.manager.name(), "sluid": job.sluid, "uid": job.uid,
                "cgroup": job.path, "cpus": job.cpus.as_ref().map(ToString::to_string),
                "memory_bytes": job.reading.memory_bytes, "memory_limit_bytes": job.reading.memory_limit_bytes })
        })
        .collect();
    let threads: Vec<_> = threads
        .iter()
        .map(|thread| json!({ "cpu": thread.cpu, "owner": thread.owner.state(), "job": thread.owner.job() }))
        .collect();
    let skipped: Vec<_> =
        found.skipped.iter().map(|one| json!({ "cgroup": one.path, "reason": one.reason })).collect();
    json!({ "hierarchy": hierarchy, "jobs": jobs, "threads": threads, "skipped": skipped, "advice": advice })
}
