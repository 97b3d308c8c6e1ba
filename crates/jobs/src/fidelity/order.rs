//! The order of jobs: what a table of independent rows loses.

use serde::Serialize;

use crate::features::{Jobs, arrivals_of};
use crate::schema::Role;

const LAGS: [usize; 3] = [1, 10, 100];
/// Traces often begin with jobs that were there before it: a long gap, then business as usual.
const N_DROPPED: usize = 200;
const HOUR: f64 = 3_600.0;
const DAY: f64 = 24.0 * HOUR;

/// The same of the real trace and of the synthetic one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Both {
    pub real: f64,
    pub synthetic: f64,
}

impl Both {
    fn of(real: &Jobs, made: &Jobs, figure: impl Fn(&Jobs) -> f64) -> Self {
        Self { real: figure(real), synthetic: figure(made) }
    }

    pub fn apart(self) -> f64 {
        (self.real - self.synthetic).abs()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Autocorrelation {
    pub name: String,
    pub lag: usize,
    #[serde(flatten)]
    pub both: Both,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Order {
    /// Of logarithms.
    pub autocorrelation: Vec<Autocorrelation>,
    /// The variance of the number of arrivals in an hour or a day, over its mean; one for independent arrivals.
    pub hourly_dispersion: Both,
    pub daily_dispersion: Both,
    /// One less the total variation distance of arrivals by hour of the day, and by day of the week.
    pub daily_profile: f64,
    pub weekly_profile: f64,
    /// How often a job is of the same user as the one before.
    pub same_user: Option<Both>,
}

/// The features whose order is looked at.
const LOOKED_AT: [Role; 3] = [Role::Interval, Role::RunTime, Role::Cores];

pub fn order(real: &Jobs, made: &Jobs) -> Order {
    let mut autocorrelations = Vec::new();
    for at in LOOKED_AT.iter().filter_map(|role| real.position(*role)) {
        for lag in LAGS.into_iter().filter(|lag| *lag < real.len().min(made.len())) {
            let both = Both::of(real, made, |jobs| autocorrelation(&jobs.values[at], lag));
            autocorrelations.push(Autocorrelation { name: real.specs[at].name.clone(), lag, both });
        }
    }
    let same_user = real.position(Role::User).map(|at| {
        Both::of(real, made, |jobs| {
            let users = &jobs.values[at];
            let n_same = users.windows(2).filter(|pair| pair[0] == pair[1]).count();
            n_same as f64 / users.len().saturating_sub(1).max(1) as f64
        })
    });
    Order {
        autocorrelation: autocorrelations,
        hourly_dispersion: Both::of(real, made, |jobs| dispersion(jobs, HOUR)),
        daily_dispersion: Both::of(real, made, |jobs| dispersion(jobs, DAY)),
        daily_profile: profiles_alike(real, made, HOUR, 24),
        weekly_profile: profiles_alike(real, made, DAY, 7),
        same_user,
    }
}

pub fn autocorrelation(values: &[f64], lag: usize) -> f64 {
    let logs: Vec<f64> =
        values.iter().map(|value| if value.is_nan() { 0.0 } else { value.max(0.0).ln_1p() }).collect();
    let mean = learn::stats::mean(&logs);
    let off: Vec<f64> = logs.iter().map(|log| log - mean).collect();
    let power: f64 = off.iter().map(|off| off * off).sum();
    if power == 0.0 {
        return 0.0;
    }
    off.iter().zip(&off[lag..]).map(|(one, other)| one * other).sum::<f64>() / power
}

/// When jobs came, without the first.
fn arrivals(jobs: &Jobs) -> Vec<f64> {
    let n_dropped = if jobs.len() > 5 * N_DROPPED { N_DROPPED } else { 0 };
    arrivals_of(&jobs.intervals()[n_dropped..])
}

/// A trace longer than this many hours has gaps that are mistakes, and no memory for them.
const MOST_BINS: usize = 10_000_000;

pub fn dispersion(jobs: &Jobs, width: f64) -> f64 {
    let arrivals = arrivals(jobs);
    let n_bins = arrivals.last().map_or(0, |last| (last / width) as usize + 1);
    if n_bins < 2 {
        return 1.0;
    }
    if n_bins > MOST_BINS {
        return f64::from(u32::MAX);
    }
    let mut counts = vec![0.0; n_bins];
    arrivals.iter().for_each(|time| counts[(time / width) as usize] += 1.0);
    learn::stats::std_dev(&counts).powi(2) / learn::stats::mean(&counts)
}

/// The share of arrivals in each of `n_bins` stretches of `width` that come round again.
pub fn profile(jobs: &Jobs, width: f64, n_bins: usize) -> Vec<f64> {
    // From the first job on, since it is when the clock of either trace begins.
    let times = jobs.arrivals();
    let mut shares = vec![0.0; n_bins];
    for time in &times {
        shares[(time / width) as usize % n_bins] += 1.0 / times.len() as f64;
    }
    shares
}

fn profiles_alike(real: &Jobs, made: &Jobs, width: f64, n_bins: usize) -> f64 {
    let pairs = profile(real, width, n_bins).into_iter().zip(profile(made, width, n_bins));
    1.0 - 0.5 * pairs.map(|(real, made)| (real - made).abs()).sum::<f64>()
}
