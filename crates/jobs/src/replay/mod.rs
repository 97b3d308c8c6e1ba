//! A batch system in small: jobs come, wait for nodes and run, and a policy says who is next.

mod policy;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;
use workload::JobRecord;

pub use policy::{POLICIES, Policy, policy_named};

/// Runs shorter than this count as this long, so that a short job that waits a little has not been slowed down a
/// thousandfold.
const SHORTEST: f64 = 10.0;

/// A job that waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    pub job: usize,
    pub n_nodes: u64,
    /// How long it says that it will run.
    pub requested: f64,
}

/// A job that runs, and when it has to be over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    pub until: f64,
    pub n_nodes: u64,
}

/// What a policy looks at.
#[derive(Debug)]
pub struct State<'a> {
    pub now: f64,
    pub n_free: u64,
    /// In the order in which they came.
    pub queue: &'a [Waiting],
    pub running: &'a [Running],
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    pub mean_wait_seconds: f64,
    pub mean_bounded_slowdown: f64,
    /// Of the nodes over the whole time.
    pub utilisation: f64,
    pub makespan_seconds: f64,
}

pub fn n_nodes_of(job: &JobRecord, n_nodes: u64) -> u64 {
    u64::from(job.n_nodes.or(job.n_cores).unwrap_or(1)).clamp(1, n_nodes)
}

/// How much of a machine is in use, if nobody says how large it is.
pub const UTILISATION: f64 = 0.9;

/// Nodes with which the machine is in use for `utilisation` of the time, if jobs wait for nothing.
pub fn machine_for(jobs: &[JobRecord], utilisation: f64) -> u64 {
    let largest = jobs.iter().map(|job| n_nodes_of(job, u64::MAX)).max().unwrap_or(1);
    let work: f64 = jobs.iter().map(|job| n_nodes_of(job, u64::MAX) as f64 * job.run_seconds).sum();
    let span = jobs.last().map_or(0.0, |job| job.submit_seconds);
    largest.max((work / (span * utilisation).max(1.0)).ceil() as u64)
}

/// A moment at which something ends.
#[derive(Debug, Clone, Copy, PartialEq)]
struct End {
    time: f64,
    number: usize,
    n_nodes: u64,
    promised: f64,
}

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.time.total_cmp(&other.time).then(self.number.cmp(&other.number))
    }
}

/// Runs jobs, which are in the order in which they come, on a machine.
pub fn replay(jobs: &[JobRecord], n_nodes: u64, policy: &dyn Policy) -> Outcome {
    let mut queue: Vec<Waiting> = Vec::new();
    let mut ends: BinaryHeap<Reverse<End>> = BinaryHeap::new();
    let mut starts = vec![0.0; jobs.len()];
    let mut n_free = n_nodes;
    let mut next = 0;
    let mut last_end: f64 = 0.0;
    while next < jobs.len() || !ends.is_empty() {
        let arrival = jobs.get(next).map_or(f64::MAX, |job| job.submit_seconds);
        let end = ends.peek().map_or(f64::MAX, |end| end.0.time);
        let now = arrival.min(end);
        while let Some(Reverse(end)) = ends.peek().copied().filter(|end| end.0.time <= now) {
            ends.pop();
            n_free += end.n_nodes;
        }
        while let Some(job) = jobs.get(next).filter(|job| job.submit_seconds <= now) {
            let requested = job.requested_seconds.unwrap_or(job.run_seconds).max(1.0);
            queue.push(Waiting { job: next, n_nodes: n_nodes_of(job, n_nodes), requested });
            next += 1;
        }
        if queue.is_empty() || n_free == 0 {
            continue;
        }
        let running: Vec<Running> = if policy.looks_ahead() {
            ends.iter()
                .map(|end| Running { until: end.0.promised.max(now), n_nodes: end.0.n_nodes })
                .collect()
        } else {
            Vec::new()
        };
        let chosen = policy.next(&State { now, n_free, queue: &queue, running: &running });
        let mut is_started = vec![false; queue.len()];
        for index in chosen {
            let waiting = queue[index];
            if waiting.n_nodes > n_free || is_started[index] {
                continue;
            }
            is_started[index] = true;
            n_free -= waiting.n_nodes;
            starts[waiting.job] = now;
            let time = now + jobs[waiting.job].run_seconds;
            last_end = last_end.max(time);
            let promised = now + waiting.requested;
            ends.push(Reverse(End { time, number: waiting.job, n_nodes: waiting.n_nodes, promised }));
        }
        let mut kept = is_started.iter();
        queue.retain(|_| !kept.next().copied().unwrap_or(false));
    }
    outcome(jobs, &starts, n_nodes, last_end)
}

