//! The encoding of one feature.

use std::collections::BTreeMap;

use learn::artifact::restore::{RestoreError, ensure};
use learn::bayesian_mixture::{MixtureComponent, fit_components};
use rand::RngExt;
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::transform::{Transform, TransformKind};
use crate::features::FeatureSpec;
use crate::generators::output::sample_index;

/// The position within a mode is in units of this many standard deviations.
const SCALE: f64 = 4.0;
/// Numbers with at most this many different values are one-hot.
const MAX_ONE_HOT_VALUES: usize = 60;
/// Categories with at most this many names are one-hot; others become numbers.
const MAX_ONE_HOT_NAMES: usize = 256;
/// Values of at least this fraction of jobs are modes of their own.
const MIN_FREQUENT_FRACTION: f64 = 0.003;
const MAX_FREQUENT: usize = 80;
/// Numbers with fewer different values than this fraction of jobs only ever take those values.
pub const MAX_DISTINCT_FRACTION: f64 = 0.1;
/// Positions are clipped to this.
const MAX_POSITION: f64 = 0.99;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ColumnEncoding {
    /// A position, followed by a one-hot vector of frequent values, modes, and "unknown".
    Number {
        transform: Transform,
        frequent_values: Vec<f64>,
        modes: Vec<MixtureComponent>,
        has_missing: bool,
        /// All values in order, if there are few; empty otherwise.
        distinct_values: Vec<f64>,
    },
    /// A one-hot vector of values, and of "unknown" if there is one more fraction than values.
    OneHot { values: Vec<f64>, fractions: Vec<f64>, is_condition: bool },
}

