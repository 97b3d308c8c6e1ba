//! One node, read by all its collectors at once. A source that is broken is reported, and breaks
//! nothing else.

use std::collections::HashSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use workload::{JobReading, Millis, NodeName, NodeReading, Pressure, Source, ThreadReading, Timestamp};

use crate::cgroup::{self, CgroupCollector, Job, SkipReason};
use crate::cpu::{self, CpuCollector};
use crate::exposition::{Family, Kind, Sink};
use crate::load::{self, LoadCollector};
use crate::memory::{self, Memory, MemoryCollector};
use crate::own::{self, Own, OwnCollector};
use crate::owner::Ownership;
use crate::pressure::{self, PressureCollector};

/// The share of an interval that is spent on jobs' own files at most; the rest of them wait.
const JOB_FILES_SHARE: u32 = 20;
/// The share of an interval that is spent on waiting for the file of a job's user.
const JOB_AD_SHARE: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collector {
    Cpu,
    Cgroup,
    Pressure,
    Memory,
    Load,
    Own,
}

impl Collector {
    pub const ALL: [Self; 6] = [Self::Cpu, Self::Cgroup, Self::Pressure, Self::Memory, Self::Load, Self::Own];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cgroup => "cgroup",
            Self::Pressure => "pressure",
            Self::Memory => "memory",
            Self::Load => "load",
            Self::Own => "self",
        }
    }

    /// What it reads, for people.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Cpu => "time of each hardware thread, from /proc/stat",
            Self::Cgroup => "jobs, their threads and what they use, from control groups",
            Self::Pressure => "waiting for CPUs, memory and I/O, from /proc/pressure",
            Self::Memory => "memory of the node, from /proc/meminfo",
            Self::Load => "load averages, from /proc/loadavg",
            Self::Own => "what the agent itself takes, from /proc/self",
        }
    }
}

#[derive(Debug, Clone)]
pub struct NodeSettings {
    pub name: NodeName,
    pub procfs: PathBuf,
    pub cgroupfs: PathBuf,
    pub collectors: Vec<Collector>,
    /// How often the node is read.
    pub interval: Duration,
    /// How often each job's own files are read.
    pub job_interval: Duration,
    /// Read steps and tasks of Slurm's jobs too.
    pub has_steps: bool,
    /// How many jobs are exposed.
    pub most_jobs: usize,
}

impl NodeSettings {
    /// What an archive keeps: threads with their owners, and what jobs use, all at the same interval.
    pub fn for_recording(name: NodeName, procfs: PathBuf, cgroupfs: PathBuf, interval: Duration) -> Self {
        Self {
            name,
            procfs,
            cgroupfs,
            collectors: vec![Collector::Cpu, Collector::Cgroup],
            interval,
            job_interval: interval,
            has_steps: false,
            most_jobs: cgroup::MOST_JOBS,
        }
    }
}

/// How a collector fared.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub collector: Collector,
    pub duration: Duration,
    pub error: Option<String>,
}

/// What was read of a node at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    pub time: Timestamp,
    pub threads: Vec<ThreadReading>,
    pub jobs: Vec<Arc<Job>>,
    /// In the order of [`SkipReason::ALL`].
    pub n_skipped: [usize; SkipReason::ALL.len()],
    /// What jobs had used, of those whose files were read now.
    pub job_readings: Vec<JobReading>,
    pub pressure: Option<[Pressure; 3]>,
    pub memory: Option<Vec<Memory>>,
    pub load: Option<[f64; 3]>,
    pub own: Option<Own>,
    pub outcomes: Vec<Outcome>,
}

/// The collectors of one node, and what they remember.
#[derive(Debug)]
pub struct Node {
    settings: NodeSettings,
    cpu: CpuCollector,
    cgroup: CgroupCollector,
    pressure: PressureCollector,
    memory: MemoryCollector,
    load: LoadCollector,
    own: OwnCollector,
    /// Read once: a node's memory does not change.
    memory_bytes: Option<u64>,
    ownership: Ownership,
    /// Which generation of jobs the ownership is of.
    generation: Option<u64>,
}

impl Node {
    pub fn new(settings: NodeSettings) -> Self {
        Self {
            cpu: CpuCollector::new(&settings.procfs),
            cgroup: CgroupCollector::new(&settings.cgroupfs, &settings.procfs)
                .with_steps(settings.has_steps)
                .with_most_jobs(settings.most_jobs)
                .with_patience(settings.interval / JOB_AD_SHARE),
            pressure: PressureCollector::new(&settings.procfs),
            memory: MemoryCollector::new(&settings.procfs),
            load: LoadCollector::new(&settings.procfs),
            own: OwnCollector::new(),
            memory_bytes: MemoryCollector::new(&settings.procfs).total_bytes(),
            ownership: Ownership::default(),
            generation: None,
            settings,
        }
    }

    pub fn settings(&self) -> &NodeSettings {
        &self.settings
    }

