//! An index of the training trace: its sessions, and its jobs by user, resource request and outcome.

use std::collections::{HashMap, HashSet};

use super::demand::peak_of;
use crate::features::{FeatureKind, FeatureTable};
use crate::fidelity::columns::rank_correlation;
use crate::fidelity::near::{CopiedPart, Originals};
use crate::schema::Role;

/// An interval shared by more than this many jobs, and by more than this fraction of them, is not perturbed.
const MIN_FREQUENT_COUNT: usize = 20;
const MIN_FREQUENT_FRACTION: f64 = 0.002;
/// A number that users repeat in at least this fraction of jobs is part of their request; others are measurements.
const MIN_REPEATED_FRACTION: f64 = 0.5;
/// A measurement with at least this rank correlation with the run time scales with it.
const MIN_SCALING_CORRELATION: f64 = 0.8;
/// If one user has more than this fraction of the jobs, the trace does not say who submitted them.
const MAX_USER_FRACTION: f64 = 0.9;
/// Without users, a session also ends with an interval of so many seconds.
const PAUSE: f64 = 1_800.0;
const DAY: f64 = 86_400.0;

/// Near copies may be more frequent than in the second half of the training trace, compared with the first, by this fraction.
const MORE_NEAR_COPIES: f64 = 0.03;

/// Positions of jobs or sessions in the trace, ascending.
pub(super) type Positions = Vec<u32>;

/// Resource requests are numbered: jobs with the same sizes, requested time and so on have the same number.
#[derive(Debug, Clone)]
pub(super) struct TraceIndex {
    jobs: FeatureTable,
    pub(super) user_of_job: Vec<u32>,
    request_of_job: Vec<u32>,
    status_of_job: Vec<u32>,
    /// Features that make up a request.
    pub(super) requested_features: Vec<usize>,
    /// Features that are measured, apart from the run time.
    pub(super) measured_features: Vec<usize>,
    /// Measured features that scale with the run time.
    pub(super) scaling_features: Vec<usize>,
    pub(super) status_feature: Option<usize>,
    pub(super) user_feature: Option<usize>,
    pub(super) run_time_feature: Option<usize>,
    pub(super) requested_time_feature: Option<usize>,
    /// Nodes, or cores where a trace has no nodes.
    size_feature: Option<usize>,
    /// The first job of each session.
    pub(super) session_starts: Positions,
    pub(super) session_users: Vec<u32>,
    /// Jobs in each session.
    session_lengths: Vec<u32>,
    /// Jobs by user, request and status.
    jobs_by_outcome: HashMap<(u32, u32, u32), Positions>,
    /// Seconds after the first submission.
    arrivals: Vec<f64>,
    /// The logarithm of the interval of the previous job.
    pub(super) previous_log_interval: Vec<f64>,
    /// Bits of intervals that many jobs share.
    pub(super) frequent_intervals: HashSet<u64>,
    /// The nodes that are rarely in demand at once.
    pub(super) peak_demand: f64,
    /// To recognise near copies of jobs.
    pub(super) originals: Originals,
    copied: Vec<CopiedPart>,
    /// The fraction of sampled jobs that may be near copies.
    pub(super) max_near_fraction: f64,
}