impl ColumnEncoding {
    pub fn fit(
        spec: &FeatureSpec,
        values: &[f64],
        transform: TransformKind,
        max_modes: usize,
        seed: u64,
    ) -> Self {
        let mut counts: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for value in values {
            counts.entry(value.to_bits()).or_insert((*value, 0)).1 += 1;
        }
        let fraction = |count: usize| count as f64 / values.len() as f64;
        if counts.len() <= if spec.is_category() { MAX_ONE_HOT_NAMES } else { MAX_ONE_HOT_VALUES } {
            let mut counts: Vec<(f64, usize)> = counts.into_values().collect();
            // "Unknown" comes last.
            counts.sort_by(|a, b| a.0.is_nan().cmp(&b.0.is_nan()).then(a.0.total_cmp(&b.0)));
            return Self::OneHot {
                values: counts.iter().map(|(value, _)| *value).filter(|value| !value.is_nan()).collect(),
                fractions: counts.iter().map(|(_, count)| fraction(*count)).collect(),
                is_condition: spec.is_category(),
            };
        }
        let known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        let transform =
            if spec.is_category() { Transform::intervals(&known) } else { Transform::fit(&known, transform) };
        let is_frequent = |(value, count): &(f64, usize)| {
            !spec.is_category() && !value.is_nan() && fraction(*count) >= MIN_FREQUENT_FRACTION
        };
        let mut frequent: Vec<(f64, usize)> = counts.values().copied().filter(is_frequent).collect();
        frequent.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.total_cmp(&b.0)));
        frequent.truncate(if max_modes > 1 { MAX_FREQUENT } else { 0 });
        let frequent_values: Vec<f64> = frequent.into_iter().map(|(value, _)| value).collect();
        let is_few =
            !spec.is_category() && (counts.len() as f64) < MAX_DISTINCT_FRACTION * values.len() as f64;
        let mut distinct_values: Vec<f64> = if is_few {
            counts.into_values().map(|(value, _)| value).filter(|value| !value.is_nan()).collect()
        } else {
            Vec::new()
        };
        distinct_values.sort_by(f64::total_cmp);
        let rest = known.iter().filter(|value| !frequent_values.contains(value));
        let transformed: Vec<f64> = rest.map(|value| transform.apply(*value, 0.5)).collect();
        let has_missing = known.len() < values.len();
        let modes = fit_components(&transformed, max_modes, seed);
        Self::Number { transform, frequent_values, modes, has_missing, distinct_values }
    }

    /// Checks an encoding that was read from a file: all values that it decodes to have to fit the feature.
    pub fn check(&self, spec: &FeatureSpec) -> Result<(), RestoreError> {
        match self {
            Self::Number { transform, frequent_values, modes, distinct_values, .. } => {
                transform.check()?;
                ensure(self.len() > 1, "a number has no modes")?;
                let is_mode = |mode: &MixtureComponent| mode.std_dev > 0.0 && mode.weight >= 0.0;
                ensure(modes.iter().all(is_mode), "a mode has no weight or standard deviation")?;
                ensure(distinct_values.is_sorted(), "the values of a number are not in order")?;
                spec.check_values(frequent_values)?;
                spec.check_values(distinct_values)?;
                match transform {
                    Transform::Intervals { values, .. } => spec.check_values(values),
                    _ => ensure(!spec.is_category(), "a category of many names has no intervals"),
                }
            }
            Self::OneHot { values, fractions, is_condition } => {
                ensure(is_distribution(fractions), "the fractions of values are not a distribution")?;
                let n_unknown = fractions.len().checked_sub(values.len());
                ensure(matches!(n_unknown, Some(0 | 1)), "values and their fractions do not match")?;
                ensure(*is_condition == spec.is_category(), "conditions and categories do not match")?;
                spec.check_values(values)
            }
        }
    }

    /// Numbers in the encoded column.
    pub fn len(&self) -> usize {
        match self {
            Self::Number { frequent_values, modes, has_missing, .. } => {
                1 + frequent_values.len() + modes.len() + usize::from(*has_missing)
            }
            Self::OneHot { fractions, .. } => fractions.len(),
        }
    }

    /// Writes a value to the start of `row`, which is zero, and returns the number of positions it takes.
    pub fn encode(&self, value: f64, row: &mut [f32], rng: &mut Xoshiro256PlusPlus) -> usize {
        match self {
            Self::Number { .. } if value.is_nan() => row[self.len() - 1] = 1.0,
            Self::Number { transform, frequent_values, modes, .. } => {
                if let Some(at) = frequent_values.iter().position(|frequent| *frequent == value) {
                    row[1 + at] = 1.0;
                    return self.len();
                }
                let transformed = transform.apply(value, rng.random());
                let densities: Vec<f64> =
                    modes.iter().map(|mode| mode.density(transformed) + 1e-300).collect();
                let mut left = rng.random::<f64>() * densities.iter().sum::<f64>();
                let mut mode = 0;
                while mode + 1 < modes.len() && left > densities[mode] {
                    left -= densities[mode];
                    mode += 1;
                }
                let position = (transformed - modes[mode].mean) / (SCALE * modes[mode].std_dev);
                row[0] = position.clamp(-MAX_POSITION, MAX_POSITION) as f32;
                row[1 + frequent_values.len() + mode] = 1.0;
            }
            Self::OneHot { .. } => row[self.one_hot_position(value)] = 1.0,
        }
        self.len()
    }

    /// The position of a value in a one-hot column; other columns have none, and the first is returned.
    pub fn one_hot_position(&self, value: f64) -> usize {
        match self {
            Self::OneHot { values, fractions, .. } => {
                values.iter().position(|known| *known == value).unwrap_or(fractions.len() - 1)
            }
            Self::Number { .. } => 0,
        }
    }

    /// The value at the start of `row`.
    pub fn decode(&self, row: &[f32]) -> f64 {
        match self {
            Self::Number { .. } => self.value(row[0], hot_position(&row[1..self.len()])),
            Self::OneHot { fractions, .. } => self.value(0.0, hot_position(&row[..fractions.len()])),
        }
    }

    /// Samples a value from the raw output of a network at the start of `row`, which is overwritten. A normal number with
    /// the standard deviation is added to the position within a mode.
    pub fn sample(&self, row: &mut [f32], std_dev: f32, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let first = usize::from(matches!(self, Self::Number { .. }));
        let which = sample_index(&mut row[first..self.len()], rng);
        let is_exact = match self {
            Self::Number { frequent_values, .. } => which < frequent_values.len(),
            Self::OneHot { .. } => true,
        };
        if is_exact {
            return self.value(0.0, which);
        }
        let noise = if std_dev > 0.0 { std_dev * rng.sample::<f32, _>(StandardNormal) } else { 0.0 };
        self.value(row[0].tanh() + noise, which)
    }

    /// The value of an index of the one-hot vector, and of a position within a mode.
    fn value(&self, position: f32, which: usize) -> f64 {
        match self {
            Self::Number { transform, frequent_values, modes, distinct_values, .. } => {
                if let Some(value) = frequent_values.get(which) {
                    return *value;
                }
                let Some(mode) = modes.get(which - frequent_values.len()) else { return f64::NAN };
                let transformed = f64::from(position.clamp(-1.0, 1.0)) * SCALE * mode.std_dev + mode.mean;
                nearest(distinct_values, transform.invert(transformed))
            }
            Self::OneHot { values, .. } => values.get(which).copied().unwrap_or(f64::NAN),
        }
    }
}

/// Whether numbers can be sampled in proportion to their size.
pub fn is_distribution(fractions: &[f64]) -> bool {
    fractions.iter().all(|fraction| *fraction >= 0.0) && fractions.iter().sum::<f64>() > 0.0
}

/// The position of the one in a one-hot vector.
fn hot_position(row: &[f32]) -> usize {
    row.iter().position(|value| *value > 0.5).unwrap_or(0)
}

/// The nearest of sorted values; the value itself if there are none.
pub fn nearest(sorted: &[f64], value: f64) -> f64 {
    let at = sorted.partition_point(|one| *one < value);
    let (below, above) = (at.checked_sub(1).map(|at| sorted[at]), sorted.get(at).copied());
    match (below, above) {
        (Some(below), Some(above)) => {
            if value - below < above - value {
                below
            } else {
                above
            }
        }
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => value,
    }
}
