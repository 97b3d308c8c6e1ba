//! What the control group of a job says about a window: its memory and how that grows, and the CPU time that others
//! used on its threads.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::{JobId, JobReading, NodeName, Timestamp, foreign_cpu};

use crate::channel::memory_fraction;
use crate::window::{ThreadWindow, WindowSpec};

const HOUR_SECONDS: f64 = 3_600.0;
/// The fraction of a window that readings have to span, so that CPU times can be compared.
const MIN_SPAN: f64 = 0.5;
/// At most this part of the memory counts as free, so that a full memory does not give infinity.
const MIN_FREE: f64 = 0.01;

/// The readings of each job on a node, in order of time.
pub type JobReadings = BTreeMap<JobId, Vec<(Timestamp, JobReading)>>;

/// The use of memory and CPU time by one job on one node during a window. Values that were not recorded are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobUsage {
    pub node: NodeName,
    pub job: JobId,
    pub memory: Option<MemoryUse>,
    /// The CPU time that others used on the job's threads, in threads: 0.5 is half of one thread's time.
    pub foreign_cpu: Option<f64>,
    pub n_threads: usize,
}

/// The memory of a job in relation to what it may use: its limit, or the memory of the node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryUse {
    /// At the end of the window.
    pub fraction: f64,
    /// The increase of the fraction per hour that lasted for the whole window. A jump within the window does not count.
    pub growth_per_hour: f64,
}

impl MemoryUse {
    /// How often per hour the free memory would be used up at this growth.
    pub fn exhaustions_per_hour(&self) -> f64 {
        self.growth_per_hour / (1.0 - self.fraction).max(MIN_FREE)
    }

    /// From readings within a window.
    fn of(readings: &[(Timestamp, JobReading)], start: Timestamp, end: Timestamp) -> Option<Self> {
        let length = (end - start).as_seconds();
        let mut thirds: [Vec<f64>; 3] = Default::default();
        for (time, reading) in readings {
            let fraction = memory_fraction(reading)?;
            let third = ((*time - start).as_seconds() / length * 3.0) as usize;
            thirds[third.min(2)].push(f64::from(fraction));
        }
        let fraction = *thirds[2].last()?;
        if thirds.iter().any(Vec::is_empty) {
            return None;
        }
        let [first, second, third] = thirds.map(learn::stats::median);
        let growth = (second - first).min(third - second).max(0.0);
        Some(Self { fraction, growth_per_hour: growth / (length / 3.0) * HOUR_SECONDS })
    }
}

/// The usage of each job that has windows on a node, all of which start at `start`.
pub fn usage_of(
    windows: &[ThreadWindow],
    readings: &JobReadings,
    spec: &WindowSpec,
    start: Timestamp,
) -> Vec<JobUsage> {
    let mut by_job: BTreeMap<&JobId, Vec<&ThreadWindow>> = BTreeMap::new();
    for window in windows {
        if let Some(job) = window.job() {
            by_job.entry(job).or_default().push(window);
        }
    }
    let end = start + spec.length();
    let mut usage = Vec::new();
    for (job, windows) in by_job {
        let Some(readings) = readings.get(job) else { continue };
        let first = readings.partition_point(|(time, _)| *time < start);
        let last = readings.partition_point(|(time, _)| *time < end);
        let inside = &readings[first..last];
        let memory = MemoryUse::of(inside, start, end);
        let foreign_cpu = foreign_threads(&windows, inside, spec, start);
        if memory.is_some() || foreign_cpu.is_some() {
            let node = windows[0].node.clone();
            usage.push(JobUsage { node, job: job.clone(), memory, foreign_cpu, n_threads: windows.len() });
        }
    }
    usage
}

/// The busy time of threads that their job did not use, in threads.
fn foreign_threads(
    windows: &[&ThreadWindow],
    readings: &[(Timestamp, JobReading)],
    spec: &WindowSpec,
    start: Timestamp,
) -> Option<f64> {
    let (first, last) = (readings.first()?, readings.last()?);
    let seconds = (last.0 - first.0).as_seconds();
    if seconds < spec.length().as_seconds() * MIN_SPAN {
        return None;
    }
    let of_job = last.1.cpu_seconds_since(&first.1)?;
    // The rates of a step are those of the time up to the reading in it.
    let step_of = |time: Timestamp| ((time - start).0 / spec.period.0) as usize;
    let steps = step_of(first.0) + 1..step_of(last.0) + 1;
    let mut of_threads = [0.0; 2];
    for window in windows {
        for step in window.values.chunks_exact(spec.n_channels()).take(steps.end).skip(steps.start) {
            for (total, rate) in of_threads.iter_mut().zip(step) {
                *total += f64::from(*rate) * spec.period.as_seconds();
            }
        }
    }
    Some(foreign_cpu(of_threads, of_job) / seconds)
}

