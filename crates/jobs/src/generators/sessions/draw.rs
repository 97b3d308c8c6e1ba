//! Sampling of a trace, session by session.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::{Stop, Stopped};

use super::index::TraceIndex;
use crate::fidelity::near::CopiedPart;
use super::shuffle::Shuffle;

/// A session is taken from this many, of which the first ones are next in the training trace.
const N_UPCOMING_SESSIONS: usize = 12;
fn en(n: &str, d: f64) -> f64 { std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(d) }
/// Intervals are taken from this many, of which those that came after the most similar interval are kept.
const N_UPCOMING_INTERVALS: usize = 8;
const N_SIMILAR_INTERVALS: usize = 3;
/// Run times are perturbed within this many nearest jobs with the same request and status.
const N_NEAREST_RUNS: usize = 10;
const MIN_ABSORBING_SECONDS: f64 = 300.0;
const MAX_ABSORBED_FRACTION: f64 = 0.2;
const DAY: f64 = 86_400.0;
/// Values whose logarithms differ by less than this may be interpolated.
const MAX_LOG_STEP: f64 = 0.3;
/// The standard deviation of the perturbation of a value without neighbours, as a logarithm.
const ISOLATED_STD_DEV: f64 = 0.15;
/// The standard deviation of the perturbation of intervals, as a logarithm, and its limit for long ones.
const INTERVAL_STD_DEV: f64 = 0.35;
const MAX_INTERVAL_STD_DEV_SECONDS: f64 = 1_800.0;
/// Perturbed intervals that are this much ahead of the original ones are shortened by one standard deviation.
const TIME_SLACK_SECONDS: f64 = 1_800.0;
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

/// One pass along the training trace. Every session and every interval is used once, in a slightly different order, so that
/// as much work arrives per day as in the training trace.
struct Pass<'a> {
    index: &'a TraceIndex,
    n_jobs: usize,
    rng: Xoshiro256PlusPlus,
    order: Vec<u32>,
    order_work: Vec<f64>,
    work_ahead: f64,
    sessions: Shuffle,
    /// The first jobs of sessions, whose intervals are taken.
    starts: Shuffle,
    /// The other jobs by user.
    later_jobs: HashMap<u32, Shuffle>,
    n_sampled: usize,
    previous_user: Option<u32>,
    previous_log_interval: f64,
    /// Seconds by which perturbed intervals are longer than the original ones.
    seconds_ahead: f64,
    gained: f64,
    n_near: u32,
    time: f64,
    demand: f64,
    running: BinaryHeap<Reverse<(u64, u64)>>,
}

impl<'a> Pass<'a> {
    fn new(index: &'a TraceIndex, n_jobs: usize, seed: u64) -> Self {
        let sessions = index.sessions_of(n_jobs);
        let starts = sessions.iter().map(|session| index.session_starts[*session as usize]).collect();
        let mut later_jobs: HashMap<u32, Vec<u32>> = HashMap::new();
        for session in &sessions {
            let (start, length) = index.session(*session);
            let user = index.user_of_job[start as usize];
            later_jobs.entry(user).or_default().extend(start + 1..start + length);
        }
        let shuffled = |(user, jobs)| (user, Shuffle::new(jobs, en("UI",8.0) as usize));
        Self {
            index,
            n_jobs,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            work_ahead: 0.0, order_work: { let mut w = 0.0; let mut v = vec![0.0]; for job in sessions.iter().flat_map(|s| { let (a, l) = index.session(*s); a..a + l }) { w += index.work_of_job[job as usize]; v.push(w); } v },
            order: sessions.iter().flat_map(|s| { let (a, l) = index.session(*s); a..a + l }).collect(),
            sessions: Shuffle::new(sessions, en("US",12.0) as usize),
            starts: Shuffle::new(starts, en("UI",8.0) as usize),
            later_jobs: later_jobs.into_iter().map(shuffled).collect(),
            n_sampled: 0,
            previous_user: None,
            previous_log_interval: index.previous_log_interval.first().copied().unwrap_or_default(),
            seconds_ahead: 0.0,
            gained: 0.0,
            n_near: 0,
            time: 0.0, demand: 0.0, running: BinaryHeap::new(),
        }
    }

