//! Sampling of a trace, session by session.

use std::collections::HashMap;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::{Stop, Stopped};

use super::demand::Demand;
use super::index::TraceIndex;
use super::perturb::{Perturbation, normal};
use super::shuffle::Shuffle;

/// A session is one of this many that are next in the training trace.
const N_UPCOMING_SESSIONS: usize = 4;
/// An interval is one of this many that are next, of which those that came after the most similar interval are kept.
const N_UPCOMING_INTERVALS: usize = 8;
const N_SIMILAR_INTERVALS: usize = 3;
/// The standard deviation of the perturbation of intervals, as a logarithm, and its limit for long ones.
const INTERVAL_STD_DEV: f64 = 0.25;
const MAX_INTERVAL_STD_DEV_SECONDS: f64 = 600.0;
/// Intervals of at least this length make up for the time by which the sample is ahead. They change by at most
/// `MAX_ABSORBED_FRACTION`, which is reached if the sample is ahead by `ABSORBED_SECONDS`.
const MIN_ABSORBING_SECONDS: f64 = 300.0;
const MAX_ABSORBED_FRACTION: f64 = 0.5;
const ABSORBED_SECONDS: f64 = 7_200.0;
/// Run times are perturbed within this many nearest jobs with the same request and status.
const N_NEAREST_RUNS: usize = 10;
/// Of so many perturbed run times that are no near copies, the one is taken that keeps the sum of work.
const N_RUN_CHOICES: usize = 2;
/// How often a run time is perturbed, with a spread that grows, to find one that is not a near copy.
const MAX_RUN_TRIES: usize = 8;
const SPREAD_STEP: f64 = 0.25;
const DAY: f64 = 86_400.0;

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

/// One pass along the training trace. Every session and every interval is used once, in a slightly different order, so that
/// as much work arrives per day as in the training trace.
struct Pass<'a> {
    index: &'a TraceIndex,
    n_jobs: usize,
    rng: Xoshiro256PlusPlus,
    sessions: Shuffle,
    /// The first jobs of sessions, whose intervals are taken.
    starts: Shuffle,
    /// The other jobs by user, whose intervals are taken.
    later_jobs: HashMap<u32, Shuffle>,
    previous_user: Option<u32>,
    previous_log_interval: f64,
    clock: Clock,
    demand: Demand,
    /// Node seconds by which perturbed jobs exceed the original ones.
    work_ahead: f64,
    n_sampled: usize,
    n_near_copies: usize,
}

/// How far the sample is ahead of the training trace, in seconds.
#[derive(Debug, Default)]
struct Clock {
    /// Because intervals come in another order.
    by_order: f64,
    /// Because intervals are perturbed or extended.
    by_change: f64,
}

impl<'a> Pass<'a> {
    fn new(index: &'a TraceIndex, n_jobs: usize, seed: u64) -> Self {
        let sessions = index.sessions_for(n_jobs);
        let mut starts = Vec::with_capacity(sessions.len());
        let mut later_jobs: HashMap<u32, Vec<u32>> = HashMap::new();
        for session in &sessions {
            let (start, length) = index.session(*session);
            starts.push(start);
            later_jobs
                .entry(index.user_of_job[start as usize])
                .or_default()
                .extend(start + 1..start + length);
        }
        let shuffled = |(user, jobs)| (user, Shuffle::new(jobs, N_UPCOMING_INTERVALS));
        Self {
            index,
            n_jobs,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            sessions: Shuffle::new(sessions, N_UPCOMING_SESSIONS),
            starts: Shuffle::new(starts, N_UPCOMING_INTERVALS),
            later_jobs: later_jobs.into_iter().map(shuffled).collect(),
            previous_user: None,
            previous_log_interval: index.previous_log_interval.first().copied().unwrap_or_default(),
            clock: Clock::default(),
            demand: Demand::new(index.peak_demand),
            work_ahead: 0.0,
            n_sampled: 0,
            n_near_copies: 0,
        }
    }

