//! The trace that was learnt from, in the order and the groups in which it is drawn from.

use std::collections::{HashMap, HashSet};

use crate::features::{FeatureKind, Jobs};
use crate::fidelity::columns::rank_correlation;
use crate::schema::Role;

/// A value that so many jobs share, or such a share of them, is a choice of its own and not one of many.
const LEAST_HEAP: usize = 20;
const HEAP_SHARE: f64 = 0.002;
/// A number that users repeat this often is what they ask for; others are what happens to them.
const REPEATED: f64 = 0.5;

/// What is correlated with the run time by this much grows with it.
const FOLLOWING: f64 = 0.8;
const DAY: f64 = 86_400.0;

/// Jobs, in the order of the trace.
pub type Group = Vec<u32>;

#[derive(Debug, Clone)]
pub struct Past {
    pub jobs: Jobs,
    pub users: Vec<u32>,
    /// What each job asks for, as a number of `asked`.
    pub asks: Vec<u32>,
    pub statuses: Vec<u32>,
    /// Features that are chosen, and that happen.
    pub chosen: Vec<usize>,
    pub happening: Vec<usize>,
    /// Those of the latter that are long when the run time is.
    pub following: Vec<usize>,
    pub status: Option<usize>,
    pub user: Option<usize>,
    pub run_time: Option<usize>,
    pub requested_time: Option<usize>,
    /// The first job of each session: jobs of one user with nobody else's between them.
    pub firsts: Group,
    pub session_users: Vec<u32>,
    pub lengths: Vec<u32>,
    pub sessions_of: HashMap<u32, Group>,
    /// Jobs of a user that are not the first of a session.
    pub inner_of: HashMap<u32, Group>,
    pub jobs_of: HashMap<u32, Group>,
    /// By user, and what the user asked for the time before.
    pub after: HashMap<(u32, u32), Group>,
    pub asking: HashMap<(u32, u32), Group>,
    pub ending: HashMap<(u32, u32, u32), Group>,
    /// When the interval before each job began, as a share of the day; days begin with the first job.
    pub hours: Vec<f64>,
    /// Sessions of two days, on the average.
    pub n_of_two_days: usize,
    /// The logarithm of the interval before each job's own.
    pub intervals_before: Vec<f64>,
    /// The logarithm of the run time that the user had the last time that they asked for the same.
    pub runs_before: Vec<f64>,
    /// Intervals that are heaps.
    pub heaps: HashSet<u64>,
    /// How often a job asks for something that its user never asked for before, and for how many jobs it stays so.
    pub novelty: f64,
    pub novelty_length: f64,
}

impl Past {
    pub fn new(jobs: &Jobs) -> Self {
        let n_jobs = jobs.len();
        let codes = |at: Option<usize>| -> Vec<u32> {
            at.map_or_else(
                || vec![0; n_jobs],
                |at| jobs.values[at].iter().map(|value| *value as u32).collect(),
            )
        };
        let (user, status) = (jobs.position(Role::User), jobs.position(Role::Status));
        let (users, statuses) = (codes(user), codes(status));
        let run_time = jobs.position(Role::RunTime);
        let others = (1..jobs.specs.len()).filter(|at| ![user, status, run_time].contains(&Some(*at)));
        let (chosen, happening): (Vec<usize>, Vec<usize>) =
            others.partition(|at| is_chosen(jobs, *at, &users));
        let mut known: HashMap<Vec<u64>, u32> = HashMap::new();
        let asks: Vec<u32> = (0..n_jobs)
            .map(|job| {
                let asked: Vec<u64> = chosen.iter().map(|at| jobs.values[*at][job].to_bits()).collect();
                let next = known.len() as u32;
                *known.entry(asked).or_insert(next)
            })
            .collect();
        let is_first = |job: usize| job == 0 || users[job] != users[job - 1] || user.is_none();
        let firsts: Group = (0..n_jobs).filter(|job| is_first(*job)).map(|job| job as u32).collect();
        let ends = firsts.iter().skip(1).copied().chain([n_jobs as u32]);
        let lengths: Vec<u32> = firsts.iter().zip(ends).map(|(first, end)| end - first).collect();
        let session_users: Vec<u32> = firsts.iter().map(|first| users[*first as usize]).collect();
        let logs: Vec<f64> = jobs.intervals().iter().map(|value| value.max(0.0).ln_1p()).collect();
        let intervals_before = (0..n_jobs).map(|job| logs[job.saturating_sub(1)]).collect();
        let follows = |at: &usize| {
            run_time.is_some_and(|run| rank_correlation(&jobs.values[*at], &jobs.values[run]) >= FOLLOWING)
        };
        let following = happening.iter().copied().filter(follows).collect();
        let arrivals = jobs.arrivals();
        let n_days = arrivals.last().copied().unwrap_or_default() / DAY;
        let n_of_two_days = (2.0 * firsts.len() as f64 / n_days.max(2.0)) as usize;
        let mut past = Self {
            users,
            asks,
            statuses,
            chosen,
            happening,
            following,
            status,
            user,
            run_time,
            requested_time: jobs.position(Role::RequestedTime),
            sessions_of: grouped(session_users.iter().copied()),
            firsts,
            session_users,
            lengths,
            inner_of: HashMap::new(),
            jobs_of: HashMap::new(),
            after: HashMap::new(),
            asking: HashMap::new(),
            ending: HashMap::new(),
            hours: (0..n_jobs).map(|job| (arrivals[job.saturating_sub(1)] / DAY).fract()).collect(),
            n_of_two_days,
            intervals_before,
            runs_before: vec![0.0; n_jobs],
            heaps: heaps(jobs.intervals()),
            novelty: 0.0,
            novelty_length: 1.0,
            jobs: jobs.clone(),
        };
        past.group(run_time);
        past
    }

