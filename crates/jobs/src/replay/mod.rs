//! A small batch system: jobs arrive, wait for nodes and run; a policy chooses who starts next.

mod policy;
mod shares;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;

use serde::Serialize;
use workload::{Stop, Stopped};

use crate::error::TraceError;
use crate::features::FeatureTable;
use crate::generators::LoadFactor;
use crate::schema::Role;

pub use policy::{POLICIES, Policy, policy_named};
pub use shares::Shares;

/// Run times below this count as this long in the bounded slowdown, so that a short job that waits a little does not
/// dominate the mean.
const MIN_RUN_SECONDS: f64 = 10.0;
/// The utilisation that a machine of unknown size is assumed to have.
pub const UTILISATION: f64 = 0.9;

/// What a scheduler knows about a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayJob {
    /// Seconds since the first submission.
    pub submit_seconds: f64,
    pub run_seconds: f64,
    pub requested_seconds: Option<f64>,
    /// Nodes, or cores where a trace has no nodes.
    pub n_nodes: u64,
    /// The number of the user; the same for all jobs of a trace without users.
    pub user: u32,
}

/// Jobs in the order of submission.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayTrace {
    jobs: Vec<ReplayJob>,
}

impl ReplayTrace {
    /// Sorts jobs by submission.
    pub fn new(mut jobs: Vec<ReplayJob>) -> Self {
        jobs.sort_by(|a, b| a.submit_seconds.total_cmp(&b.submit_seconds));
        Self { jobs }
    }

    /// The jobs with a known run time.
    pub fn from_features(features: &FeatureTable) -> Result<Self, TraceError> {
        let run_times = features.with_role(Role::RunTime).ok_or(TraceError::NoRunTime)?;
        let [requested, nodes, cores, users] =
            [Role::RequestedTime, Role::Nodes, Role::Cores, Role::User].map(|role| features.with_role(role));
        let count = |values: Option<&[f64]>, job: usize| {
            let count = values.map(|values| values[job]).filter(|value| *value >= 1.0)?;
            Some(count.min(f64::from(u32::MAX)) as u64)
        };
        let arrivals = features.arrivals();
        let job = |job: usize| ReplayJob {
            submit_seconds: arrivals[job],
            run_seconds: run_times[job].max(0.0),
            requested_seconds: requested.map(|values| values[job]).filter(|value| *value > 0.0),
            n_nodes: count(nodes, job).or_else(|| count(cores, job)).unwrap_or(1),
            user: users.map_or(0, |users| users[job] as u32),
        };
        let known = (0..features.n_jobs()).filter(|job| !run_times[*job].is_nan());
        Ok(Self::new(known.map(job).collect()))
    }

    pub fn jobs(&self) -> &[ReplayJob] {
        &self.jobs
    }

    /// The same jobs, submitted `load` times as fast.
    #[must_use]
    pub fn at_load(&self, load: LoadFactor) -> Self {
        let faster =
            |job: &ReplayJob| ReplayJob { submit_seconds: job.submit_seconds / load.factor(), ..*job };
        Self { jobs: self.jobs.iter().map(faster).collect() }
    }

    /// The size of a machine that would be in use for `utilisation` of the time if no job waited; at least the largest job.
    pub fn machine_size(&self, utilisation: f64) -> NonZeroU64 {
        let largest = self.jobs.iter().map(|job| job.n_nodes).max().unwrap_or(1);
        let work: f64 = self.jobs.iter().map(|job| job.n_nodes as f64 * job.run_seconds).sum();
        let span = self.jobs.last().map_or(0.0, |job| job.submit_seconds);
        let size = largest.max((work / (span * utilisation).max(1.0)).ceil() as u64);
        NonZeroU64::new(size).unwrap_or(NonZeroU64::MIN)
    }
}

/// A job in the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    pub job: usize,
    pub n_nodes: u64,
    pub requested_seconds: f64,
    pub user: u32,
}

/// A running job, and the time by which it ends according to its request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    pub until: f64,
    pub n_nodes: u64,
}