    fn run(&mut self, columns: &mut [Vec<f64>], stop: &Stop) -> Result<(), Stopped> {
        // The training trace is followed in its own order, to know how far it has come.
        let index = self.index;
        let mut original_intervals = index
            .sessions_for(self.n_jobs)
            .into_iter()
            .flat_map(|session| {
                let (start, length) = index.session(session);
                start..start + length
            })
            .map(|job| index.jobs().intervals()[job as usize]);
        while let Some(session) = self.next_session().filter(|_| self.n_sampled < self.n_jobs) {
            stop.check()?;
            let (start, length) = index.session(session);
            let shift = normal(&mut self.rng);
            for job in (start..start + length).take(self.n_jobs - self.n_sampled) {
                self.clock.by_order -= original_intervals.next().unwrap_or_default();
                let interval = self.interval(job, job == start);
                let run_seconds = self.job(job, interval, shift, columns);
                columns[0].push(interval);
                self.demand.submit(interval, run_seconds, index.n_nodes(job));
                self.n_sampled += 1;
            }
        }
        Ok(())
    }

    /// One of the next sessions, if possible of another user than the previous one.
    fn next_session(&mut self) -> Option<u32> {
        let users = &self.index.session_users;
        let previous = self.previous_user.filter(|_| self.index.user_feature.is_some());
        let rng = &mut self.rng;
        let session = self.sessions.take(|available| {
            let is_other = |at: &usize| Some(users[available[*at] as usize]) != previous;
            let others: Vec<usize> = (0..available.len()).filter(is_other).collect();
            match others.len() {
                0 => rng.random_range(0..available.len()),
                n_others => others[rng.random_range(0..n_others)],
            }
        })?;
        self.previous_user = Some(users[session as usize]);
        Some(session)
    }

    /// One of the next intervals, in a session one of the same user, perturbed: long enough to find room on the machine, after
    /// a similar interval, and such that time passes as in the training trace.
    fn interval(&mut self, job: u32, is_first: bool) -> f64 {
        let index = self.index;
        let intervals = index.jobs().intervals();
        let earliest = self.demand.seconds_until_room(index.n_nodes(job));
        let previous = self.previous_log_interval;
        let seconds_ahead = self.clock.by_order + self.clock.by_change;
        let rng = &mut self.rng;
        let choose = |available: &[u32]| {
            let interval = |at: &usize| intervals[available[*at] as usize];
            let is_early = |at: &usize| interval(at) < earliest;
            let difference =
                |at: &usize| (index.previous_log_interval[available[*at] as usize] - previous).abs();
            let mut order: Vec<usize> = (0..available.len()).collect();
            if order.iter().any(|at| !is_early(at)) {
                order.retain(|at| !is_early(at));
            }
            order.shuffle(rng);
            order.sort_by(|a, b| difference(a).total_cmp(&difference(b)));
            order.truncate(N_SIMILAR_INTERVALS);
            let off = |at: &usize| (seconds_ahead + interval(at)).abs();
            order.into_iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or_default()
        };
        let later_jobs = self.later_jobs.get_mut(&index.user_of_job[job as usize]).filter(|_| !is_first);
        let source = later_jobs.unwrap_or(&mut self.starts).take(choose).unwrap_or(job);
        let original = intervals[source as usize];
        self.clock.by_order += original;
        let interval = self.perturbed_interval(original).max(earliest);
        let interval = index.jobs().specs()[0].round(interval);
        self.clock.by_change += interval - original;
        self.previous_log_interval = interval.max(0.0).ln_1p();
        interval
    }

    fn perturbed_interval(&mut self, original: f64) -> f64 {
        if original <= 0.0 || self.index.frequent_intervals.contains(&original.to_bits()) {
            return original;
        }
        let std_dev = INTERVAL_STD_DEV.min(MAX_INTERVAL_STD_DEV_SECONDS / original);
        let interval = original * (std_dev * normal(&mut self.rng)).exp();
        // A model from elsewhere may have any interval.
        if interval < MIN_ABSORBING_SECONDS || !interval.is_finite() {
            return interval;
        }
        let ahead = self.clock.by_change;
        let most = MAX_ABSORBED_FRACTION * (ahead.abs() / ABSORBED_SECONDS).min(1.0) * interval;
        interval - ahead.clamp(-most, most)
    }

