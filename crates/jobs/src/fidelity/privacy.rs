//! Whether jobs are copies of those that were learnt from.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;
use serde::Serialize;

use crate::features::{FeatureKind, Jobs};
use crate::schema::Role;

/// How much two numbers may differ to be the same, nearly.
const NEARLY: f64 = 0.02;
/// Consecutive jobs that make a stretch.
const STRETCH: usize = 3;
/// Jobs whose closest record is looked for.
const MOST_ASKED: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Privacy {
    /// The share of jobs that are those of the real trace, to the digit.
    pub exact_copies: f64,
    /// The share with the user and the size of a real job, its interval and its run time within 2 %.
    pub near_copies: f64,
    /// The share of three jobs in a row that the real trace has, too.
    pub stretch_copies: f64,
    /// The median distance of a job to the closest real one.
    pub closest_record: f64,
    /// The same for jobs of the real trace, and other real ones.
    pub closest_record_of_real: f64,
}

pub fn privacy(real: &Jobs, made: &Jobs) -> Privacy {
    let scaled = Scaled::new(real);
    Privacy {
        exact_copies: exact_copies(real, made),
        near_copies: near_copies(real, made),
        stretch_copies: stretch_copies(real, made),
        closest_record: scaled.median_distance(real, made, false),
        closest_record_of_real: scaled.median_distance(real, real, true),
    }
}

fn share(n_found: usize, n_asked: usize) -> f64 {
    n_found as f64 / n_asked.max(1) as f64
}

fn size_of(jobs: &Jobs) -> Option<&[f64]> {
    jobs.with_role(Role::Nodes).or_else(|| jobs.with_role(Role::Cores))
}

/// What jobs of the same kind have in common.
fn keys(jobs: &Jobs) -> Vec<(u64, u64)> {
    let bits = |values: Option<&[f64]>, job: usize| values.map_or(0, |values| values[job].to_bits());
    let (users, sizes) = (jobs.with_role(Role::User), size_of(jobs));
    (0..jobs.len()).map(|job| (bits(users, job), bits(sizes, job))).collect()
}

