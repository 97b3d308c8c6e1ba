//! Transforms of numbers before their modes are fitted.

use std::collections::BTreeMap;

use learn::artifact::restore::{RestoreError, ensure};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

const N_QUANTILES: usize = 1_000;
/// Quantiles of the normal distribution are cut off at this probability.
const MIN_PROBABILITY: f64 = 1e-4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransformKind {
    /// `log(1 + x)` of numbers that are never negative; others are not transformed.
    Log,
    /// The quantile of the normal distribution at the rank of a number.
    NormalScores,
}

/// A fitted transform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Transform {
    Identity,
    Log,
    NormalScores {
        quantiles: Vec<f64>,
    },
    /// Categories with many names: each has an interval of [0, 1] as long as its frequency. `ends` are the upper bounds
    /// and `values` the codes of the categories.
    Intervals {
        ends: Vec<f64>,
        values: Vec<f64>,
    },
}

pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability.clamp(MIN_PROBABILITY, 1.0 - MIN_PROBABILITY))
}

pub fn normal_probability(value: f64) -> f64 {
    Normal::standard().cdf(value)
}

impl Transform {
    pub fn fit(known: &[f64], kind: TransformKind) -> Self {
        match kind {
            TransformKind::Log if known.iter().all(|value| *value >= 0.0) => Self::Log,
            TransformKind::Log => Self::Identity,
            TransformKind::NormalScores => {
                let mut sorted = known.to_vec();
                sorted.sort_by(f64::total_cmp);
                let last = sorted.len().saturating_sub(1);
                let at = |index: usize| sorted.get(index * last / (N_QUANTILES - 1)).copied();
                Self::NormalScores { quantiles: (0..N_QUANTILES).filter_map(at).collect() }
            }
        }
    }

    /// Intervals of categories, the most frequent first.
    pub fn intervals(codes: &[f64]) -> Self {
        let mut counts: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
        for code in codes {
            counts.entry(code.to_bits()).or_insert((*code, 0)).1 += 1;
        }
        let mut counts: Vec<(f64, usize)> = counts.into_values().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.total_cmp(&b.0)));
        let ends = counts.iter().scan(0.0, |end, (_, count)| {
            *end += *count as f64 / codes.len() as f64;
            Some(*end)
        });
        Self::Intervals { ends: ends.collect(), values: counts.iter().map(|(value, _)| *value).collect() }
    }

    /// Checks a transform that was read from a file.
    pub fn check(&self) -> Result<(), RestoreError> {
        match self {
            Self::Identity | Self::Log => Ok(()),
            Self::NormalScores { quantiles } => ensure(
                !quantiles.is_empty() && quantiles.is_sorted(),
                "quantiles are missing or not in order",
            ),
            Self::Intervals { ends, values } => {
                ensure(!ends.is_empty() && ends.is_sorted(), "intervals are missing or not in order")?;
                ensure(ends[0] >= 0.0 && ends.len() == values.len(), "intervals do not match their values")
            }
        }
    }

    /// Transforms a value. `position`, between 0 and 1, is the position within an interval or among equal values.
    pub fn apply(&self, value: f64, position: f64) -> f64 {
        match self {
            Self::Identity => value,
            Self::Log => value.max(0.0).ln_1p(),
            Self::NormalScores { quantiles } => {
                let first = quantiles.partition_point(|quantile| *quantile < value);
                let last = quantiles.partition_point(|quantile| *quantile <= value);
                let rank = if first == last && first > 0 && first < quantiles.len() {
                    let (low, high) = (quantiles[first - 1], quantiles[first]);
                    first as f64 - 1.0 + (value - low) / (high - low)
                } else {
                    first as f64 + position * (last - first).saturating_sub(1) as f64
                };
                normal_quantile(rank / (quantiles.len() - 1) as f64)
            }
            Self::Intervals { ends, values } => {
                let at = values.iter().position(|known| *known == value).unwrap_or(0);
                let start = if at == 0 { 0.0 } else { ends[at - 1] };
                start + position * (ends[at] - start)
            }
        }
    }

    pub fn invert(&self, transformed: f64) -> f64 {
        match self {
            Self::Identity => transformed,
            Self::Log => transformed.clamp(0.0, 60.0).exp_m1(),
            Self::NormalScores { quantiles } => {
                let rank = normal_probability(transformed) * (quantiles.len() - 1) as f64;
                let low = (rank as usize).min(quantiles.len() - 1);
                let high = (low + 1).min(quantiles.len() - 1);
                quantiles[low] + (rank - low as f64) * (quantiles[high] - quantiles[low])
            }
            Self::Intervals { ends, values } => {
                let at = ends.partition_point(|end| *end < transformed);
                values[at.min(values.len() - 1)]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_intervals_have_to_be_in_order() {
        let quantiles = |quantiles: &[f64]| Transform::NormalScores { quantiles: quantiles.to_vec() }.check();
        assert!(quantiles(&[1.0]).is_ok() && quantiles(&[1.0, 1.0, 2.0]).is_ok());
        assert!(quantiles(&[]).is_err() && quantiles(&[2.0, 1.0]).is_err());
        let intervals = |ends: &[f64], values: &[f64]| {
            Transform::Intervals { ends: ends.to_vec(), values: values.to_vec() }.check()
        };
        assert!(intervals(&[0.5, 1.0], &[1.0, 0.0]).is_ok());
        assert!(intervals(&[0.5, 1.0], &[1.0]).is_err() && intervals(&[], &[]).is_err());
        assert!(intervals(&[1.0, 0.5], &[1.0, 0.0]).is_err());
    }
}
