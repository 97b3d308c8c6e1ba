//! Sampling of a trace, session by session.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::{Stop, Stopped};

use super::index::TraceIndex;

/// The standard deviation of the distance from the clock at which sessions are drawn, in sessions.
const SESSION_SPREAD: f64 = 8.0;
/// How often another user than the previous one is looked for.
const MAX_USER_TRIES: usize = 8;
/// The length of a session is that of one of this many nearest sessions of the user.
const N_NEAREST_SESSIONS: usize = 5;
/// Requests and outcomes are those of one of this many nearest jobs.
const N_NEAREST_JOBS: usize = 12;
/// Run times come from this many nearest jobs, of which those with the most similar previous run time are kept.
const N_NEAREST_RUNS: usize = 10;
const N_SIMILAR_RUNS: usize = 4;
/// Intervals come from this many nearest jobs, of which those with the most similar previous interval are kept.
const N_NEAREST_INTERVALS: usize = 30;
const N_SIMILAR_INTERVALS: usize = 6;
const N_SIMILAR_INTERVALS_WITHOUT_USERS: usize = 12;
/// At most this many sessions are searched for first intervals at the same time of day.
const MAX_SESSION_STARTS: usize = 1_000;
const DAY: f64 = 86_400.0;
/// New requests are taken from this many jobs around the clock.
const N_NEW_REQUEST_JOBS: usize = 400;
/// A clock that is this many jobs ahead or behind is slowed down or sped up by a factor of two.
const CLOCK_SLACK_JOBS: f64 = 60.0;
/// Values whose logarithms differ by less than this may be interpolated.
const MAX_LOG_STEP: f64 = 0.3;
/// The standard deviation of the perturbation of a value without neighbours, as a logarithm.
const ISOLATED_STD_DEV: f64 = 0.15;
/// The standard deviation of the perturbation of intervals, as a logarithm.
const INTERVAL_STD_DEV: f64 = 0.35;
/// The standard deviation of the perturbation of a group of values, relative to that of the group.
const PERTURBATION: f64 = 0.5;
/// The range of the standard deviation of a group.
const MIN_GROUP_STD_DEV: f64 = 0.005;
const MAX_GROUP_STD_DEV: f64 = 0.3;

/// Samples the columns of all features. A sample longer than the training trace passes through it several times.
pub fn draw(index: &TraceIndex, n_jobs: usize, seed: u64, stop: &Stop) -> Result<Vec<Vec<f64>>, Stopped> {
    let specs = index.jobs().specs();
    let n_passes = n_jobs.div_ceil(index.n_jobs()).max(1);
    let pass = |pass: usize| {
        let n_in_pass = n_jobs * (pass + 1) / n_passes - n_jobs * pass / n_passes;
        let seed = seed ^ (pass as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut columns: Vec<Vec<f64>> = specs.iter().map(|_| Vec::with_capacity(n_in_pass)).collect();
        Pass::new(index, n_in_pass, seed).run(&mut columns, stop)?;
        Ok(columns)
    };
    let passes: Result<Vec<Vec<Vec<f64>>>, Stopped> = (0..n_passes).into_par_iter().map(pass).collect();
    let mut passes = passes?;
    // Every pass starts at the same time of day.
    let mut time = 0.0;
    for (number, pass) in passes.iter_mut().enumerate() {
        if let Some(first) = pass[0].first_mut().filter(|_| number > 0) {
            *first = specs[0].round(DAY - time % DAY);
        }
        time += pass[0].iter().skip(usize::from(number == 0)).sum::<f64>();
    }
    let column = |feature: usize| passes.iter().flat_map(|pass| pass[feature].iter().copied()).collect();
    Ok((0..specs.len()).into_par_iter().map(column).collect())
}

/// One pass along the training trace.
struct Pass<'a> {
    index: &'a TraceIndex,
    n_jobs: usize,
    rng: Xoshiro256PlusPlus,
    /// The position in the training trace, in sessions.
    clock: f64,
    n_sampled: usize,
    previous_user: Option<u32>,
    previous_log_interval: f64,
    /// Seconds since the pass started.
    time: f64,
    last_request: HashMap<u32, u32>,
    /// By user and request.
    last_log_run_time: HashMap<(u32, u32), f64>,
    /// Jobs to draw from; a buffer.
    candidates: Vec<u32>,
}

/// What the jobs of a session have in common.
struct Session {
    user: u32,
    length: u32,
    /// How much its run times deviate, in standard deviations.
    shift: f64,
    new_request: Option<NewRequest>,
}