/// What a policy decides by.
#[derive(Debug)]
pub struct State<'a> {
    pub now: f64,
    pub n_free: u64,
    /// In the order of submission.
    pub queue: &'a [Waiting],
    pub running: &'a [Running],
    /// What users were given lately.
    pub shares: &'a Shares,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    pub mean_wait_seconds: f64,
    pub mean_bounded_slowdown: f64,
    /// Node seconds used, as a fraction of those available until the last job ends.
    pub utilisation: f64,
    pub makespan_seconds: f64,
}

/// The end of a running job; ordered by time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct End {
    time: f64,
    job: usize,
    n_nodes: u64,
    requested_end: f64,
}

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.time.total_cmp(&other.time).then(self.job.cmp(&other.job))
    }
}

/// Runs a trace on a machine. Jobs larger than the machine get all of it.
pub fn replay(
    trace: &ReplayTrace,
    n_nodes: NonZeroU64,
    policy: &dyn Policy,
    stop: &Stop,
) -> Result<Outcome, Stopped> {
    let (jobs, n_nodes) = (trace.jobs(), n_nodes.get());
    let mut queue: Vec<Waiting> = Vec::new();
    let mut ends: BinaryHeap<Reverse<End>> = BinaryHeap::new();
    let mut starts = vec![0.0; jobs.len()];
    let mut shares = Shares::default();
    let mut n_free = n_nodes;
    let mut next = 0;
    let mut last_end: f64 = 0.0;
    while next < jobs.len() || !ends.is_empty() {
        stop.check()?;
        let arrival = jobs.get(next).map_or(f64::MAX, |job| job.submit_seconds);
        let end = ends.peek().map_or(f64::MAX, |end| end.0.time);
        let now = arrival.min(end);
        while let Some(Reverse(end)) = ends.peek().copied().filter(|end| end.0.time <= now) {
            ends.pop();
            n_free += end.n_nodes;
        }
        while let Some(job) = jobs.get(next).filter(|job| job.submit_seconds <= now) {
            let requested_seconds = job.requested_seconds.unwrap_or(job.run_seconds).max(1.0);
            let n_nodes = job.n_nodes.clamp(1, n_nodes);
            queue.push(Waiting { job: next, n_nodes, requested_seconds, user: job.user });
            next += 1;
        }
        if queue.is_empty() || n_free == 0 {
            continue;
        }
        let running: Vec<Running> = if policy.looks_ahead() {
            ends.iter()
                .map(|end| Running { until: end.0.requested_end.max(now), n_nodes: end.0.n_nodes })
                .collect()
        } else {
            Vec::new()
        };
        let chosen = policy.next(&State { now, n_free, queue: &queue, running: &running, shares: &shares });
        if chosen.is_empty() {
            continue;
        }
        let mut is_started = vec![false; queue.len()];
        for index in chosen {
            let waiting = queue[index];
            if waiting.n_nodes > n_free || is_started[index] {
                continue;
            }
            is_started[index] = true;
            n_free -= waiting.n_nodes;
            shares.charge(waiting.user, waiting.n_nodes as f64 * waiting.requested_seconds, now);
            starts[waiting.job] = now;
            let time = now + jobs[waiting.job].run_seconds;
            last_end = last_end.max(time);
            let requested_end = now + waiting.requested_seconds;
            ends.push(Reverse(End { time, job: waiting.job, n_nodes: waiting.n_nodes, requested_end }));
        }
        let mut is_started = is_started.iter();
        queue.retain(|_| !is_started.next().copied().unwrap_or(false));
    }
    Ok(outcome(jobs, &starts, n_nodes, last_end))
}

