//! Jobs as metrics. They come and go, so they carry no timestamp: Prometheus then forgets them with
//! the first page that lacks them. When their files were read is a metric of its own.

use std::sync::Arc;

use workload::Pressure;

use super::usage::{Io, Usage};
use super::{Job, SkipReason, Step};
use crate::exposition::{Family, Kind, Sink};

/// A family with at most one sample per job.
pub(super) struct PerJob {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) value: fn(&Usage) -> Option<f64>,
}

pub(super) const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&Usage) -> Option<f64>,
) -> PerJob {
    PerJob { name, kind: Kind::Gauge, help, value }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Usage) -> Option<f64>) -> PerJob {
    PerJob { name, kind: Kind::Counter, help, value }
}

pub(super) fn seconds(usec: Option<u64>) -> Option<f64> {
    usec.map(|usec| usec as f64 / 1e6)
}

pub(super) fn count(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

fn io(usage: &Usage, count: fn(&Io) -> u64) -> Option<f64> {
    usage.io.as_ref().map(|io| count(io) as f64)
}

fn some(pressure: &Pressure) -> Option<f64> {
    seconds(pressure.some_usec)
}

fn full(pressure: &Pressure) -> Option<f64> {
    seconds(pressure.full_usec)
}

/// What follows `tracewise_job_` and `tracewise_step_`.
const FAMILIES: [PerJob; 23] = [
    counter("cpu_user_seconds_total", "CPU time in user mode.", |used| seconds(used.cpu_user_usec)),
    counter("cpu_system_seconds_total", "CPU time in the kernel.", |used| seconds(used.cpu_system_usec)),
    counter("cpu_throttled_seconds_total", "Time in which a quota kept it from running.", |used| {
        seconds(used.throttled_usec)
    }),
    counter("cpu_periods_total", "Periods of its quota in which it wanted to run.", |used| {
        count(used.periods)
    }),
    counter("cpu_throttled_periods_total", "Periods in which its quota was used up.", |used| {
        count(used.throttled_periods)
    }),
    gauge("memory_bytes", "All memory charged to it, the page cache of its files included.", |used| {
        count(used.memory_bytes)
    }),
    gauge("memory_peak_bytes", "The most memory that was ever charged to it.", |used| {
        count(used.memory_peak_bytes)
    }),
    gauge("memory_limit_bytes", "Its own limit of memory; absent when it has none.", |used| {
        count(used.memory_limit_bytes)
    }),
    gauge("memory_anon_bytes", "Memory of its processes, without files.", |used| count(used.anon_bytes)),
    gauge("memory_file_bytes", "Page cache of its files.", |used| count(used.file_bytes)),
    gauge("memory_swap_bytes", "Memory of its processes that is swapped out.", |used| count(used.swap_bytes)),
    counter("oom_kills_total", "Processes killed because memory ran out.", |used| count(used.oom_kills)),
    counter("io_read_bytes_total", "Bytes read from block devices.", |used| io(used, |io| io.read_bytes)),
    counter("io_written_bytes_total", "Bytes written to block devices.", |used| {
        io(used, |io| io.write_bytes)
    }),
    counter("io_reads_total", "Reads from block devices.", |used| io(used, |io| io.reads)),
    counter("io_writes_total", "Writes to block devices.", |used| io(used, |io| io.writes)),
    gauge("tasks", "Processes and their threads.", |used| count(used.tasks)),
    counter(
        "pressure_cpu_waiting_seconds_total",
        "Time in which some of its tasks waited for a CPU.",
        |used| some(&used.cpu_pressure),
    ),
    counter(
        "pressure_cpu_stalled_seconds_total",
        "Time in which all of its tasks waited for a CPU.",
        |used| full(&used.cpu_pressure),
    ),
    counter(
        "pressure_memory_waiting_seconds_total",
        "Time in which some of its tasks waited for memory.",
        |used| some(&used.memory_pressure),
    ),
    counter(
        "pressure_memory_stalled_seconds_total",
        "Time in which all of its tasks waited for memory.",
        |used| full(&used.memory_pressure),
    ),
    counter("pressure_io_waiting_seconds_total", "Time in which some of its tasks waited for I/O.", |used| {
        some(&used.io_pressure)
    }),
    counter("pressure_io_stalled_seconds_total", "Time in which all of its tasks waited for I/O.", |used| {
        full(&used.io_pressure)
    }),
];

pub fn expose(jobs: &[Arc<Job>], n_skipped: &[usize; SkipReason::ALL.len()], sink: &mut impl Sink) {
    sink.family(Family { name: "tracewise_jobs", kind: Kind::Gauge, help: "Jobs that run on this node." });
    sink.sample(&[], jobs.len() as f64, None);
    sink.family(Family {
        name: "tracewise_jobs_unconfined",
        kind: Kind::Gauge,
        help: "Jobs without a cpuset, which may run on any thread, whoever owns it.",
    });
    sink.sample(&[], jobs.iter().filter(|job| job.cpus.is_none()).count() as f64, None);
    sink.family(Family {
        name: "tracewise_jobs_skipped",
        kind: Kind::Gauge,
        help: "Control groups that look like jobs or may hold some, and do not count; `doctor` names them.",
    });
    for (reason, n_skipped) in SkipReason::ALL.into_iter().zip(n_skipped) {
        sink.sample(&[("reason", reason.name())], *n_skipped as f64, None);
    }
    expose_info(jobs, sink);
    for family in &FAMILIES {
        let name = format!("tracewise_job_{}", family.name);
        sink.family(Family { name: &name, kind: family.kind, help: family.help });
        for (job, used) in jobs.iter().filter_map(|job| Some((job, job.used.as_ref()?))) {
            if let Some(value) = (family.value)(&used.total) {
                sink.sample(&[("jobid", job.id.as_str())], value, None);
            }
        }
    }
    expose_steps(jobs, sink);
}

fn expose_info(jobs: &[Arc<Job>], sink: &mut impl Sink) {
    sink.family(Family {
        name: "tracewise_job_info",
        kind: Kind::Info,
        help: "Name and control group of a job.",
    });
    for job in jobs {
        let uid = job.uid.map_or_else(String::new, |uid| uid.to_string());
        let labels = [
            ("jobid", job.id.as_str()),
            ("manager", job.manager.name()),
            ("sluid", job.sluid.as_deref().unwrap_or_default()),
            ("uid", &uid),
            ("cgroup", &job.path),
        ];
        sink.sample(&labels, 1.0, None);
    }
    sink.family(Family {
        name: "tracewise_job_cpus",
        kind: Kind::Gauge,
        help: "Hardware threads that a job is confined to; absent when it may run anywhere.",
    });
    for (job, cpus) in jobs.iter().filter_map(|job| Some((job, job.cpus.as_ref()?))) {
        sink.sample(&[("jobid", job.id.as_str())], cpus.len() as f64, None);
    }
    sink.family(Family {
        name: "tracewise_job_read_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the files of a job were read last.",
    });
    for (job, used) in jobs.iter().filter_map(|job| Some((job, job.used.as_ref()?))) {
        sink.sample(&[("jobid", job.id.as_str())], used.time.0 as f64 / 1e3, None);
    }
}

fn expose_steps(jobs: &[Arc<Job>], sink: &mut impl Sink) {
    let steps: Vec<(&Job, &Step)> = jobs
        .iter()
        .filter_map(|job| Some((&**job, job.used.as_ref()?)))
        .flat_map(|(job, used)| used.steps.iter().map(move |step| (job, step)))
        .collect();
    if steps.is_empty() {
        return;
    }
    for family in &FAMILIES {
        let name = format!("tracewise_step_{}", family.name);
        sink.family(Family { name: &name, kind: family.kind, help: family.help });
        for (job, step) in &steps {
            if let Some(value) = (family.value)(&step.usage) {
                sink.sample(&step_labels(job, step), value, None);
            }
        }
    }
}

pub(super) fn step_labels<'a>(job: &'a Job, step: &'a Step) -> [(&'static str, &'a str); 3] {
    let task = step.task.as_deref().unwrap_or_default();
    [("jobid", job.id.as_str()), ("step", &step.step), ("task", task)]
}