fn outcome(jobs: &[JobRecord], starts: &[f64], n_nodes: u64, last_end: f64) -> Outcome {
    let n_jobs = jobs.len().max(1) as f64;
    let waits = || jobs.iter().zip(starts).map(|(job, start)| (start - job.submit_seconds, job.run_seconds));
    let slowdown = |(wait, run): (f64, f64)| ((wait + run) / run.max(SHORTEST)).max(1.0);
    let work: f64 = jobs.iter().map(|job| n_nodes_of(job, n_nodes) as f64 * job.run_seconds).sum();
    Outcome {
        mean_wait_seconds: waits().map(|(wait, _)| wait).sum::<f64>() / n_jobs,
        mean_bounded_slowdown: waits().map(slowdown).sum::<f64>() / n_jobs,
        utilisation: work / (n_nodes as f64 * last_end).max(1e-9),
        makespan_seconds: last_end,
    }
}

#[cfg(test)]
mod tests {
    use workload::JobStatus;

    use super::*;

    fn job(submit: f64, run: f64, n_nodes: u32) -> JobRecord {
        JobRecord {
            submit_seconds: submit,
            wait_seconds: None,
            run_seconds: run,
            requested_seconds: Some(run),
            n_nodes: Some(n_nodes),
            n_cores: None,
            n_gpus: None,
            user: None,
            status: JobStatus::Completed,
        }
    }

    /// One long job on half of the machine, one that needs all of it, a short one that fits beside the first.
    fn jobs() -> Vec<JobRecord> {
        vec![job(0.0, 100.0, 5), job(1.0, 50.0, 10), job(2.0, 20.0, 5)]
    }

    fn waits(policy: &str) -> f64 {
        replay(&jobs(), 10, policy_named(policy).unwrap()).mean_wait_seconds * 3.0
    }

    #[test]
    fn first_come_first_served_lets_nobody_past() {
        assert_eq!(waits("fcfs"), 99.0 + 148.0);
    }

    #[test]
    fn backfilling_fills_holes_and_delays_nobody() {
        assert_eq!(waits("easy"), 99.0);
        // A long job beside it would delay the one that waits for all nodes.
        let mut jobs = jobs();
        jobs[2] = job(2.0, 200.0, 5);
        let outcome = replay(&jobs, 10, policy_named("easy").unwrap());
        assert_eq!(outcome.mean_wait_seconds * 3.0, 99.0 + 148.0);
    }

    #[test]
    fn the_shortest_job_goes_first() {
        assert_eq!(waits("sjf"), 99.0);
        let outcome = replay(
            &[job(0.0, 10.0, 10), job(1.0, 50.0, 10), job(2.0, 20.0, 10)],
            10,
            policy_named("sjf").unwrap(),
        );
        assert_eq!(outcome.mean_wait_seconds * 3.0, 8.0 + 29.0);
        assert!((outcome.utilisation - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_machine_is_large_enough_for_the_largest_job() {
        assert_eq!(machine_for(&jobs(), 0.9), 612, "1,100 node seconds in two seconds");
        assert_eq!(machine_for(&[job(0.0, 1.0, 7), job(1e6, 1.0, 1)], 0.9), 7);
    }
}
