//! Fidelity of the sequence of jobs, which tables of independent rows do not have.

use serde::Serialize;

use super::load::{DAY_SECONDS, HOUR_SECONDS};
use crate::features::{FeatureTable, arrivals_of};
use crate::schema::Role;

const LAGS: [usize; 3] = [1, 10, 100];
/// Jobs at the start of a trace that dispersion leaves out: traces often begin with a few jobs from before, then a gap.
const N_DROPPED: usize = 200;
/// Arrivals are not counted in traces of more bins: gaps in such traces are errors, and counting
/// takes too much memory.
pub(super) const MAX_BINS: usize = 10_000_000;

/// One figure of the real trace and of the synthetic one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    pub real: f64,
    pub synthetic: f64,
}

impl Figure {
    fn of(real: &FeatureTable, synthetic: &FeatureTable, figure: impl Fn(&FeatureTable) -> f64) -> Self {
        Self { real: figure(real), synthetic: figure(synthetic) }
    }

    pub fn difference(self) -> f64 {
        (self.real - self.synthetic).abs()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Autocorrelation {
    pub name: String,
    pub lag: usize,
    #[serde(flatten)]
    pub figure: Figure,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SequenceFidelity {
    /// Of logarithms.
    pub autocorrelation: Vec<Autocorrelation>,
    /// The variance of arrivals per hour divided by their mean; 1 for independent arrivals.
    pub hourly_dispersion: Figure,
    /// The variance of arrivals per day divided by their mean.
    pub daily_dispersion: Figure,
    /// One minus the total variation distance of arrivals by hour of the day.
    pub daily_profile: f64,
    /// One minus the total variation distance of arrivals by day of the week.
    pub weekly_profile: f64,
    /// The fraction of jobs that have the user of the previous job.
    pub same_user: Option<Figure>,
}

/// The features whose autocorrelation is compared.
const AUTOCORRELATED: [Role; 3] = [Role::Interval, Role::RunTime, Role::Cores];

impl SequenceFidelity {
    /// Compares two traces with the same features.
    pub fn of(real: &FeatureTable, synthetic: &FeatureTable) -> Self {
        let mut autocorrelations = Vec::new();
        for at in AUTOCORRELATED.iter().filter_map(|role| real.position(*role)) {
            for lag in LAGS.into_iter().filter(|lag| *lag < real.n_jobs().min(synthetic.n_jobs())) {
                let figure = Figure::of(real, synthetic, |jobs| autocorrelation(jobs.column(at), lag));
                let name = real.specs()[at].name.clone();
                autocorrelations.push(Autocorrelation { name, lag, figure });
            }
        }
        let user = real.position(Role::User);
        Self {
            autocorrelation: autocorrelations,
            hourly_dispersion: Figure::of(real, synthetic, |jobs| dispersion(jobs, HOUR_SECONDS)),
            daily_dispersion: Figure::of(real, synthetic, |jobs| dispersion(jobs, DAY_SECONDS)),
            daily_profile: profile_similarity(real, synthetic, HOUR_SECONDS, 24),
            weekly_profile: profile_similarity(real, synthetic, DAY_SECONDS, 7),
            same_user: user.map(|at| Figure::of(real, synthetic, |jobs| repeated(jobs.column(at)))),
        }
    }
}

/// The fraction of values that equal the one before.
fn repeated(values: &[f64]) -> f64 {
    let n_same = values.windows(2).filter(|pair| pair[0] == pair[1]).count();
    n_same as f64 / values.len().saturating_sub(1).max(1) as f64
}

/// The autocorrelation of the logarithm of values.
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

/// The variance of arrivals per bin of `width` seconds divided by their mean.
fn dispersion(jobs: &FeatureTable, width: f64) -> f64 {
    let n_dropped = if jobs.n_jobs() > 5 * N_DROPPED { N_DROPPED } else { 0 };
    let arrivals = arrivals_of(&jobs.intervals()[n_dropped..]);
    let n_bins = arrivals.last().map_or(0, |last| (last / width) as usize + 1);
    if n_bins < 2 {
        return 1.0;
    }
    if n_bins > MAX_BINS {
        return f64::from(u32::MAX);
    }
    let mut counts = vec![0.0; n_bins];
    for time in &arrivals {
        counts[(time / width) as usize] += 1.0;
    }
    learn::stats::std_dev(&counts).powi(2) / learn::stats::mean(&counts)
}

/// The fraction of arrivals in each of `n_bins` bins of `width` seconds, which repeat. Both traces start in the first bin.
pub fn profile(jobs: &FeatureTable, width: f64, n_bins: usize) -> Vec<f64> {
    let arrivals = jobs.arrivals();
    let mut fractions = vec![0.0; n_bins];
    for time in &arrivals {
        fractions[(time / width) as usize % n_bins] += 1.0 / arrivals.len() as f64;
    }
    fractions
}

fn profile_similarity(real: &FeatureTable, synthetic: &FeatureTable, width: f64, n_bins: usize) -> f64 {
    let pairs = profile(real, width, n_bins).into_iter().zip(profile(synthetic, width, n_bins));
    1.0 - 0.5 * pairs.map(|(real, synthetic)| (real - synthetic).abs()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{FeatureKind, FeatureSpec};
    use crate::format::Format;

    fn trace(intervals: Vec<f64>, users: Vec<f64>) -> FeatureTable {
        let number = FeatureKind::Number { format: Format::Plain { decimals: 0 } };
        let names = (0..10).map(|user| user.to_string()).collect();
        let spec = |name: &str, role, kind| FeatureSpec { name: name.into(), role: Some(role), kind };
        let specs = vec![
            spec("interval", Role::Interval, number),
            spec("user", Role::User, FeatureKind::Category { names }),
        ];
        FeatureTable::new(specs, vec![intervals, users]).unwrap()
    }

    #[test]
    fn autocorrelation_is_that_of_logarithms() {
        let alternating: Vec<f64> = (0..1_000).map(|job| if job % 2 == 0 { 1.0 } else { 100.0 }).collect();
        assert!((autocorrelation(&alternating, 1) + 1.0).abs() < 0.01);
        assert!((autocorrelation(&alternating, 2) - 1.0).abs() < 0.01);
        assert_eq!(autocorrelation(&[5.0; 20], 1), 0.0, "a constant has none");
        let with_gap = [1.0, 100.0, f64::NAN, 100.0, 1.0, 100.0];
        assert!(autocorrelation(&with_gap, 1).is_finite());
    }

    #[test]
    fn bursts_have_more_dispersion_than_regular_arrivals() {
        let regular = trace(vec![600.0; 900], vec![0.0; 900]);
        let bursts = (0..900).map(|job| if job % 30 == 0 { 18_000.0 } else { 0.0 }).collect();
        let bursts = trace(bursts, vec![0.0; 900]);
        let found = SequenceFidelity::of(&regular, &bursts);
        assert!(found.hourly_dispersion.real < 0.1, "six jobs an hour, every hour");
        assert!(found.hourly_dispersion.synthetic > 20.0, "thirty jobs every five hours");
        assert!((found.daily_profile - SequenceFidelity::of(&bursts, &regular).daily_profile).abs() < 1e-12);
    }

    #[test]
    fn identical_traces_are_perfect_and_users_are_counted() {
        let jobs = trace(
            (0..500).map(|job| f64::from(job % 90)).collect(),
            (0..500).map(|job| f64::from(job / 5 % 4)).collect(),
        );
        let found = SequenceFidelity::of(&jobs, &jobs);
        assert!((found.daily_profile - 1.0).abs() < 1e-9 && (found.weekly_profile - 1.0).abs() < 1e-9);
        assert!(found.autocorrelation.iter().all(|one| one.figure.difference() == 0.0));
        assert_eq!(found.autocorrelation.len(), 3, "lags 1, 10 and 100 of the interval");
        assert!((found.same_user.unwrap().real - 400.0 / 499.0).abs() < 1e-12);
    }

    #[test]
    fn a_gap_of_centuries_does_not_take_all_memory() {
        let gap = trace(vec![0.0, 1e15, 1.0], vec![0.0; 3]);
        assert!(SequenceFidelity::of(&gap, &gap).hourly_dispersion.real > 1e6);
    }
}