#[cfg(test)]
mod tests {
    use workload::{Cpu, Millis, Owner};

    use super::*;

    fn spec() -> WindowSpec {
        WindowSpec { period: Millis::SECOND, n_steps: 60, stride: 10, job_channels: Vec::new() }
    }

    fn job() -> JobId {
        JobId::new("1").unwrap()
    }

    /// Two threads that are busy all the time, with a tenth of it in the kernel.
    fn windows() -> Vec<ThreadWindow> {
        let window = |cpu| ThreadWindow {
            node: NodeName::new("n1").unwrap(),
            cpu: Cpu(cpu),
            owner: Owner::Job(job()),
            values: [0.9, 0.1, 0.0, 0.0].repeat(60),
        };
        vec![window(0), window(1)]
    }

    /// Readings every ten seconds of a job with a memory limit of a gibibyte.
    fn readings(memory: impl Fn(i64) -> u64, cpu_usec: impl Fn(i64) -> [u64; 2]) -> JobReadings {
        let reading = |second: i64| {
            let [user, system] = cpu_usec(second);
            let reading = JobReading {
                memory_bytes: Some(memory(second)),
                memory_limit_bytes: Some(1 << 30),
                cpu_user_usec: Some(user),
                cpu_system_usec: Some(system),
                ..JobReading::empty(job())
            };
            (Timestamp::from_seconds(second), reading)
        };
        [(job(), (0..20).map(|at| reading(at * 10)).collect())].into()
    }

    fn usage(memory: impl Fn(i64) -> u64, cpu_usec: impl Fn(i64) -> [u64; 2]) -> JobUsage {
        let found = usage_of(&windows(), &readings(memory, cpu_usec), &spec(), Timestamp::from_seconds(60));
        assert_eq!(found.len(), 1);
        found[0].clone()
    }

    const ALL: fn(i64) -> [u64; 2] = |second| [second as u64 * 1_800_000, second as u64 * 200_000];

    #[test]
    fn steady_growth_counts_and_a_jump_does_not() {
        let leak = usage(|second| second as u64 * (1 << 20), ALL).memory.unwrap();
        // One MiB per second of 1 GiB.
        assert!((leak.growth_per_hour - 3_600.0 / 1_024.0).abs() < 0.01, "{leak:?}");
        assert!((leak.fraction - 110.0 / 1_024.0).abs() < 1e-6);
        assert!(leak.exhaustions_per_hour() > leak.growth_per_hour);
        for jump in [70, 80, 95, 110] {
            let grown = usage(|second| if second < jump { 1 << 20 } else { 1 << 29 }, ALL).memory.unwrap();
            assert_eq!(grown.growth_per_hour, 0.0, "{jump}");
        }
        let shrinking = usage(|second| (1 << 29) - second as u64 * 1_000, ALL).memory.unwrap();
        assert_eq!(shrinking.growth_per_hour, 0.0);
    }

    #[test]
    fn cpu_time_that_a_job_did_not_use_is_somebody_elses() {
        assert!(usage(|_| 1, ALL).foreign_cpu.unwrap() < 1e-6);
        let hogged = usage(|_| 1, |second| [second as u64 * 1_300_000, second as u64 * 200_000]);
        assert!((hogged.foreign_cpu.unwrap() - 0.5).abs() < 1e-6, "{hogged:?}");
        // A kernel thread writes the job's data: system time only.
        let written = usage(|_| 1, |second| [second as u64 * 1_800_000, 0]);
        assert!(written.foreign_cpu.unwrap() < 1e-6, "{written:?}");
    }

    #[test]
    fn without_enough_readings_nothing_is_said() {
        let mut few = readings(|_| 1, ALL);
        few.get_mut(&job()).unwrap().truncate(8);
        assert!(usage_of(&windows(), &few, &spec(), Timestamp::from_seconds(60)).is_empty());
        assert!(usage_of(&windows(), &JobReadings::new(), &spec(), Timestamp::from_seconds(60)).is_empty());
    }
}
