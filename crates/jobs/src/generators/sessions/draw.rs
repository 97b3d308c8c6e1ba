//! Drawing a trace, session by session.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use super::past::Past;

/// How far from the clock's time sessions are taken, in sessions.
const SESSION_REACH: f64 = 8.0;
/// How often another user is looked for, so that sessions end.
const MOST_TRIES: usize = 8;
/// Sessions of a user, nearest in time, that a length is one of.
const N_LENGTHS: usize = 5;
/// Jobs, nearest in time, that what is asked for and how it ends are taken from.
const N_JOBS: usize = 12;
/// Jobs, nearest in time, that run times are taken from, and those of them after the likeliest run time.
const N_RUNS: usize = 10;
const N_LIKELY_RUNS: usize = 4;
/// The same for intervals.
const N_INTERVALS: usize = 30;
const N_LIKELY_INTERVALS: usize = 6;
/// Sessions whose first intervals are looked at by the hour of the day.
const MOST_FIRSTS: usize = 1_000;
const DAY: f64 = 86_400.0;
/// Jobs around the clock's time that something new to a user is taken from.
const N_NEW: usize = 400;
/// Jobs that the clock may be ahead or behind before it is set right.
const SLACK: f64 = 60.0;
/// Values whose logarithms are nearer than this may be anything between.
const NEAR: f64 = 0.3;
/// How far a value may be blurred that has no other near, as a logarithm.
const ALONE: f64 = 0.15;
/// The same for intervals.
const OF_INTERVAL: f64 = 0.35;
/// How far values are blurred beyond their neighbours, and sessions from each other, in widths of their group.
const BLUR: f64 = 0.5;
/// The narrowest and the widest group that is blurred by its own width.
const NARROWEST: f64 = 0.005;
const WIDEST: f64 = 0.3;

/// Values of every feature.
pub fn draw(past: &Past, n_jobs: usize, seed: u64) -> Vec<Vec<f64>> {
    let n_laps = n_jobs.div_ceil(past.n_jobs()).max(1);
    let mut laps: Vec<Vec<Vec<f64>>> = (0..n_laps)
        .into_par_iter()
        .map(|lap| {
            let n_of_lap = n_jobs * (lap + 1) / n_laps - n_jobs * lap / n_laps;
            let seed = seed ^ (lap as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut values: Vec<Vec<f64>> =
                past.jobs.specs.iter().map(|_| Vec::with_capacity(n_of_lap)).collect();
            Lap::new(past, n_of_lap, seed).run(&mut values);
            values
        })
        .collect();
    // Laps begin at the same hour of the day.
    let mut time = 0.0;
    for (number, lap) in laps.iter_mut().enumerate() {
        if let Some(first) = lap[0].first_mut().filter(|_| number > 0) {
            *first = past.jobs.specs[0].round(DAY - time % DAY);
        }
        time += lap[0].iter().skip(usize::from(number == 0)).sum::<f64>();
    }
    (0..past.jobs.specs.len())
        .into_par_iter()
        .map(|feature| laps.iter().flat_map(|lap| lap[feature].iter().copied()).collect())
        .collect()
}

/// Once through the course of the past.
struct Lap<'a> {
    past: &'a Past,
    n_jobs: usize,
    rng: Xoshiro256PlusPlus,
    /// Where in the past it is, in sessions.
    clock: f64,
    n_made: usize,
    user_before: Option<u32>,
    interval_before: f64,
    /// Seconds since it began.
    time: f64,
    asked_before: HashMap<u32, u32>,
    run_before: HashMap<(u32, u32), f64>,
    nearest: Vec<u32>,
}

/// What the jobs of a session have in common.
struct Session {
    user: u32,
    length: u32,
    /// By how many widths its run times are off.
    shift: f64,
    /// Whose job it takes up that its user never had, and for how many jobs more.
    novel: Option<(u32, u32, u32)>,
}

impl<'a> Lap<'a> {
    fn new(past: &'a Past, n_jobs: usize, seed: u64) -> Self {
        Self {
            past,
            n_jobs,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            clock: 0.0,
            n_made: 0,
            user_before: None,
            interval_before: past.intervals_before.first().copied().unwrap_or_default(),
            time: 0.0,
            asked_before: HashMap::new(),
            run_before: HashMap::new(),
            nearest: Vec::new(),
        }
    }

    fn run(&mut self, values: &mut [Vec<f64>]) {
        while self.n_made < self.n_jobs {
            let mut session = self.session();
            for number in 0..session.length {
                if self.n_made == self.n_jobs {
                    break;
                }
                self.job(&mut session, number, values);
                self.n_made += 1;
            }
        }
    }

    /// How many jobs of the past go by with one that is made.
    fn speed(&self) -> f64 {
        self.past.n_jobs() as f64 / self.n_jobs as f64
    }