    /// Samples everything but the interval of a job, and returns the run time.
    fn job(&mut self, job: u32, interval: f64, shift: f64, columns: &mut [Vec<f64>]) -> f64 {
        let index = self.index;
        let jobs = index.jobs();
        let copied = index.requested_features.iter().chain(&index.status_feature).chain(&index.user_feature);
        for feature in copied {
            columns[*feature].push(jobs.value(*feature, job as usize));
        }
        let group = nearest(index.jobs_like(job), job, N_NEAREST_RUNS);
        let chosen = group.iter().position(|other| *other == job).unwrap_or_default();
        let values_of = |feature: usize| -> Vec<f64> {
            group.iter().map(|job| jobs.value(feature, *job as usize)).collect()
        };
        let mut stretch = 1.0;
        let mut run_seconds = 0.0;
        if let Some(feature) = index.run_time_feature {
            let similar = values_of(feature);
            run_seconds = self.run_time(job, interval, &similar, chosen, shift);
            stretch = if similar[chosen] > 0.0 { run_seconds / similar[chosen] } else { 1.0 };
            columns[feature].push(run_seconds);
        }
        for feature in &index.measured_features {
            let similar = values_of(*feature);
            let value = if index.scaling_features.contains(feature) {
                similar[chosen] * stretch
            } else {
                Perturbation::PLAIN.near(&similar, chosen, &mut self.rng)
            };
            columns[*feature].push(jobs.specs()[*feature].round(value));
        }
        run_seconds
    }

    /// A run time between similar ones, and on the same side of the requested time. Near copies of jobs are avoided if there
    /// have been too many.
    fn run_time(&mut self, job: u32, interval: f64, similar: &[f64], chosen: usize, shift: f64) -> f64 {
        let index = self.index;
        let original = similar[chosen];
        let limit = index.requested_time_feature.map(|at| index.jobs().value(at, job as usize));
        let limit = limit.filter(|limit| *limit > 0.0);
        let is_near = |value: &f64| index.originals.have_near(index.copied_part(job, interval, *value));
        let may_be_near = (self.n_near_copies as f64) < index.max_near_fraction * self.n_sampled as f64;
        let mut values: Vec<f64> = Vec::with_capacity(N_RUN_CHOICES);
        let mut last = original;
        for attempt in 0..MAX_RUN_TRIES {
            let perturbation = Perturbation { shift, spread: 1.0 + SPREAD_STEP * attempt as f64 };
            last = match limit {
                Some(limit) => perturbation.within(similar, chosen, limit, &mut self.rng),
                None => perturbation.near(similar, chosen, &mut self.rng),
            };
            last = index.run_time_feature.map_or(last, |feature| index.jobs().specs()[feature].round(last));
            if may_be_near || !is_near(&last) {
                values.push(last);
            }
            if values.len() == N_RUN_CHOICES {
                break;
            }
        }
        let gained = |value: f64| {
            let seconds = value - original;
            if seconds.is_finite() { seconds * index.n_nodes(job) } else { 0.0 }
        };
        let off = |value: &f64| (self.work_ahead + gained(*value)).abs();
        let value = values.into_iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(last);
        self.work_ahead += gained(value);
        self.n_near_copies += usize::from(is_near(&value));
        value
    }
}

/// The members of a sorted group around a position.
fn nearest(group: &[u32], at: u32, n_nearest: usize) -> &[u32] {
    let place = group.partition_point(|member| *member < at);
    let first = place.saturating_sub(n_nearest / 2).min(group.len().saturating_sub(n_nearest));
    &group[first..(first + n_nearest).min(group.len())]
}
