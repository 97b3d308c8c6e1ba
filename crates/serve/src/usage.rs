//! The memory of jobs on a node over a time, and for how long their tasks waited for CPU, memory and I/O.

use std::collections::BTreeMap;

use archive::{Archive, Selection};
use workload::{JobId, JobReading, NodeName, Pressure, Timestamp};

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
#[derive(Debug, Clone, PartialEq)]
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

/// Reads what the control groups of jobs used.
pub fn usage(archive: &Archive, query: &UsageQuery) -> archive::Result<NodeUsage> {
    let selection =
        Selection { node: Some(query.node.clone()), from: query.from, to: query.to, ..Selection::default() };
    let snapshot = archive.snapshot(selection)?;
    let mut by_job: BTreeMap<JobId, Vec<(Timestamp, JobReading)>> = BTreeMap::new();
    for (time, reading) in snapshot.job_readings(&query.node)? {
        if query.job.as_ref().is_none_or(|job| *job == reading.job) {
            by_job.entry(reading.job.clone()).or_default().push((time, reading));
        }
    }
    let readings = by_job.values().flatten();
    let memory_bytes = readings.filter_map(|(_, reading)| reading.node_memory_bytes).max();
    let jobs = by_job.into_iter().map(|(job, readings)| (job, of_job(readings, query.max_points)));
    Ok(NodeUsage { memory_bytes, jobs: jobs.collect() })
}

fn of_job(mut readings: Vec<(Timestamp, JobReading)>, max_points: usize) -> UsageOfJob {
    readings.sort_by_key(|(time, _)| *time);
    let mut moments = Vec::with_capacity(readings.len());
    let mut before: Option<&(Timestamp, JobReading)> = None;
    for one in &readings {
        let waited = |pressure: fn(&JobReading) -> Pressure| {
            let (then, earlier) = before?;
            let elapsed = (one.0 - *then).as_seconds();
            let waited = pressure(&one.1).some_usec?.checked_sub(pressure(earlier).some_usec?)?;
            (elapsed > 0.0).then(|| (waited as f64 / 1e6 / elapsed).min(1.0))
        };
        moments.push(UsageMoment {
            time: one.0,
            memory_bytes: one.1.memory_bytes,
            cpu_pressure: waited(|reading| reading.cpu_pressure),
            memory_pressure: waited(|reading| reading.memory_pressure),
            io_pressure: waited(|reading| reading.io_pressure),
        });
        before = Some(one);
    }
    let limit = readings.iter().rev().find_map(|(_, reading)| reading.memory_limit_bytes);
    UsageOfJob { memory_limit_bytes: limit, moments: reduced(&moments, max_points) }
}

/// At most so many moments, each with the largest values of those that it stands for.
fn reduced(moments: &[UsageMoment], max_points: usize) -> Vec<UsageMoment> {
    let n_each = moments.len().div_ceil(max_points.max(1)).max(1);
    let largest = |stretch: &[UsageMoment]| {
        let fraction = |of: fn(&UsageMoment) -> Option<f64>| stretch.iter().filter_map(of).reduce(f64::max);
        Some(UsageMoment {
            time: stretch.last()?.time,
            memory_bytes: stretch.iter().filter_map(|one| one.memory_bytes).max(),
            cpu_pressure: fraction(|one| one.cpu_pressure),
            memory_pressure: fraction(|one| one.memory_pressure),
            io_pressure: fraction(|one| one.io_pressure),
        })
    };
    moments.chunks(n_each).filter_map(largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(second: i64, bytes: u64, waited_usec: Option<u64>) -> (Timestamp, JobReading) {
        let reading = JobReading {
            memory_bytes: Some(bytes),
            io_pressure: Pressure { some_usec: waited_usec, full_usec: None },
            ..JobReading::empty(JobId::new("1").unwrap())
        };
        (Timestamp::from_seconds(second), reading)
    }

    #[test]
    fn pressure_is_the_time_waited_between_two_readings() {
        let readings = vec![
            reading(20, 7, Some(6_000_000)),
            reading(0, 5, Some(1_000_000)),
            reading(10, 9, Some(1_000_000)),
            // The counter began again.
            reading(30, 7, Some(0)),
        ];
        let found = of_job(readings, 100);
        let io: Vec<Option<f64>> = found.moments.iter().map(|one| one.io_pressure).collect();
        assert_eq!(io, [None, Some(0.0), Some(0.5), None]);
        assert!(found.moments.iter().all(|one| one.cpu_pressure.is_none()), "not recorded");
    }

    #[test]
    fn the_largest_values_of_a_stretch_are_kept() {
        let readings: Vec<_> = (0..100).map(|at| reading(at, if at == 55 { 900 } else { 5 }, None)).collect();
        let found = of_job(readings, 10);
        assert_eq!(found.moments.len(), 10);
        assert_eq!(found.moments.iter().filter(|one| one.memory_bytes == Some(900)).count(), 1);
    }
}
