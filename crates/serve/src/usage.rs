//! The memory of jobs on a node over a time, and for how long their tasks waited for CPU, memory and I/O.

use std::collections::BTreeMap;

use archive::{Archive, Selection};
use workload::{JobId, JobReading, Millis, NodeName, Pressure, Timestamp};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    pub node: NodeName,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Only this job.
    pub job: Option<JobId>,
    /// The most moments of each job. Of several that share one, the largest values are shown.
    pub max_points: usize,
}

/// One moment of a job. What was not recorded is `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsageMoment {
    pub time: Timestamp,
    pub memory_bytes: Option<u64>,
    /// The fraction of the time since the reading before in which at least one task waited.
    pub cpu_pressure: Option<f64>,
    pub memory_pressure: Option<f64>,
    pub io_pressure: Option<f64>,
}

/// A job on the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageOfJob {
    /// What the job may use; absent without a limit.
    pub memory_limit_bytes: Option<u64>,
    pub moments: Vec<UsageMoment>,
}

/// The use of a node by its jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeUsage {
    /// The memory of the node, if it was recorded.
    pub memory_bytes: Option<u64>,
    pub jobs: BTreeMap<JobId, UsageOfJob>,
}

/// Reads what the control groups of jobs used, hour by hour.
pub fn usage(archive: &Archive, query: &UsageQuery) -> archive::Result<NodeUsage> {
    let selection =
        Selection { node: Some(query.node.clone()), job: query.job.clone(), from: query.from, to: query.to };
    let snapshot = archive.snapshot(selection)?;
    let mut reduction = Reduction::new(query);
    for hour in snapshot.hours_with_readings() {
        for (time, reading) in snapshot.job_readings_between(&query.node, hour, hour + Millis::HOUR)? {
            reduction.add(time, &reading);
        }
    }
    Ok(reduction.found)
}

/// Reduces readings, which come in order, to a few moments of each job.
struct Reduction {
    from: Timestamp,
    /// The time that shares a moment.
    step: Millis,
    found: NodeUsage,
    before: BTreeMap<JobId, Waited>,
}

/// When a job was read last, and for how long its tasks had waited by then.
struct Waited {
    time: Timestamp,
    usec: [Option<u64>; 3],
}

impl Reduction {
    fn new(query: &UsageQuery) -> Self {
        let UsageQuery { from, to, max_points, .. } = *query;
        let step = ((to - from).0.max(1) as u64).div_ceil(max_points.max(1) as u64);
        Self { from, step: Millis(step as i64), found: NodeUsage::default(), before: BTreeMap::new() }
    }

    fn add(&mut self, time: Timestamp, reading: &JobReading) {
        let some_usec = |pressure: &Pressure| pressure.some_usec;
        let usec = [&reading.cpu_pressure, &reading.memory_pressure, &reading.io_pressure].map(some_usec);
        let before = self.before.insert(reading.job.clone(), Waited { time, usec });
        let waited = |of: usize| {
            let before = before.as_ref()?;
            let elapsed = (time - before.time).as_seconds();
            let waited = usec[of]?.checked_sub(before.usec[of]?)?;
            (elapsed > 0.0).then(|| (waited as f64 / 1e6 / elapsed).min(1.0))
        };
        let new = UsageMoment {
            time,
            memory_bytes: reading.memory_bytes,
            cpu_pressure: waited(0),
            memory_pressure: waited(1),
            io_pressure: waited(2),
        };
        self.found.memory_bytes = self.found.memory_bytes.max(reading.node_memory_bytes);
        let of_job = self.found.jobs.entry(reading.job.clone()).or_default();
        of_job.memory_limit_bytes = reading.memory_limit_bytes.or(of_job.memory_limit_bytes);
        let (from, step) = (self.from, self.step);
        let share = |time: Timestamp| (time - from).0 / step.0;
        match of_job.moments.last_mut().filter(|last| share(last.time) == share(time)) {
            Some(last) => last.merge(&new),
            None => of_job.moments.push(new),
        }
    }
}

impl UsageMoment {
    /// Takes the largest values of both.
    fn merge(&mut self, later: &Self) {
        let larger = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        *self = Self {
            time: later.time,
            memory_bytes: self.memory_bytes.max(later.memory_bytes),
            cpu_pressure: larger(self.cpu_pressure, later.cpu_pressure),
            memory_pressure: larger(self.memory_pressure, later.memory_pressure),
            io_pressure: larger(self.io_pressure, later.io_pressure),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(bytes: u64, waited_usec: Option<u64>) -> JobReading {
        JobReading {
            memory_bytes: Some(bytes),
            io_pressure: Pressure { some_usec: waited_usec, full_usec: None },
            ..JobReading::empty(JobId::new("1").unwrap())
        }
    }

    fn reduced(seconds: i64, max_points: usize, readings: &[(i64, JobReading)]) -> Vec<UsageMoment> {
        let query = UsageQuery {
            node: NodeName::new("n1").unwrap(),
            from: Timestamp(0),
            to: Timestamp::from_seconds(seconds),
            job: None,
            max_points,
        };
        let mut reduction = Reduction::new(&query);
        for (second, reading) in readings {
            reduction.add(Timestamp::from_seconds(*second), reading);
        }
        reduction.found.jobs.into_values().next().unwrap().moments
    }

    #[test]
    fn pressure_is_the_time_waited_between_two_readings() {
        let readings = [
            (0, reading(5, Some(1_000_000))),
            (10, reading(9, Some(1_000_000))),
            (20, reading(7, Some(6_000_000))),
            // The counter began again.
            (30, reading(7, Some(0))),
        ];
        let found = reduced(40, 100, &readings);
        let io: Vec<Option<f64>> = found.iter().map(|one| one.io_pressure).collect();
        assert_eq!(io, [None, Some(0.0), Some(0.5), None]);
        assert!(found.iter().all(|one| one.cpu_pressure.is_none()), "not recorded");
    }

    #[test]
    fn the_largest_values_of_a_stretch_are_kept() {
        let readings: Vec<_> =
            (0..100).map(|at| (at, reading(if at == 55 { 900 } else { 5 }, None))).collect();
        let found = reduced(100, 10, &readings);
        assert_eq!(found.len(), 10);
        assert_eq!(found.iter().filter(|one| one.memory_bytes == Some(900)).count(), 1);
    }
}