/// A request of another user that is taken over for a few jobs.
#[derive(Clone, Copy)]
struct NewRequest {
    owner: u32,
    request: u32,
    n_left: u32,
}

/// Jobs with the same owner, request and status.
#[derive(Clone, Copy)]
struct Outcome {
    owner: u32,
    request: u32,
    status: u32,
}

impl<'a> Pass<'a> {
    fn new(index: &'a TraceIndex, n_jobs: usize, seed: u64) -> Self {
        Self {
            index,
            n_jobs,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            clock: 0.0,
            n_sampled: 0,
            previous_user: None,
            previous_log_interval: index.previous_log_interval.first().copied().unwrap_or_default(),
            time: 0.0,
            last_request: HashMap::new(),
            last_log_run_time: HashMap::new(),
            candidates: Vec::new(),
        }
    }

    fn run(&mut self, columns: &mut [Vec<f64>], stop: &Stop) -> Result<(), Stopped> {
        while self.n_sampled < self.n_jobs {
            stop.check()?;
            let mut session = self.session();
            for number in 0..session.length {
                if self.n_sampled == self.n_jobs {
                    break;
                }
                self.job(&mut session, number, columns);
                self.n_sampled += 1;
            }
        }
        Ok(())
    }

    /// Jobs of the training trace per sampled job.
    fn speed(&self) -> f64 {
        self.index.n_jobs() as f64 / self.n_jobs as f64
    }

    /// The position of the clock in jobs of the training trace.
    fn position(&self) -> f64 {
        let starts = &self.index.session_starts;
        let whole = (self.clock as usize).min(starts.len() - 1);
        let next = starts.get(whole + 1).map_or(self.index.n_jobs(), |start| *start as usize) as f64;
        let start = f64::from(starts[whole]);
        let position = start + (self.clock - whole as f64).min(1.0) * (next - start);
        position.min(self.index.n_jobs() as f64 - 1.0)
    }

    fn normal(&mut self) -> f64 {
        self.rng.sample(StandardNormal)
    }

    fn session(&mut self) -> Session {
        let index = self.index;
        let behind = self.n_sampled as f64 * self.speed() - self.position();
        self.clock += (1.0 + behind / CLOCK_SLACK_JOBS).clamp(0.3, 3.0) * self.speed();
        let mut session = 0;
        for _ in 0..MAX_USER_TRIES {
            let at = self.clock + SESSION_SPREAD * self.normal();
            session = (at.round().max(0.0) as usize).min(index.session_starts.len() - 1);
            if Some(index.session_users[session]) != self.previous_user || index.user_feature.is_none() {
                break;
            }
        }
        let user = index.session_users[session];
        self.previous_user = Some(user);
        let similar = self.pick(&index.sessions_by_user[&user], session as f64, N_NEAREST_SESSIONS);
        let length = index.session_lengths[similar as usize];
        Session { user, length, shift: self.normal(), new_request: None }
    }

    fn job(&mut self, session: &mut Session, number: u32, columns: &mut [Vec<f64>]) {
        let index = self.index;
        let user = session.user;
        let at = (self.position() + f64::from(number)).min(index.n_jobs() as f64 - 1.0);
        columns[0].push(self.interval(user, number == 0, at));
        let last = self.last_request.get(&user);
        let similar = match last.and_then(|last| index.next_by_request.get(&(user, *last))) {
            Some(next) => self.pick(next, at, N_NEAREST_JOBS),
            None => self.pick(&index.jobs_by_user[&user], at, N_NEAREST_JOBS),
        };
        let own = index.request_of_job[similar as usize];
        self.last_request.insert(user, own);
        let (owner, request) = self.new_request(session, at).unwrap_or((user, own));
        let similar = self.pick(&index.jobs_by_request[&(owner, request)], at, N_NEAREST_JOBS);
        let status = index.status_of_job[similar as usize];
        for feature in &index.requested_features {
            columns[*feature].push(index.jobs().value(*feature, similar as usize));
        }
        if let Some(feature) = index.status_feature {
            columns[feature].push(f64::from(status));
        }
        if let Some(feature) = index.user_feature {
            columns[feature].push(f64::from(user));
        }
        self.measurements(Outcome { owner, request, status }, session, at, columns);
    }