    /// The clock's time in jobs of the past.
    fn position(&self) -> f64 {
        let firsts = &self.past.firsts;
        let whole = (self.clock as usize).min(firsts.len() - 1);
        let next = firsts.get(whole + 1).map_or(self.past.n_jobs(), |first| *first as usize) as f64;
        let first = f64::from(firsts[whole]);
        (first + (self.clock - whole as f64).min(1.0) * (next - first)).min(self.past.n_jobs() as f64 - 1.0)
    }

    fn normal(&mut self) -> f64 {
        self.rng.sample(StandardNormal)
    }

    fn session(&mut self) -> Session {
        let past = self.past;
        let behind = self.n_made as f64 * self.speed() - self.position();
        self.clock += (1.0 + behind / SLACK).clamp(0.3, 3.0) * self.speed();
        let mut which = 0;
        for _ in 0..MOST_TRIES {
            let at = self.clock + SESSION_REACH * self.normal();
            which = (at.round().max(0.0) as usize).min(past.firsts.len() - 1);
            if Some(past.session_users[which]) != self.user_before || past.user.is_none() {
                break;
            }
        }
        let user = past.session_users[which];
        self.user_before = Some(user);
        let alike = self.pick(&past.sessions_of[&user], which as f64, N_LENGTHS);
        Session { user, length: past.lengths[alike as usize], shift: self.normal(), novel: None }
    }

    fn job(&mut self, session: &mut Session, number: u32, values: &mut [Vec<f64>]) {
        let past = self.past;
        let user = session.user;
        let at = (self.position() + f64::from(number)).min(past.n_jobs() as f64 - 1.0);
        values[0].push(self.interval(user, number == 0, at));
        let alike = match self.asked_before.get(&user).and_then(|before| past.after.get(&(user, *before))) {
            Some(after) => self.pick(after, at, N_JOBS),
            None => self.pick(&past.jobs_of[&user], at, N_JOBS),
        };
        let own = past.asks[alike as usize];
        self.asked_before.insert(user, own);
        let (owner, ask) = self.novelty(session, at).unwrap_or((user, own));
        let alike = self.pick(&past.asking[&(owner, ask)], at, N_JOBS);
        let status = past.statuses[alike as usize];
        for feature in &past.chosen {
            values[*feature].push(past.jobs.values[*feature][alike as usize]);
        }
        if let Some(feature) = past.status {
            values[feature].push(f64::from(status));
        }
        if let Some(feature) = past.user {
            values[feature].push(f64::from(user));
        }
        self.happen((owner, ask, status), session, at, values);
    }

    /// Whose job is taken up instead of one of the user's own, now and then, and for as long as new things last.
    fn novelty(&mut self, session: &mut Session, at: f64) -> Option<(u32, u32)> {
        let past = self.past;
        if session.novel.is_none() && self.rng.random::<f64>() < past.novelty {
            let first = (at as usize).saturating_sub(N_NEW / 2);
            let job = self.rng.random_range(first..(first + N_NEW).min(past.n_jobs()));
            let chance = 1.0 / past.novelty_length.max(1.0);
            let more = (self.rng.random::<f64>().max(1e-9).ln() / (1.0 - chance).max(1e-9).ln()) as u32;
            session.novel = Some((past.users[job], past.asks[job], more));
        }
        let (owner, ask, more) = session.novel?;
        session.novel = more.checked_sub(1).map(|more| (owner, ask, more));
        Some((owner, ask))
    }

    /// How long after the job before it comes: as intervals of its kind were that came after a like one.
    fn interval(&mut self, user: u32, is_first: bool, at: f64) -> f64 {
        let past = self.past;
        let inner = past.inner_of.get(&user).filter(|inner| !is_first && !inner.is_empty());
        let before = self.interval_before;
        match inner {
            Some(inner) => self.nearest_in_time(inner, at, N_INTERVALS),
            None => {
                self.nearest_in_time(
                    &past.firsts,
                    at,
                    past.n_of_two_days.clamp(2 * N_INTERVALS, MOST_FIRSTS),
                );
                let hour = (self.time / DAY).fract();
                self.keep(2 * N_INTERVALS, |job| {
                    let off = (past.hours[job as usize] - hour).abs();
                    off.min(1.0 - off)
                });
            }
        }
        self.keep(N_LIKELY_INTERVALS, |job| (past.intervals_before[job as usize] - before).abs());
        let alike = self.nearest[self.rng.random_range(0..self.nearest.len())];
        let interval = past.jobs.values[0][alike as usize];
        let is_kept = interval <= 0.0 || past.heaps.contains(&interval.to_bits());
        let blurred = if is_kept { interval } else { interval * (OF_INTERVAL * self.normal()).exp() };
        let blurred = past.jobs.specs[0].round(blurred);
        self.interval_before = blurred.max(0.0).ln_1p();
        self.time += blurred;
        blurred
    }