    fn group(&mut self, run_time: Option<usize>) {
        let n_jobs = self.jobs.len();
        let (mut last, mut last_run) = (HashMap::new(), HashMap::new());
        let mut is_new = Vec::with_capacity(n_jobs);
        for job in 0..n_jobs {
            let (user, ask, status) = (self.users[job], self.asks[job], self.statuses[job]);
            let number = job as u32;
            self.jobs_of.entry(user).or_default().push(number);
            if let Some(before) = last.insert(user, ask) {
                self.after.entry((user, before)).or_default().push(number);
            }
            let asking = self.asking.entry((user, ask)).or_default();
            is_new.push(asking.is_empty());
            asking.push(number);
            self.ending.entry((user, ask, status)).or_default().push(number);
            let run = run_time.map_or(0.0, |at| self.jobs.values[at][job].max(0.0).ln_1p());
            self.runs_before[job] = last_run.insert((user, ask), run).unwrap_or(run);
        }
        for (first, length) in self.firsts.iter().zip(&self.lengths) {
            let user = self.users[*first as usize];
            self.inner_of.entry(user).or_default().extend(first + 1..first + length);
        }
        // In the second half, where users are known.
        let half = n_jobs / 2;
        let new: Vec<usize> = (half..n_jobs).filter(|job| is_new[*job]).collect();
        let lasting = |first: &usize| {
            let is_same =
                |job: &usize| self.users[*job] == self.users[*first] && self.asks[*job] == self.asks[*first];
            (*first..n_jobs).take_while(is_same).count()
        };
        self.novelty = new.len() as f64 / (n_jobs - half).max(1) as f64;
        self.novelty_length = new.iter().map(lasting).sum::<usize>() as f64 / new.len().max(1) as f64;
    }

    pub fn n_jobs(&self) -> usize {
        self.jobs.len()
    }
}

fn grouped(keys: impl Iterator<Item = u32>) -> HashMap<u32, Group> {
    let mut groups: HashMap<u32, Group> = HashMap::new();
    keys.enumerate().for_each(|(index, key)| groups.entry(key).or_default().push(index as u32));
    groups
}

/// Whether a feature is what users ask for.
fn is_chosen(jobs: &Jobs, at: usize, users: &[u32]) -> bool {
    let spec = &jobs.specs[at];
    match spec.role {
        Some(Role::RunTime | Role::Wait) => return false,
        Some(Role::Cores | Role::Nodes | Role::Gpus | Role::RequestedTime) => return true,
        _ => {}
    }
    if matches!(spec.kind, FeatureKind::Category { .. }) {
        return true;
    }
    let mut seen = HashSet::new();
    let repeated = users
        .iter()
        .zip(&jobs.values[at])
        .filter(|(user, value)| !seen.insert((**user, value.to_bits())))
        .count();
    repeated as f64 >= REPEATED * users.len() as f64
}

fn heaps(values: &[f64]) -> HashSet<u64> {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    values.iter().for_each(|value| *counts.entry(value.to_bits()).or_default() += 1);
    let least = LEAST_HEAP.max((HEAP_SHARE * values.len() as f64) as usize);
    counts.retain(|_, count| *count > least);
    counts.into_keys().collect()
}