fn outcome(jobs: &[ReplayJob], starts: &[f64], n_nodes: u64, last_end: f64) -> Outcome {
    let n_jobs = jobs.len().max(1) as f64;
    let (mut wait, mut slowdown, mut work) = (0.0, 0.0, 0.0);
    for (job, start) in jobs.iter().zip(starts) {
        let waited = start - job.submit_seconds;
        wait += waited;
        slowdown += ((waited + job.run_seconds) / job.run_seconds.max(MIN_RUN_SECONDS)).max(1.0);
        work += job.n_nodes.clamp(1, n_nodes) as f64 * job.run_seconds;
    }
    Outcome {
        mean_wait_seconds: wait / n_jobs,
        mean_bounded_slowdown: slowdown / n_jobs,
        utilisation: work / (n_nodes as f64 * last_end).max(1e-9),
        makespan_seconds: last_end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submit_seconds: f64, run_seconds: f64, n_nodes: u64) -> ReplayJob {
        ReplayJob { submit_seconds, run_seconds, requested_seconds: Some(run_seconds), n_nodes, user: 0 }
    }

    /// A long job on half of the machine, one that needs all of it, and a short one that fits next to the first.
    fn jobs() -> Vec<ReplayJob> {
        vec![job(0.0, 100.0, 5), job(1.0, 50.0, 10), job(2.0, 20.0, 5)]
    }

    fn outcome_of(jobs: Vec<ReplayJob>, policy: &str) -> Outcome {
        let ten = NonZeroU64::new(10).unwrap();
        replay(&ReplayTrace::new(jobs), ten, policy_named(policy).unwrap(), &Stop::default()).unwrap()
    }

    fn total_wait(jobs: Vec<ReplayJob>, policy: &str) -> f64 {
        outcome_of(jobs, policy).mean_wait_seconds * 3.0
    }

    #[test]
    fn first_come_first_served_keeps_the_order_of_submission() {
        assert_eq!(total_wait(jobs(), "fcfs"), 99.0 + 148.0);
        let shuffled = jobs().into_iter().rev().collect();
        assert_eq!(total_wait(shuffled, "fcfs"), 99.0 + 148.0, "a trace is sorted");
    }

    #[test]
    fn backfilling_fills_gaps_without_delaying_the_first_in_the_queue() {
        assert_eq!(total_wait(jobs(), "easy"), 99.0);
        // A longer job would delay the one that waits for all nodes.
        let mut jobs = jobs();
        jobs[2] = job(2.0, 200.0, 5);
        assert_eq!(total_wait(jobs, "easy"), 99.0 + 148.0);
    }

    #[test]
    fn the_shortest_job_goes_first() {
        assert_eq!(total_wait(jobs(), "sjf"), 99.0);
        let outcome = outcome_of(vec![job(0.0, 10.0, 10), job(1.0, 50.0, 10), job(2.0, 20.0, 10)], "sjf");
        assert_eq!(outcome.mean_wait_seconds * 3.0, 8.0 + 29.0);
        assert!((outcome.utilisation - 1.0).abs() < 1e-9);
    }

    #[test]
    fn who_was_given_least_goes_first() {
        // While the first job runs, user 1 submits before user 2; user 1 has had the machine.
        let of = |user: u32, job: ReplayJob| ReplayJob { user, ..job };
        let jobs = vec![of(1, job(0.0, 100.0, 10)), of(1, job(1.0, 50.0, 10)), of(2, job(2.0, 50.0, 10))];
        assert_eq!(total_wait(jobs.clone(), "fair-share"), 98.0 + 149.0);
        assert_eq!(outcome_of(jobs.clone(), "easy"), outcome_of(jobs.clone(), "fcfs"));
        // Without users, it is backfilling.
        let nobody: Vec<ReplayJob> = jobs.into_iter().map(|job| of(0, job)).collect();
        assert_eq!(outcome_of(nobody.clone(), "fair-share"), outcome_of(nobody, "easy"));
    }

    #[test]
    fn a_load_factor_changes_submissions_only() {
        let twice = ReplayTrace::new(jobs()).at_load(LoadFactor::new(2.0).unwrap());
        let submitted: Vec<f64> = twice.jobs().iter().map(|job| job.submit_seconds).collect();
        assert_eq!(submitted, [0.0, 0.5, 1.0]);
        assert_eq!(twice.jobs()[0].run_seconds, 100.0);
    }

    #[test]
    fn a_machine_is_large_enough_for_the_largest_job() {
        let size = |jobs: Vec<ReplayJob>| ReplayTrace::new(jobs).machine_size(0.9).get();
        assert_eq!(size(jobs()), 612, "1,100 node seconds in two seconds");
        assert_eq!(size(vec![job(0.0, 1.0, 7), job(1e6, 1.0, 1)]), 7);
        assert_eq!(size(Vec::new()), 1);
    }

    #[test]
    fn a_replay_stops_on_request() {
        let stop = Stop::default();
        stop.now();
        let trace = ReplayTrace::new(jobs());
        let stopped = replay(&trace, NonZeroU64::MIN, policy_named("fcfs").unwrap(), &stop);
        assert_eq!(stopped, Err(Stopped));
    }
}
