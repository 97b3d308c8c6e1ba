//! The curves by which people compare traces: distributions of columns, autocorrelation, and the cycle of the day and of
//! the week.

use serde::Serialize;

use super::load::{DAY_SECONDS, HOUR_SECONDS};
use super::sequence::{autocorrelation, profile};
use crate::features::FeatureTable;
use crate::schema::Role;

const MAX_POINTS: usize = 400;
const MAX_LAG: usize = 100;

type Points = Vec<(f64, f64)>;

/// One curve of a trace, or of two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    pub name: String,
    pub real: Points,
    pub synthetic: Option<Points>,
}

/// The curves of a trace, or of two.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curves {
    /// Of each number: the fraction of jobs up to a value.
    pub distributions: Vec<Curve>,
    /// Of logarithms, by lag.
    pub autocorrelations: Vec<Curve>,
    /// The fraction of jobs by hour since the first job, modulo a day.
    pub day: Curve,
    /// The fraction of jobs by day since the first job, modulo a week.
    pub week: Curve,
}

impl Curves {
    pub fn new(real: &FeatureTable, synthetic: Option<&FeatureTable>) -> Self {
        let cycle = |name: &str, width: f64, n_bins: usize| {
            let points = |jobs: &FeatureTable| -> Points {
                let fractions = profile(jobs, width, n_bins).into_iter().enumerate();
                fractions.map(|(bin, fraction)| (bin as f64, fraction)).collect()
            };
            Curve { name: name.into(), real: points(real), synthetic: synthetic.map(points) }
        };
        Self {
            distributions: distributions(real, synthetic),
            autocorrelations: [Role::Interval, Role::RunTime]
                .into_iter()
                .filter_map(|role| autocorrelations(role, real, synthetic))
                .collect(),
            day: cycle("day", HOUR_SECONDS, 24),
            week: cycle("week", DAY_SECONDS, 7),
        }
    }
}

fn distributions(real: &FeatureTable, synthetic: Option<&FeatureTable>) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (at, spec) in real.specs().iter().enumerate().filter(|(_, spec)| !spec.is_category()) {
        let of_synthetic = synthetic.map(|other| {
            let place = other.specs().iter().position(|one| one.name == spec.name);
            place.map_or(Vec::new(), |place| distribution(other.column(place)))
        });
        let real = distribution(real.column(at));
        curves.push(Curve { name: spec.name.clone(), real, synthetic: of_synthetic });
    }
    curves
}

fn autocorrelations(role: Role, real: &FeatureTable, synthetic: Option<&FeatureTable>) -> Option<Curve> {
    let points = |jobs: &FeatureTable| -> Option<Points> {
        let values = jobs.with_role(role)?;
        let max_lag = MAX_LAG.min(values.len() / 2);
        Some((1..=max_lag).map(|lag| (lag as f64, autocorrelation(values, lag))).collect())
    };
    Some(Curve { name: role.name().into(), real: points(real)?, synthetic: synthetic.and_then(points) })
}

/// Points of a distribution function. Values below one are drawn at one, since the axis is logarithmic.
fn distribution(values: &[f64]) -> Points {
    let mut known: Vec<f64> =
        values.iter().copied().filter(|value| !value.is_nan()).map(|value| value.max(1.0)).collect();
    known.sort_by(f64::total_cmp);
    let n_points = MAX_POINTS.min(known.len());
    (1..=n_points)
        .map(|point| {
            let at = (point * known.len()).div_ceil(n_points) - 1;
            (known[at], (at + 1) as f64 / known.len() as f64)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_to_one() {
        let points = distribution(&[5.0, f64::NAN, 0.0, 10.0, 5.0]);
        assert_eq!(points, [(1.0, 0.25), (5.0, 0.5), (5.0, 0.75), (10.0, 1.0)]);
        assert!(distribution(&[f64::NAN]).is_empty());
    }
}