    /// The memory of the node.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory_bytes
    }

    /// What the ticks of this node's threads mean.
    pub fn source(&self) -> Source {
        self.cpu.source(Millis::from(self.settings.interval))
    }

    /// Runs all collectors. Threads come first, so that their counters belong to `now`.
    pub fn sample(&mut self, now: Timestamp) -> Sample {
        let mut attempts = Attempts { enabled: self.settings.collectors.clone(), outcomes: Vec::new() };
        let mut threads = attempts.attempt(Collector::Cpu, || self.cpu.read()).unwrap_or_default();
        let job_readings = attempts.attempt(Collector::Cgroup, || {
            let looked = self.cgroup.look(now);
            self.flag(&mut threads, looked.is_err() || self.cgroup.is_full());
            let readings = self.read_jobs(now);
            looked.map(|()| readings)
        });
        let jobs = self.jobs();
        Sample {
            time: now,
            threads,
            job_readings: job_readings.unwrap_or_default(),
            n_skipped: self.n_skipped(jobs.len()),
            jobs,
            pressure: attempts.attempt(Collector::Pressure, || self.pressure.read()),
            memory: attempts.attempt(Collector::Memory, || self.memory.read()),
            load: attempts.attempt(Collector::Load, || self.load.read()),
            own: attempts.attempt(Collector::Own, || self.own.read()),
            outcomes: attempts.outcomes,
        }
    }

    fn flag(&mut self, threads: &mut [ThreadReading], is_incomplete: bool) {
        if self.generation != Some(self.cgroup.generation()) {
            self.ownership = Ownership::of(self.cgroup.jobs().map(|job| &**job));
            self.generation = Some(self.cgroup.generation());
        }
        self.ownership.is_incomplete = is_incomplete;
        self.ownership.flag(threads);
    }

    fn read_jobs(&mut self, now: Timestamp) -> Vec<JobReading> {
        let budget = self.settings.interval / JOB_FILES_SHARE;
        let read = self.cgroup.read_usage(now, Millis::from(self.settings.job_interval), budget);
        let memory_bytes = self.memory_bytes;
        let reading = |job: &Arc<Job>| Some(job.used.as_ref()?.total.reading(job.id.clone(), memory_bytes));
        read.iter().filter_map(reading).collect()
    }

    /// Each job once: two series with the same labels would spoil the whole page.
    fn jobs(&self) -> Vec<Arc<Job>> {
        let mut seen = HashSet::new();
        self.cgroup.jobs().filter(|job| seen.insert(job.id.clone())).cloned().collect()
    }

    fn n_skipped(&self, n_jobs: usize) -> [usize; SkipReason::ALL.len()] {
        let mut n_skipped = [0; SkipReason::ALL.len()];
        for skipped in self.cgroup.skipped() {
            n_skipped[skipped.reason as usize] += 1;
        }
        n_skipped[SkipReason::Repeated as usize] = self.cgroup.jobs().count() - n_jobs;
        n_skipped
    }
}

/// Runs collectors and keeps how each fared.
struct Attempts {
    enabled: Vec<Collector>,
    outcomes: Vec<Outcome>,
}

impl Attempts {
    /// `None` if the collector is switched off, or failed.
    fn attempt<T, E: Display>(
        &mut self,
        collector: Collector,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Option<T> {
        if !self.enabled.contains(&collector) {
            return None;
        }
        let begun = Instant::now();
        let result = read();
        let error = result.as_ref().err().map(ToString::to_string);
        self.outcomes.push(Outcome { collector, duration: begun.elapsed(), error });
        result.ok()
    }
}

impl Sample {
    /// Why a collector could not read its source, if it could not.
    pub fn error_of(&self, collector: Collector) -> Option<&str> {
        let outcome = self.outcomes.iter().find(|outcome| outcome.collector == collector)?;
        outcome.error.as_deref()
    }

    /// What is kept of it.
    pub fn reading(&self, node: &NodeName) -> NodeReading {
        NodeReading {
            node: node.clone(),
            time: self.time,
            threads: self.threads.clone(),
            jobs: self.job_readings.clone(),
        }
    }

    /// Everything but the counters of threads and their owners.
    pub fn expose_rest(&self, sink: &mut impl Sink) {
        if self.outcomes.iter().any(|outcome| outcome.collector == Collector::Cgroup) {
            cgroup::expose::expose(&self.jobs, &self.n_skipped, sink);
        }
        if let Some(pressure) = &self.pressure {
            pressure::expose(pressure, self.time, sink);
        }
        if let Some(memory) = &self.memory {
            memory::expose(memory, self.time, sink);
        }
        if let Some(load) = &self.load {
            load::expose(load, self.time, sink);
        }
        if let Some(own) = &self.own {
            own::expose(own, sink);
        }
        sink.family(Family {
            name: "tracewise_scrape_collector_success",
            kind: Kind::Gauge,
            help: "Whether a collector could read its source.",
        });
        for outcome in &self.outcomes {
            let success = f64::from(u8::from(outcome.error.is_none()));
            sink.sample(&[("collector", outcome.collector.name())], success, None);
        }
        sink.family(Family {
            name: "tracewise_scrape_collector_duration_seconds",
            kind: Kind::Gauge,
            help: "How long a collector took.",
        });
        for outcome in &self.outcomes {
            let seconds = outcome.duration.as_secs_f64();
            sink.sample(&[("collector", outcome.collector.name())], seconds, None);
        }
        sink.family(Family {
            name: "tracewise_sample_timestamp_seconds",
            kind: Kind::Gauge,
            help: "When the node was read last.",
        });
        sink.sample(&[], self.time.0 as f64 / 1e3, None);
    }

    pub fn expose(&self, sink: &mut impl Sink) {
        cpu::expose(&self.threads, self.time, sink);
        self.expose_rest(sink);
    }
}
