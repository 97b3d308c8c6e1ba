//! An index of the training trace: its sessions, and its jobs by user, resource request and outcome.

use std::collections::{HashMap, HashSet};

use crate::features::{FeatureKind, FeatureTable};
use crate::fidelity::columns::rank_correlation;
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

/// Positions of jobs or sessions in the trace, ascending.
pub(super) type Positions = Vec<u32>;

/// Resource requests are numbered: jobs with the same sizes, requested time and so on have the same number.
#[derive(Debug, Clone)]
pub(super) struct TraceIndex {
    jobs: FeatureTable,
    pub(super) user_of_job: Vec<u32>,
    pub(super) request_of_job: Vec<u32>,
    pub(super) status_of_job: Vec<u32>,
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
    /// The first job of each session.
    pub(super) session_starts: Positions,
    pub(super) session_users: Vec<u32>,
    /// Jobs in each session.
    pub(super) session_lengths: Vec<u32>,
    pub(super) sessions_by_user: HashMap<u32, Positions>,
    /// Jobs that are not the first of a session.
    pub(super) later_jobs_by_user: HashMap<u32, Positions>,
    pub(super) jobs_by_user: HashMap<u32, Positions>,
    /// Jobs by user and the previous request of that user.
    pub(super) next_by_request: HashMap<(u32, u32), Positions>,
    /// Jobs by user and request.
    pub(super) jobs_by_request: HashMap<(u32, u32), Positions>,
    /// Jobs by user, request and status.
    pub(super) jobs_by_outcome: HashMap<(u32, u32, u32), Positions>,
    /// The time of day of the previous submission, as a fraction; days start with the first job.
    pub(super) day_fraction_of_job: Vec<f64>,
    /// The mean number of sessions in two days.
    pub(super) sessions_in_two_days: usize,
    /// The logarithm of the interval of the previous job.
    pub(super) previous_log_interval: Vec<f64>,
    /// The logarithm of the run time of the user's last job with the same request.
    pub(super) previous_log_run_time: Vec<f64>,
    /// Bits of intervals that many jobs share.
    pub(super) frequent_intervals: HashSet<u64>,
    /// The fraction of jobs with a request that is new to their user.
    pub(super) new_request_fraction: f64,
    /// The mean number of consecutive jobs with a new request.
    pub(super) new_request_length: f64,
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
        let session_lengths =
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
        let n_days = arrivals.last().copied().unwrap_or_default() / DAY;
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
            sessions_by_user: grouped(&session_users),
            sessions_in_two_days: (2.0 * session_starts.len() as f64 / n_days.max(2.0)) as usize,
            session_starts,
            session_users,
            session_lengths,
            later_jobs_by_user: HashMap::new(),
            jobs_by_user: HashMap::new(),
            next_by_request: HashMap::new(),
            jobs_by_request: HashMap::new(),
            jobs_by_outcome: HashMap::new(),
            day_fraction_of_job: (0..n_jobs)
                .map(|job| (arrivals[job.saturating_sub(1)] / DAY).fract())
                .collect(),
            previous_log_interval: (0..n_jobs).map(|job| log_intervals[job.saturating_sub(1)]).collect(),
            previous_log_run_time: vec![0.0; n_jobs],
            frequent_intervals: frequent(jobs.intervals()),
            new_request_fraction: 0.0,
            new_request_length: 1.0,
            jobs,
        };
        index.group_jobs();
        if user_feature.is_none() {
            index.new_request_fraction = 0.0;
        }
        index
    }

    fn group_jobs(&mut self) {
        let n_jobs = self.n_jobs();
        let (mut last_request, mut last_run_time) = (HashMap::new(), HashMap::new());
        let mut is_new = Vec::with_capacity(n_jobs);
        for job in 0..n_jobs {
            let (user, request, status) =
                (self.user_of_job[job], self.request_of_job[job], self.status_of_job[job]);
            let position = job as u32;
            self.jobs_by_user.entry(user).or_default().push(position);
            if let Some(previous) = last_request.insert(user, request) {
                self.next_by_request.entry((user, previous)).or_default().push(position);
            }
            let same_request = self.jobs_by_request.entry((user, request)).or_default();
            is_new.push(same_request.is_empty());
            same_request.push(position);
            self.jobs_by_outcome.entry((user, request, status)).or_default().push(position);
            let run_time =
                self.run_time_feature.map_or(0.0, |feature| self.jobs.value(feature, job).max(0.0).ln_1p());
            self.previous_log_run_time[job] =
                last_run_time.insert((user, request), run_time).unwrap_or(run_time);
        }
        for (start, length) in self.session_starts.iter().zip(&self.session_lengths) {
            let user = self.user_of_job[*start as usize];
            self.later_jobs_by_user.entry(user).or_default().extend(start + 1..start + length);
        }
        self.count_new_requests(&is_new);
    }

    /// Counts in the second half of the trace: in the first, most requests are new because most users are.
    fn count_new_requests(&mut self, is_new: &[bool]) {
        let n_jobs = self.n_jobs();
        let half = n_jobs / 2;
        let new: Vec<usize> = (half..n_jobs).filter(|job| is_new[*job]).collect();
        let length = |first: &usize| {
            let is_same = |job: &usize| {
                self.user_of_job[*job] == self.user_of_job[*first]
                    && self.request_of_job[*job] == self.request_of_job[*first]
            };
            (*first..n_jobs).take_while(is_same).count()
        };
        let total_length: usize = new.iter().map(length).sum();
        self.new_request_fraction = new.len() as f64 / (n_jobs - half).max(1) as f64;
        self.new_request_length = total_length as f64 / new.len().max(1) as f64;
    }

    pub fn jobs(&self) -> &FeatureTable {
        &self.jobs
    }

    pub fn n_jobs(&self) -> usize {
        self.jobs.n_jobs()
    }
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

fn grouped(keys: &[u32]) -> HashMap<u32, Positions> {
    let mut groups: HashMap<u32, Positions> = HashMap::new();
    for (position, key) in keys.iter().enumerate() {
        groups.entry(*key).or_default().push(position as u32);
    }
    groups
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