    /// What comes of a job: as it did for jobs that asked for the same and ended the same.
    fn happen(&mut self, key: (u32, u32, u32), session: &Session, at: f64, values: &mut [Vec<f64>]) {
        let past = self.past;
        let (_, ask, _) = key;
        let group = &past.ending[&key];
        let before = self.run_before.get(&(session.user, ask)).copied();
        let before =
            before.unwrap_or_else(|| past.runs_before[group[self.rng.random_range(0..group.len())] as usize]);
        self.nearest_in_time(group, at, N_RUNS);
        self.keep(N_LIKELY_RUNS, |job| (past.runs_before[job as usize] - before).abs());
        let nearest = std::mem::take(&mut self.nearest);
        let chosen = self.rng.random_range(0..nearest.len());
        let limit = past.requested_time.map(|at| past.jobs.values[at][nearest[chosen] as usize]);
        let alike_of = |feature: usize| -> Vec<f64> {
            nearest.iter().map(|job| past.jobs.values[feature][*job as usize]).collect()
        };
        let mut stretch = 1.0;
        if let Some(feature) = past.run_time {
            let alike = alike_of(feature);
            let value = match limit.filter(|limit| *limit > 0.0) {
                Some(limit) => self.blurred_about(&alike, chosen, limit, session.shift),
                None => self.blurred(&alike, chosen, session.shift),
            };
            let value = past.jobs.specs[feature].round(value);
            stretch = if alike[chosen] > 0.0 { value / alike[chosen] } else { 1.0 };
            self.run_before.insert((session.user, ask), value.max(0.0).ln_1p());
            values[feature].push(value);
        }
        for feature in &past.happening {
            let alike = alike_of(*feature);
            let value = if past.following.contains(feature) {
                alike[chosen] * stretch
            } else {
                self.blurred(&alike, chosen, 0.0)
            };
            values[*feature].push(past.jobs.specs[*feature].round(value));
        }
        self.nearest = nearest;
    }

    /// A value near one of several, on the side of the limit that it was on.
    fn blurred_about(&mut self, alike: &[f64], chosen: usize, limit: f64, shift: f64) -> f64 {
        let value = alike[chosen];
        if value.is_nan() {
            return value;
        }
        let is_over = value > limit;
        let same: Vec<f64> = alike.iter().copied().filter(|other| (*other > limit) == is_over).collect();
        let place = alike[..chosen].iter().filter(|other| (**other > limit) == is_over).count();
        if is_over {
            let over: Vec<f64> = same.iter().map(|value| value - limit).collect();
            return limit + self.blurred(&over, place, 0.0);
        }
        let shift = if value < 0.9 * limit { shift } else { 0.0 };
        let blurred = self.blurred(&same, place, shift);
        if blurred > limit { value * value / blurred } else { blurred }
    }

    /// A value between one and its neighbour among several; where it has none near, by itself.
    fn blurred(&mut self, alike: &[f64], chosen: usize, shift: f64) -> f64 {
        let value = alike[chosen];
        if value.is_nan() || value <= 0.0 {
            return value;
        }
        let width = width_of(alike).map_or(ALONE, |width| width.clamp(NARROWEST, WIDEST)) * BLUR;
        let is_up = self.rng.random::<bool>();
        let others = alike
            .iter()
            .enumerate()
            .filter(|(at, other)| *at != chosen && **other > 0.0)
            .map(|(_, other)| *other);
        let neighbour = if is_up {
            others.filter(|other| *other >= value).min_by(f64::total_cmp)
        } else {
            others.filter(|other| *other <= value).max_by(f64::total_cmp)
        };
        let step = match neighbour.map(|other| (other / value).ln()).filter(|step| step.abs() < NEAR) {
            Some(step) => self.rng.random::<f64>() * step + 0.5 * width * self.normal(),
            None => ALONE * self.normal(),
        };
        value * (step + shift * width).exp()
    }

    /// One of the members that are nearest in time.
    fn pick(&mut self, group: &[u32], at: f64, n_nearest: usize) -> u32 {
        let nearest = window(group, at, n_nearest);
        nearest[self.rng.random_range(0..nearest.len())]
    }

    /// The members nearest in time, into `nearest`.
    fn nearest_in_time(&mut self, group: &[u32], at: f64, n_nearest: usize) {
        self.nearest.clear();
        self.nearest.extend_from_slice(window(group, at, n_nearest));
    }

    /// Keeps those of `nearest` that are least off.
    fn keep(&mut self, n_kept: usize, off: impl Fn(u32) -> f64) {
        if self.nearest.len() > n_kept {
            self.nearest
                .select_nth_unstable_by(n_kept - 1, |a, b| off(*a).total_cmp(&off(*b)).then(a.cmp(b)));
            self.nearest.truncate(n_kept);
            self.nearest.sort_unstable();
        }
    }
}

fn window(group: &[u32], at: f64, n_nearest: usize) -> &[u32] {
    let place = group.partition_point(|member| f64::from(*member) < at);
    let first = place.saturating_sub(n_nearest / 2).min(group.len().saturating_sub(n_nearest));
    &group[first..(first + n_nearest).min(group.len())]
}

/// The standard deviation of logarithms, where there are several.
fn width_of(values: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
    (logs.len() > 1).then(|| learn::stats::std_dev(&logs))
}