    fn run(&mut self, columns: &mut [Vec<f64>], stop: &Stop) -> Result<(), Stopped> {
        while self.n_sampled < self.n_jobs {
            stop.check()?;
            let (start, length) = self.session();
            let shift = self.normal();
            for job in start..(start + length).min(start + (self.n_jobs - self.n_sampled) as u32) {
                let interval = self.interval(job, job == start);
                self.request_and_outcome(job, interval, shift, columns);
                let delay = self.delay(interval, columns);
                columns[0].push(interval + delay);
                self.n_sampled += 1;
            }
        }
        Ok(())
    }

    fn normal(&mut self) -> f64 {
        self.rng.sample(StandardNormal)
    }

    /// The first job and the length of the next session; if possible, of another user than the previous one.
    fn session(&mut self) -> (u32, u32) {
        let index = self.index;
        let previous = self.previous_user.filter(|_| index.user_feature.is_some());
        let rng = &mut self.rng;
        let work_ahead = self.work_ahead;
        let session = self.sessions.take(|available| {
            let is_other = |at: &usize| Some(index.session_users[available[*at] as usize]) != previous;
            let mut order: Vec<usize> = (0..available.len()).collect();
            order.shuffle(rng);
            order.sort_by_key(|at| !is_other(at));
            order.truncate((en("CH",1.0) as usize));
            order.retain({ let first = order[0]; move |at| *at == first || is_other(at) });
            let off = |at: &usize| {
                let session = available[*at] as usize;
                let due: f64 = self.order_work[self.n_sampled] - self.order_work[(self.n_sampled + index.session_lengths[session] as usize).min(self.n_jobs)];
                (work_ahead + due + index.session_work[session]).abs()
            };
            order.into_iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or_default()
        });
        let at = session as usize;
        let due: f64 = self.order_work[self.n_sampled] - self.order_work[(self.n_sampled + index.session_lengths[at] as usize).min(self.n_jobs)];
        self.work_ahead += due + index.session_work[at];
        self.previous_user = Some(index.session_users[session as usize]);
        index.session(session)
    }

    /// An interval from around the same time that came after a similar one; in a session, one of the same user.
    fn interval(&mut self, job: u32, is_first: bool) -> f64 {
        let index = self.index;
        let jobs = if is_first { None } else { self.later_jobs.get_mut(&index.user_of_job[job as usize]) };
        let previous = self.previous_log_interval;
        let intervals = index.jobs().intervals();
        let seconds_ahead = self.seconds_ahead - intervals[self.order[self.n_sampled] as usize];
        let gained = self.gained;
        let rng = &mut self.rng;
        let source = jobs.unwrap_or(&mut self.starts).take(|available| {
            let difference = |at: &usize| (index.previous_log_interval[available[*at] as usize] - previous).abs();
            let mut order: Vec<usize> = (0..available.len()).collect();
            order.shuffle(rng);
            order.sort_by(|a, b| difference(a).total_cmp(&difference(b)));
            order.truncate(en("SI",3.0) as usize);
            let off = |at: &usize| (seconds_ahead + gained + intervals[available[*at] as usize]).abs();
            order.into_iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or_default()
        });
        let interval = intervals[source as usize];
        self.seconds_ahead = seconds_ahead + interval;
        let is_exact = interval <= 0.0 || index.frequent_intervals.contains(&interval.to_bits());
        let std_dev = en("IS",0.35).min(MAX_INTERVAL_STD_DEV_SECONDS / interval.max(1.0));
        let perturbed = if is_exact { interval } else { interval * (std_dev * (self.normal())).exp() };
        // Long intervals make up for what others gained or lost, so that the clock of the sample stays with the training trace.
        let most = if perturbed >= MIN_ABSORBING_SECONDS { en("AB",0.2) * perturbed } else { 0.0 };
        let perturbed = perturbed - if is_exact { 0.0 } else { self.gained.clamp(-most, most) };
        let perturbed = index.jobs().specs()[0].round(perturbed);
        self.gained += perturbed - interval;
        self.previous_log_interval = perturbed.max(0.0).ln_1p();
        perturbed
    }