    /// Now and then a user takes over a request of another user, as often and for as long as users of the training trace
    /// make a new request. Returns the owner and the request.
    fn new_request(&mut self, session: &mut Session, at: f64) -> Option<(u32, u32)> {
        let index = self.index;
        if session.new_request.is_none() && self.rng.random::<f64>() < index.new_request_fraction {
            let first = (at as usize).saturating_sub(N_NEW_REQUEST_JOBS / 2);
            let job = self.rng.random_range(first..(first + N_NEW_REQUEST_JOBS).min(index.n_jobs()));
            let end_probability = 1.0 / index.new_request_length.max(1.0);
            let n_left =
                (self.rng.random::<f64>().max(1e-9).ln() / (1.0 - end_probability).max(1e-9).ln()) as u32;
            let (owner, request) = (index.user_of_job[job], index.request_of_job[job]);
            session.new_request = Some(NewRequest { owner, request, n_left });
        }
        let current = session.new_request?;
        session.new_request = current.n_left.checked_sub(1).map(|n_left| NewRequest { n_left, ..current });
        Some((current.owner, current.request))
    }

    /// Draws an interval from nearby jobs that came after a similar interval; for the first job of a session, at a similar
    /// time of day.
    fn interval(&mut self, user: u32, is_first: bool, at: f64) -> f64 {
        let index = self.index;
        let later = index.later_jobs_by_user.get(&user).filter(|later| !is_first && !later.is_empty());
        let has_users = index.user_feature.is_some();
        let previous = self.previous_log_interval;
        match later {
            Some(later) => self.set_nearest(later, at, N_NEAREST_INTERVALS),
            None => {
                // Without users, most jobs are the first of a session. With the time of day as well, their intervals would
                // be determined by those before them, and the sample would stay in bursts.
                let most = if has_users { MAX_SESSION_STARTS } else { 2 * N_NEAREST_INTERVALS };
                let n_starts = index.sessions_in_two_days.clamp(2 * N_NEAREST_INTERVALS, most);
                self.set_nearest(&index.session_starts, at, n_starts);
                let now = (self.time / DAY).fract();
                self.keep_similar(2 * N_NEAREST_INTERVALS, |job| {
                    let difference = (index.day_fraction_of_job[job as usize] - now).abs();
                    difference.min(1.0 - difference)
                });
            }
        }
        let n_similar = if has_users { N_SIMILAR_INTERVALS } else { N_SIMILAR_INTERVALS_WITHOUT_USERS };
        self.keep_similar(n_similar, |job| (index.previous_log_interval[job as usize] - previous).abs());
        let similar = self.candidates[self.rng.random_range(0..self.candidates.len())];
        let interval = index.jobs().intervals()[similar as usize];
        let is_exact = interval <= 0.0 || index.frequent_intervals.contains(&interval.to_bits());
        let perturbed = if is_exact { interval } else { interval * (INTERVAL_STD_DEV * self.normal()).exp() };
        let perturbed = index.jobs().specs()[0].round(perturbed);
        self.previous_log_interval = perturbed.max(0.0).ln_1p();
        self.time += perturbed;
        perturbed
    }

    /// Draws the run time and other measurements from nearby jobs with the same outcome and a similar previous run time.
    fn measurements(&mut self, outcome: Outcome, session: &Session, at: f64, columns: &mut [Vec<f64>]) {
        let index = self.index;
        let jobs = index.jobs();
        let Outcome { owner, request, status } = outcome;
        let group = &index.jobs_by_outcome[&(owner, request, status)];
        let last = self.last_log_run_time.get(&(session.user, request)).copied();
        let last = last.unwrap_or_else(|| {
            index.previous_log_run_time[group[self.rng.random_range(0..group.len())] as usize]
        });
        self.set_nearest(group, at, N_NEAREST_RUNS);
        self.keep_similar(N_SIMILAR_RUNS, |job| (index.previous_log_run_time[job as usize] - last).abs());
        let candidates = std::mem::take(&mut self.candidates);
        let chosen = self.rng.random_range(0..candidates.len());
        let limit = index.requested_time_feature.map(|at| jobs.value(at, candidates[chosen] as usize));
        let values_of = |feature: usize| -> Vec<f64> {
            candidates.iter().map(|job| jobs.value(feature, *job as usize)).collect()
        };
        let mut stretch = 1.0;
        if let Some(feature) = index.run_time_feature {
            let similar = values_of(feature);
            let value = match limit.filter(|limit| *limit > 0.0) {
                Some(limit) => self.perturbed_within(&similar, chosen, limit, session.shift),
                None => self.perturbed(&similar, chosen, session.shift),
            };
            let value = jobs.specs()[feature].round(value);
            stretch = if similar[chosen] > 0.0 { value / similar[chosen] } else { 1.0 };
            self.last_log_run_time.insert((session.user, request), value.max(0.0).ln_1p());
            columns[feature].push(value);
        }
        for feature in &index.measured_features {
            let similar = values_of(*feature);
            let value = if index.scaling_features.contains(feature) {
                similar[chosen] * stretch
            } else {
                self.perturbed(&similar, chosen, 0.0)
            };
            columns[*feature].push(jobs.specs()[*feature].round(value));
        }
        self.candidates = candidates;
    }