/// The share of jobs made that nearly are one that was learnt from.
pub fn near_copies(learnt: &Jobs, made: &Jobs) -> f64 {
    let zeros = |jobs: &Jobs| vec![0.0; jobs.len()];
    let runs = |jobs: &Jobs| jobs.with_role(Role::RunTime).map_or_else(|| zeros(jobs), <[f64]>::to_vec);
    let mut groups: HashMap<(u64, u64), Vec<(f64, f64)>> = HashMap::new();
    for ((key, interval), run) in keys(learnt).into_iter().zip(learnt.intervals()).zip(runs(learnt)) {
        groups.entry(key).or_default().push((*interval, run));
    }
    groups.par_iter_mut().for_each(|(_, group)| group.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let is_near = |one: f64, other: f64| (one - other).abs() <= NEARLY * one.abs();
    let asked: Vec<((u64, u64), f64, f64)> = keys(made)
        .into_iter()
        .zip(made.intervals())
        .zip(runs(made))
        .map(|((key, interval), run)| (key, *interval, run))
        .collect();
    let n_found = asked
        .par_iter()
        .filter(|(key, interval, run)| {
            groups.get(key).is_some_and(|group| {
                let first = group.partition_point(|one| one.0 < interval / (1.0 + NEARLY) - 1e-9);
                let near = group[first..].iter().take_while(|one| one.0 <= interval / (1.0 - NEARLY) + 1e-9);
                near.into_iter().any(|one| is_near(one.0, *interval) && is_near(one.1, *run))
            })
        })
        .count();
    share(n_found, made.len())
}

/// The share of three jobs in a row, made, that are in a row in what was learnt from.
pub fn stretch_copies(learnt: &Jobs, made: &Jobs) -> f64 {
    let rows = |jobs: &Jobs| -> Vec<(u64, u64, i64, i64)> {
        let runs = jobs.with_role(Role::RunTime);
        let run = |job: usize| runs.map_or(0, |runs| runs[job].round() as i64);
        let keys = keys(jobs).into_iter().zip(jobs.intervals()).enumerate();
        keys.map(|(job, ((user, size), interval))| (user, size, interval.round() as i64, run(job))).collect()
    };
    let (learnt, made) = (rows(learnt), rows(made));
    let known: HashSet<&[(u64, u64, i64, i64)]> = learnt.windows(STRETCH).collect();
    share(
        made.windows(STRETCH).filter(|stretch| known.contains(stretch)).count(),
        made.len().saturating_sub(2),
    )
}

fn exact_copies(learnt: &Jobs, made: &Jobs) -> f64 {
    let row = |jobs: &Jobs, job: usize| -> Vec<u64> {
        jobs.values.iter().map(|values| values[job].to_bits()).collect()
    };
    let known: HashSet<Vec<u64>> = (0..learnt.len()).map(|job| row(learnt, job)).collect();
    share((0..made.len()).filter(|job| known.contains(&row(made, *job))).count(), made.len())
}

/// Features on scales of their own.
struct Scaled {
    /// How wide the logarithms of each number are; nothing for categories.
    widths: Vec<Option<f64>>,
}

impl Scaled {
    fn new(real: &Jobs) -> Self {
        let width = |(spec, values): (&crate::features::FeatureSpec, &Vec<f64>)| match spec.kind {
            FeatureKind::Category { .. } => None,
            FeatureKind::Number { .. } => {
                let logs: Vec<f64> =
                    values.iter().filter(|value| !value.is_nan()).map(|value| log(*value)).collect();
                Some(learn::stats::std_dev(&logs).max(1e-9))
            }
        };
        Self { widths: real.specs.iter().zip(&real.values).map(width).collect() }
    }

    fn points(&self, jobs: &Jobs) -> Vec<Vec<f32>> {
        let value = |at: usize, job: usize| match self.widths[at] {
            Some(width) => (log(jobs.values[at][job]) / width) as f32,
            None => jobs.values[at][job] as f32,
        };
        (0..jobs.len()).map(|job| (0..self.widths.len()).map(|at| value(at, job)).collect()).collect()
    }

    fn median_distance(&self, real: &Jobs, made: &Jobs, is_same: bool) -> f64 {
        let known = self.points(real);
        let every = made.len().div_ceil(MOST_ASKED).max(1);
        let asked: Vec<(usize, Vec<f32>)> =
            self.points(made).into_iter().enumerate().step_by(every).collect();
        let closest = asked.par_iter().map(|(index, point)| {
            let others = known.iter().enumerate().filter(|(other, _)| !is_same || other != index);
            let least = others.map(|(_, other)| self.distance(point, other)).fold(f32::MAX, f32::min);
            f64::from(least).sqrt()
        });
        learn::stats::median(closest.collect())
    }

    fn distance(&self, one: &[f32], other: &[f32]) -> f32 {
        let along = |((one, other), width): ((&f32, &f32), &Option<f64>)| match width {
            Some(_) => (one - other).powi(2),
            None => f32::from(u8::from(one != other)),
        };
        let apart = one.iter().zip(other).zip(&self.widths).map(along);
        apart.filter(|apart| !apart.is_nan()).sum()
    }
}

fn log(value: f64) -> f64 {
    value.signum() * value.abs().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::FeatureSpec;
    use crate::format::Format;

    fn jobs(intervals: &[f64], runs: &[f64]) -> Jobs {
        let number = || FeatureKind::Number { format: Format::Plain { decimals: 2 } };
        let spec = |name: &str, role| FeatureSpec { name: name.into(), role: Some(role), kind: number() };
        Jobs {
            specs: vec![spec("interval", Role::Interval), spec("run", Role::RunTime)],
            values: vec![intervals.to_vec(), runs.to_vec()],
        }
    }

    #[test]
    fn a_copy_is_near_in_both_numbers() {
        let learnt = jobs(&[10.0, 100.0, 0.0, 7.0], &[60.0, 600.0, 5.0, 9.0]);
        let made = jobs(&[10.1, 101.0, 0.0, 12.0], &[60.5, 900.0, 5.0, 9.0]);
        assert_eq!(near_copies(&learnt, &made), 0.5);
        assert_eq!(near_copies(&learnt, &learnt), 1.0);
        assert_eq!(exact_copies(&learnt, &made), 0.25);
        assert_eq!(stretch_copies(&learnt, &learnt), 1.0);
        assert_eq!(stretch_copies(&learnt, &made), 0.0);
        let found = privacy(&learnt, &learnt);
        assert!(found.closest_record == 0.0 && found.closest_record_of_real > 0.0);
    }
}