    /// Seconds until a job can be submitted without more nodes in demand than in the training trace.
    fn delay(&mut self, interval: f64, columns: &[Vec<f64>]) -> f64 {
        let last = |feature: Option<usize>| feature.and_then(|feature| columns[feature].last().copied());
        let n_nodes = last(self.index.size_feature).unwrap_or(1.0).max(1.0);
        let run = last(self.index.run_time_feature).unwrap_or(0.0).max(0.0);
        let planned = self.time + interval;
        let mut time = planned;
        while let Some(Reverse((end, nodes))) = self.running.peek().map(|e| Reverse((f64::from_bits(e.0.0), f64::from_bits(e.0.1)))) {
            if end > time && self.demand + n_nodes <= self.index.peak_demand { break; }
            time = time.max(end);
            self.demand -= nodes;
            self.running.pop();
        }
        let delay = self.index.jobs().specs()[0].round(time - planned);
        self.time = planned + delay;
        self.gained += delay;
        self.running.push(Reverse(((self.time + run).to_bits(), n_nodes.to_bits())));
        self.demand += n_nodes;
        delay
    }

    /// The request and the status of a job, and its measurements, perturbed.
    fn request_and_outcome(&mut self, job: u32, interval: f64, shift: f64, columns: &mut [Vec<f64>]) {
        let index = self.index;
        let jobs = index.jobs();
        let copied = index.requested_features.iter().chain(&index.status_feature).chain(&index.user_feature);
        for feature in copied {
            columns[*feature].push(jobs.value(*feature, job as usize));
        }
        let group = nearest(index.jobs_like(job), f64::from(job), N_NEAREST_RUNS);
        let chosen = group.iter().position(|other| *other == job).unwrap_or_default();
        let limit = index.requested_time_feature.map(|at| jobs.value(at, job as usize));
        let values_of = |feature: usize| -> Vec<f64> {
            group.iter().map(|job| jobs.value(feature, *job as usize)).collect()
        };
        let mut stretch = 1.0;
        if let Some(feature) = index.run_time_feature {
            let similar = values_of(feature);
            let of = |feature: Option<usize>| feature.map_or(0.0, |feature| jobs.value(feature, job as usize));
            let (user, size) = (of(jobs.position(crate::schema::Role::User)), of(index.size_feature));
            let mut value = 0.0;
            let most = index.max_near_fraction * (self.n_sampled + 1) as f64;
            for attempt in 0..(en("AT", 8.0) as i32) {
                let spread = 1.5f64.powi(attempt);
                value = match limit.filter(|limit| *limit > 0.0) {
                    Some(limit) => self.perturbed_within(&similar, chosen, limit, shift, spread),
                    None => self.perturbed(&similar, chosen, shift, spread),
                };
                value = jobs.specs()[feature].round(value);
                let is_near = index.originals.have_near(CopiedPart::new(user, size, interval, value));
                if !is_near { break }
                if f64::from(self.n_near + 1) <= most { self.n_near += 1; break; }
                if attempt == en("AT", 8.0) as i32 - 1 { self.n_near += 1; }
            }
            stretch = if similar[chosen] > 0.0 { value / similar[chosen] } else { 1.0 };
            columns[feature].push(value);
        }
        for feature in &index.measured_features {
            let similar = values_of(*feature);
            let value = if index.scaling_features.contains(feature) {
                similar[chosen] * stretch
            } else {
                self.perturbed(&similar, chosen, 0.0, 1.0)
            };
            columns[*feature].push(jobs.specs()[*feature].round(value));
        }
    }

    /// A run time near the chosen one, on the same side of the limit.
    fn perturbed_within(&mut self, similar: &[f64], chosen: usize, limit: f64, shift: f64, spread: f64) -> f64 {
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
            return limit + self.perturbed(&excess, chosen, 0.0, spread);
        }
        let shift = if value < 0.9 * limit { shift } else { 0.0 };
        let perturbed = self.perturbed(&same_side, chosen, shift, spread);
        if perturbed > limit { value * value / perturbed } else { perturbed }
    }

    /// A value between the chosen one and its neighbour, plus noise; if it has no neighbour, the value plus noise.
    fn perturbed(&mut self, similar: &[f64], chosen: usize, shift: f64, spread: f64) -> f64 {
        let value = similar[chosen];
        if value.is_nan() || value <= 0.0 {
            return value;
        }
        let std_dev = log_std_dev(similar)
            .map_or(ISOLATED_STD_DEV, |std_dev| std_dev.clamp(MIN_GROUP_STD_DEV, MAX_GROUP_STD_DEV));
        let std_dev = std_dev * en("PE",0.5) * spread;
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
            None => ISOLATED_STD_DEV * spread * self.normal(),
        };
        value * (step + shift * std_dev).exp()
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