    /// A run time near the chosen one, on the same side of the limit.
    fn perturbed_within(&mut self, similar: &[f64], chosen: usize, limit: f64, shift: f64) -> f64 {
        let value = similar[chosen];
        if value.is_nan() {
            return value;
        }
        let is_over = value > limit;
        let is_same_side = |other: &&f64| (**other > limit) == is_over;
        let same_side: Vec<f64> = similar.iter().filter(is_same_side).copied().collect();
        let chosen = similar[..chosen].iter().filter(is_same_side).count();
        if is_over {
            let excess: Vec<f64> = same_side.iter().map(|value| value - limit).collect();
            return limit + self.perturbed(&excess, chosen, 0.0);
        }
        let shift = if value < 0.9 * limit { shift } else { 0.0 };
        let perturbed = self.perturbed(&same_side, chosen, shift);
        if perturbed > limit { value * value / perturbed } else { perturbed }
    }

    /// A value between the chosen one and its neighbour, plus noise; if it has no neighbour, the value plus noise.
    fn perturbed(&mut self, similar: &[f64], chosen: usize, shift: f64) -> f64 {
        let value = similar[chosen];
        if value.is_nan() || value <= 0.0 {
            return value;
        }
        let std_dev = log_std_dev(similar)
            .map_or(ISOLATED_STD_DEV, |std_dev| std_dev.clamp(MIN_GROUP_STD_DEV, MAX_GROUP_STD_DEV));
        let std_dev = std_dev * PERTURBATION;
        let is_up = self.rng.random::<bool>();
        let others = similar
            .iter()
            .enumerate()
            .filter(|(at, other)| *at != chosen && **other > 0.0)
            .map(|(_, other)| *other);
        let neighbour = if is_up {
            others.filter(|other| *other >= value).min_by(f64::total_cmp)
        } else {
            others.filter(|other| *other <= value).max_by(f64::total_cmp)
        };
        let step = match neighbour.map(|other| (other / value).ln()).filter(|step| step.abs() < MAX_LOG_STEP)
        {
            Some(step) => self.rng.random::<f64>() * step + 0.5 * std_dev * self.normal(),
            None => ISOLATED_STD_DEV * self.normal(),
        };
        value * (step + shift * std_dev).exp()
    }

    /// One of the nearest members of a group.
    fn pick(&mut self, group: &[u32], at: f64, n_nearest: usize) -> u32 {
        let nearest = nearest(group, at, n_nearest);
        nearest[self.rng.random_range(0..nearest.len())]
    }

    /// Makes the nearest members of a group the candidates.
    fn set_nearest(&mut self, group: &[u32], at: f64, n_nearest: usize) {
        self.candidates.clear();
        self.candidates.extend_from_slice(nearest(group, at, n_nearest));
    }

    /// Keeps the candidates with the smallest difference.
    fn keep_similar(&mut self, n_kept: usize, difference: impl Fn(u32) -> f64) {
        if self.candidates.len() > n_kept {
            self.candidates.select_nth_unstable_by(n_kept - 1, |a, b| {
                difference(*a).total_cmp(&difference(*b)).then(a.cmp(b))
            });
            self.candidates.truncate(n_kept);
            self.candidates.sort_unstable();
        }
    }
}

/// The members of a sorted group around a position.
fn nearest(group: &[u32], at: f64, n_nearest: usize) -> &[u32] {
    let place = group.partition_point(|member| f64::from(*member) < at);
    let first = place.saturating_sub(n_nearest / 2).min(group.len().saturating_sub(n_nearest));
    &group[first..(first + n_nearest).min(group.len())]
}

/// The standard deviation of the logarithms of positive values, if there are several.
fn log_std_dev(values: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
    (logs.len() > 1).then(|| learn::stats::std_dev(&logs))
}