impl TraceIndex {
    pub fn new(jobs: FeatureTable) -> Self {
        let n_jobs = jobs.n_jobs();
        let codes = |feature: Option<usize>| -> Vec<u32> {
            feature.map_or_else(
                || vec![0; n_jobs],
                |feature| jobs.column(feature).iter().map(|value| *value as u32).collect(),
            )
        };
        let user_feature = jobs.position(Role::User).filter(|user| tells_users_apart(jobs.column(*user)));
        let status_feature = jobs.position(Role::Status);
        let (user_of_job, status_of_job) = (codes(user_feature), codes(status_feature));
        let run_time_feature = jobs.position(Role::RunTime);
        let separate = [user_feature, status_feature, run_time_feature];
        let others = (1..jobs.specs().len()).filter(|feature| !separate.contains(&Some(*feature)));
        let (requested_features, measured_features): (Vec<usize>, Vec<usize>) =
            others.partition(|feature| is_requested(&jobs, *feature, &user_of_job));
        let request_of_job = numbered_requests(&jobs, &requested_features);
        // Without users, who requests the same takes the place of a user.
        let user_of_job = if user_feature.is_some() { user_of_job } else { request_of_job.clone() };
        let is_start = |job: usize| {
            let is_pause = user_feature.is_none() && jobs.intervals()[job] > PAUSE;
            job == 0 || user_of_job[job] != user_of_job[job - 1] || is_pause
        };
        let session_starts: Positions =
            (0..n_jobs).filter(|job| is_start(*job)).map(|job| job as u32).collect();
        let session_ends = session_starts.iter().skip(1).copied().chain([n_jobs as u32]);
        let session_lengths: Vec<u32> =
            session_starts.iter().zip(session_ends).map(|(start, end)| end - start).collect();
        let session_users: Vec<u32> =
            session_starts.iter().map(|start| user_of_job[*start as usize]).collect();
        let log_intervals: Vec<f64> = jobs.intervals().iter().map(|value| value.max(0.0).ln_1p()).collect();
        let scales = |feature: &usize| {
            run_time_feature.is_some_and(|run_time| {
                let correlation = rank_correlation(jobs.column(*feature), jobs.column(run_time));
                correlation >= MIN_SCALING_CORRELATION
            })
        };
        let scaling_features = measured_features.iter().copied().filter(scales).collect();
        let arrivals = jobs.arrivals();
        let copied = CopiedPart::all(&jobs);
        let (first, second) = copied.split_at(n_jobs / 2);
        let max_near_fraction = Originals::new(first).fraction_near(second) + MORE_NEAR_COPIES;
        let mut index = Self {
            user_of_job,
            request_of_job,
            status_of_job,
            requested_features,
            measured_features,
            scaling_features,
            status_feature,
            user_feature,
            run_time_feature,
            requested_time_feature: jobs.position(Role::RequestedTime),
            size_feature: jobs.position(Role::Nodes).or_else(|| jobs.position(Role::Cores)),
            originals: Originals::new(&copied),
            copied,
            max_near_fraction,
            peak_demand: f64::INFINITY,
            session_starts,
            session_users,
            session_lengths,
            jobs_by_outcome: HashMap::new(),
            previous_log_interval: (0..n_jobs).map(|job| log_intervals[job.saturating_sub(1)]).collect(),
            frequent_intervals: frequent(jobs.intervals()),
            arrivals,
            jobs,
        };
        let run =
            |job: usize| (index.arrivals[job], index.run_seconds(job as u32), index.n_nodes(job as u32));
        index.peak_demand = peak_of((0..n_jobs).map(run));
        for job in 0..n_jobs {
            let outcome = (index.user_of_job[job], index.request_of_job[job], index.status_of_job[job]);
            index.jobs_by_outcome.entry(outcome).or_default().push(job as u32);
        }
        index
    }

    /// The run time of a job, 0 if it is unknown.
    pub fn run_seconds(&self, job: u32) -> f64 {
        self.run_time_feature.map_or(0.0, |feature| self.jobs.value(feature, job as usize)).max(0.0)
    }

    /// At least 1.
    pub fn n_nodes(&self, job: u32) -> f64 {
        self.size_feature.map_or(1.0, |feature| self.jobs.value(feature, job as usize)).max(1.0)
    }

    /// What decides whether a job is a near copy, with another interval and run time.
    pub fn copied_part(&self, job: u32, interval: f64, run_time: f64) -> CopiedPart {
        CopiedPart { interval, run_time, ..self.copied[job as usize] }
    }

    /// The first job and the length of a session.
    pub fn session(&self, session: u32) -> (u32, u32) {
        (self.session_starts[session as usize], self.session_lengths[session as usize])
    }

    /// Jobs of the same user with the same request and status.
    pub fn jobs_like(&self, job: u32) -> &[u32] {
        let job = job as usize;
        &self.jobs_by_outcome[&(self.user_of_job[job], self.request_of_job[job], self.status_of_job[job])]
    }

