//! Whether synthetic jobs are copies of real ones.

use std::collections::HashSet;

use rayon::prelude::*;
use serde::Serialize;
use workload::{Stop, Stopped};

use super::near::{CopiedPart, Originals, UserAndSize};
use crate::features::{FeatureKind, FeatureTable};

/// Consecutive jobs that are looked for in the real trace.
const N_CONSECUTIVE: usize = 3;
/// At most this many jobs are compared with all real ones.
const MAX_QUERIES: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Copies {
    /// The fraction of synthetic jobs that equal a real one in every feature.
    pub exact_fraction: f64,
    /// The fraction with the user and size of a real job, and an interval and run time within 2 %.
    pub near_fraction: f64,
    /// The fraction of three consecutive jobs that are also consecutive in the real trace.
    pub triple_fraction: f64,
    /// The median distance from a synthetic job to the closest real one.
    pub median_distance: f64,
    /// The median distance from a real job to the closest other real one.
    pub median_distance_within_real: f64,
}

impl Copies {
    /// Compares two traces with the same features.
    pub fn of(real: &FeatureTable, synthetic: &FeatureTable, stop: &Stop) -> Result<Self, Stopped> {
        let scale = Scale::of(real);
        Ok(Self {
            exact_fraction: exact_fraction(real, synthetic),
            near_fraction: Originals::new(&CopiedPart::all(real)).fraction_near(&CopiedPart::all(synthetic)),
            triple_fraction: triple_fraction(real, synthetic),
            median_distance: scale.median_distance(real, synthetic, false, stop)?,
            median_distance_within_real: scale.median_distance(real, real, true, stop)?,
        })
    }
}

fn fraction(n_found: usize, n_all: usize) -> f64 {
    n_found as f64 / n_all.max(1) as f64
}

fn triple_fraction(real: &FeatureTable, synthetic: &FeatureTable) -> f64 {
    let rows = |jobs: &FeatureTable| -> Vec<(UserAndSize, i64, i64)> {
        let seconds =
            |job: &CopiedPart| (job.user_and_size, job.interval.round() as i64, job.run_time.round() as i64);
        CopiedPart::all(jobs).iter().map(seconds).collect()
    };
    let (real, synthetic) = (rows(real), rows(synthetic));
    let known: HashSet<&[(UserAndSize, i64, i64)]> = real.windows(N_CONSECUTIVE).collect();
    let n_found = synthetic.windows(N_CONSECUTIVE).filter(|triple| known.contains(triple)).count();
    fraction(n_found, synthetic.len().saturating_sub(N_CONSECUTIVE - 1))
}

fn exact_fraction(real: &FeatureTable, synthetic: &FeatureTable) -> f64 {
    let row = |jobs: &FeatureTable, job: usize| -> Vec<u64> {
        jobs.columns().iter().map(|values| values[job].to_bits()).collect()
    };
    let known: HashSet<Vec<u64>> = (0..real.n_jobs()).map(|job| row(real, job)).collect();
    let n_found = (0..synthetic.n_jobs()).filter(|job| known.contains(&row(synthetic, *job))).count();
    fraction(n_found, synthetic.n_jobs())
}

/// The distance between jobs: logarithms of numbers in standard deviations of the real trace, 1 for other categories.
struct Scale {
    /// By feature; none for categories.
    std_devs: Vec<Option<f64>>,
}

impl Scale {
    fn of(real: &FeatureTable) -> Self {
        let std_dev = |at: usize| match real.specs()[at].kind {
            FeatureKind::Category { .. } => None,
            FeatureKind::Number { .. } => {
                let known = real.column(at).iter().filter(|value| !value.is_nan());
                let logs: Vec<f64> = known.map(|value| signed_log(*value)).collect();
                Some(learn::stats::std_dev(&logs).max(1e-9))
            }
        };
        Self { std_devs: (0..real.specs().len()).map(std_dev).collect() }
    }

    fn points(&self, jobs: &FeatureTable) -> Vec<Vec<f32>> {
        let value = |at: usize, job: usize| match self.std_devs[at] {
            Some(std_dev) => (signed_log(jobs.value(at, job)) / std_dev) as f32,
            None => jobs.value(at, job) as f32,
        };
        (0..jobs.n_jobs()).map(|job| (0..self.std_devs.len()).map(|at| value(at, job)).collect()).collect()
    }

    /// `is_same` leaves each job out of its own search.
    fn median_distance(
        &self,
        real: &FeatureTable,
        queries: &FeatureTable,
        is_same: bool,
        stop: &Stop,
    ) -> Result<f64, Stopped> {
        let known = self.points(real);
        let step = queries.n_jobs().div_ceil(MAX_QUERIES).max(1);
        let queries: Vec<(usize, Vec<f32>)> =
            self.points(queries).into_iter().enumerate().step_by(step).collect();
        let closest = |(index, point): &(usize, Vec<f32>)| {
            stop.check()?;
            let others = known.iter().enumerate().filter(|(other, _)| !is_same || other != index);
            let squared = others.map(|(_, other)| self.squared_distance(point, other));
            Ok(f64::from(squared.fold(f32::MAX, f32::min)).sqrt())
        };
        let closest: Result<Vec<f64>, Stopped> = queries.par_iter().map(closest).collect();
        Ok(learn::stats::median(closest?))
    }

    /// Unknown values do not count.
    fn squared_distance(&self, one: &[f32], other: &[f32]) -> f32 {
        let mut sum = 0.0;
        for ((one, other), std_dev) in one.iter().zip(other).zip(&self.std_devs) {
            let squared = match std_dev {
                Some(_) => (one - other).powi(2),
                None => f32::from(u8::from(one != other)),
            };
            if !squared.is_nan() {
                sum += squared;
            }
        }
        sum
    }
}

fn signed_log(value: f64) -> f64 {
    value.signum() * value.abs().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::FeatureSpec;
    use crate::format::Format;
    use crate::schema::Role;

    fn jobs(intervals: &[f64], runs: &[f64]) -> FeatureTable {
        let number = || FeatureKind::Number { format: Format::Plain { decimals: 2 } };
        let spec = |name: &str, role| FeatureSpec { name: name.into(), role: Some(role), kind: number() };
        let specs = vec![spec("interval", Role::Interval), spec("run", Role::RunTime)];
        FeatureTable::new(specs, vec![intervals.to_vec(), runs.to_vec()]).unwrap()
    }

    #[test]
    fn a_near_copy_is_near_in_interval_and_run_time() {
        let real = jobs(&[10.0, 100.0, 0.0, 7.0], &[60.0, 600.0, 5.0, 9.0]);
        let synthetic = jobs(&[10.1, 101.0, 0.0, 12.0], &[60.5, 900.0, 5.0, 9.0]);
        let copies = |synthetic: &FeatureTable| Copies::of(&real, synthetic, &Stop::default()).unwrap();
        let found = copies(&synthetic);
        assert_eq!((found.near_fraction, found.exact_fraction, found.triple_fraction), (0.5, 0.25, 0.0));
        let same = copies(&real);
        assert_eq!((same.near_fraction, same.exact_fraction, same.triple_fraction), (1.0, 1.0, 1.0));
        assert!(same.median_distance == 0.0 && same.median_distance_within_real > 0.0);
    }

    #[test]
    fn the_search_stops_on_request() {
        let real = jobs(&[1.0, 2.0], &[3.0, 4.0]);
        let stop = Stop::default();
        stop.now();
        assert_eq!(Copies::of(&real, &real, &stop), Err(Stopped));
    }
}
