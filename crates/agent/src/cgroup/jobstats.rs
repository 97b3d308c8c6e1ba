//! The metrics that jobstats and its Grafana dashboard use: `cgroup_*{jobid,step,task}`, with
//! empty step and task for a whole job. Only Slurm's jobs have them.

use std::sync::Arc;

use super::Job;
use super::expose::{PerJob, count, gauge, seconds, step_labels};
use super::layout::Manager;
use crate::exposition::{Family, Kind, Sink};

/// The value without a limit, as jobstats expects it.
const NO_LIMIT: f64 = u64::MAX as f64;

const FAMILIES: [PerJob; 10] = [
    gauge("cgroup_cpu_user_seconds", "CPU time in user mode.", |used| seconds(used.cpu_user_usec)),
    gauge("cgroup_cpu_system_seconds", "CPU time in the kernel.", |used| seconds(used.cpu_system_usec)),
    gauge("cgroup_cpu_total_seconds", "CPU time.", |used| {
        seconds(used.cpu_user_usec.zip(used.cpu_system_usec).map(|(user, system)| user + system))
    }),
    gauge("cgroup_memory_rss_bytes", "Memory of processes, without files.", |used| count(used.anon_bytes)),
    gauge("cgroup_memory_cache_bytes", "Page cache of files.", |used| count(used.file_bytes)),
    gauge("cgroup_memory_used_bytes", "All memory charged.", |used| count(used.memory_bytes)),
    gauge("cgroup_memory_total_bytes", "Limit of memory.", |used| {
        used.memory_bytes.map(|_| count(used.memory_limit_bytes).unwrap_or(NO_LIMIT))
    }),
    gauge("cgroup_memory_fail_count", "Processes killed because memory ran out.", |used| {
        count(used.oom_kills)
    }),
    gauge("cgroup_memsw_used_bytes", "Memory that is swapped out.", |used| count(used.swap_bytes)),
    gauge("cgroup_memsw_total_bytes", "Limit of swap.", |used| used.swap_bytes.map(|_| NO_LIMIT)),
];

pub fn expose(jobs: &[Arc<Job>], sink: &mut impl Sink) {
    let jobs: Vec<&Job> = jobs.iter().map(|job| &**job).filter(|job| job.manager == Manager::Slurm).collect();
    sink.family(Family { name: "cgroup_cpus", kind: Kind::Gauge, help: "Hardware threads of the job." });
    for (job, cpus) in jobs.iter().filter_map(|job| Some((job, job.cpus.as_ref()?))) {
        sink.sample(&whole(job), cpus.len() as f64, None);
    }
    sink.family(Family { name: "cgroup_uid", kind: Kind::Gauge, help: "The user of the job." });
    for (job, uid) in jobs.iter().filter_map(|job| Some((job, job.uid?))) {
        sink.sample(&[("jobid", job.id.as_str())], f64::from(uid), None);
    }
    for PerJob { name, kind, help, value } in FAMILIES {
        sink.family(Family { name, kind, help });
        for (job, used) in jobs.iter().filter_map(|job| Some((job, job.used.as_ref()?))) {
            if let Some(value) = value(&used.total) {
                sink.sample(&whole(job), value, None);
            }
            for (step, value) in used.steps.iter().filter_map(|step| Some((step, value(&step.usage)?))) {
                sink.sample(&step_labels(job, step), value, None);
            }
        }
    }
}

fn whole(job: &Job) -> [(&'static str, &str); 3] {
    [("jobid", job.id.as_str()), ("step", ""), ("task", "")]
}