    /// Sessions with at least `n_jobs` jobs in total, for fewer jobs than the trace has: those of some whole days, taken
    /// evenly from all parts of the trace.
    pub fn sessions_for(&self, n_jobs: usize) -> Positions {
        let days = self.days();
        let fraction = n_jobs as f64 / self.n_jobs() as f64;
        let (mut n_passed, mut n_kept) = (0, 0);
        let mut is_kept = Vec::with_capacity(days.len());
        for day in &days {
            n_passed += day.n_jobs;
            let keep = n_kept as f64 + day.n_jobs as f64 / 2.0 <= fraction * n_passed as f64;
            n_kept += if keep { day.n_jobs } else { 0 };
            is_kept.push(keep);
        }
        for (day, is_kept) in days.iter().zip(&mut is_kept).rev() {
            if n_kept < n_jobs && !*is_kept {
                *is_kept = true;
                n_kept += day.n_jobs;
            }
        }
        let kept = days.into_iter().zip(is_kept).filter(|(_, is_kept)| *is_kept);
        kept.flat_map(|(day, _)| day.sessions).collect()
    }

    /// The sessions that start on each day on which one starts.
    fn days(&self) -> Vec<Day> {
        let mut days: Vec<Day> = Vec::new();
        for session in 0..self.session_starts.len() as u32 {
            let (start, length) = self.session(session);
            let number = (self.arrivals[start as usize] / DAY) as u64;
            if days.last().is_none_or(|last| last.number != number) {
                days.push(Day { number, sessions: Positions::new(), n_jobs: 0 });
            }
            if let Some(day) = days.last_mut() {
                day.sessions.push(session);
                day.n_jobs += length as usize;
            }
        }
        days
    }

    pub fn jobs(&self) -> &FeatureTable {
        &self.jobs
    }

    pub fn n_jobs(&self) -> usize {
        self.jobs.n_jobs()
    }
}

/// The sessions that start on one day.
struct Day {
    /// Days since the first job.
    number: u64,
    sessions: Positions,
    n_jobs: usize,
}

/// Whether a column of users says who submitted a job: not if it has the same value in nearly all jobs.
fn tells_users_apart(users: &[f64]) -> bool {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for user in users {
        *counts.entry(user.to_bits()).or_default() += 1;
    }
    let most = counts.into_values().max().unwrap_or_default();
    (most as f64) < MAX_USER_FRACTION * users.len() as f64
}

/// The number of the request of each job.
fn numbered_requests(jobs: &FeatureTable, requested_features: &[usize]) -> Vec<u32> {
    let mut number_of: HashMap<Vec<u64>, u32> = HashMap::new();
    let request = |job: usize| {
        let values = requested_features.iter().map(|feature| jobs.value(*feature, job).to_bits());
        let next = number_of.len() as u32;
        *number_of.entry(values.collect()).or_insert(next)
    };
    (0..jobs.n_jobs()).map(request).collect()
}

/// Whether a feature is part of what users request, and not measured.
fn is_requested(jobs: &FeatureTable, feature: usize, user_of_job: &[u32]) -> bool {
    let spec = &jobs.specs()[feature];
    match spec.role {
        Some(Role::RunTime | Role::Wait) => return false,
        Some(Role::Cores | Role::Nodes | Role::Gpus | Role::RequestedTime) => return true,
        _ => {}
    }
    if matches!(spec.kind, FeatureKind::Category { .. }) {
        return true;
    }
    let mut seen = HashSet::new();
    let n_repeated = user_of_job
        .iter()
        .zip(jobs.column(feature))
        .filter(|(user, value)| !seen.insert((**user, value.to_bits())))
        .count();
    n_repeated as f64 >= MIN_REPEATED_FRACTION * user_of_job.len() as f64
}

/// The bits of values that many jobs share.
fn frequent(values: &[f64]) -> HashSet<u64> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for value in values {
        *counts.entry(value.to_bits()).or_default() += 1;
    }
    let min_count = MIN_FREQUENT_COUNT.max((MIN_FREQUENT_FRACTION * values.len() as f64) as usize);
    counts.retain(|_, count| *count > min_count);
    counts.into_keys().collect()
}
