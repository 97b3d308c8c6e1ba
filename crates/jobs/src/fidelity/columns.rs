//! Single columns and pairs of them.

use std::collections::HashMap;

use learn::stats::{correlation, std_dev};
use serde::Serialize;

use crate::features::{FeatureKind, FeatureSpec, Jobs};

/// Categories with more names than this have no contingency table worth looking at.
const MOST_NAMES: usize = 60;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ColumnFidelity {
    pub name: String,
    #[serde(flatten)]
    pub figures: Figures,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Figures {
    Number {
        /// One less the largest distance between the two distribution functions.
        ks_complement: f64,
        /// The area between them, in standard deviations of the real column.
        wasserstein: f64,
    },
    Category {
        /// One less the total variation distance.
        tv_complement: f64,
    },
}

impl Figures {
    /// One is perfect.
    pub fn score(self) -> f64 {
        match self {
            Self::Number { ks_complement, .. } => ks_complement,
            Self::Category { tv_complement } => tv_complement,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairFidelity {
    pub names: [String; 2],
    /// Rank correlations of numbers; nothing for categories.
    pub real: Option<f64>,
    pub synthetic: Option<f64>,
    /// One is perfect.
    pub score: f64,
}

pub fn columns(real: &Jobs, made: &Jobs) -> Vec<ColumnFidelity> {
    let column = |(at, spec): (usize, &FeatureSpec)| {
        let (real, made) = (&real.values[at], &made.values[at]);
        let figures = match spec.kind {
            FeatureKind::Category { .. } => Figures::Category { tv_complement: tv_complement(real, made) },
            FeatureKind::Number { .. } => number(real, made),
        };
        ColumnFidelity { name: spec.name.clone(), figures }
    };
    real.specs.iter().enumerate().map(column).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    known.sort_by(f64::total_cmp);
    known
}

fn number(real: &[f64], made: &[f64]) -> Figures {
    let width = std_dev(&sorted(real)).max(1e-12);
    let (ks, area) = distances(&sorted(real), &sorted(made));
    Figures::Number { ks_complement: 1.0 - ks, wasserstein: area / width }
}

/// The largest distance between two distribution functions, and the area between them.
pub fn distances(one: &[f64], other: &[f64]) -> (f64, f64) {
    if one.is_empty() || other.is_empty() {
        return (if one.len() == other.len() { 0.0 } else { 1.0 }, 0.0);
    }
    let (mut a, mut b) = (0, 0);
    let (mut largest, mut area) = (0f64, 0.0);
    let mut last = one[0].min(other[0]);
    while a < one.len() || b < other.len() {
        let next = match (one.get(a), other.get(b)) {
            (Some(one), Some(other)) => one.min(*other),
            (Some(value), None) | (None, Some(value)) => *value,
            (None, None) => break,
        };
        let apart = (a as f64 / one.len() as f64 - b as f64 / other.len() as f64).abs();
        area += apart * (next - last);
        a += one[a..].iter().take_while(|value| **value == next).count();
        b += other[b..].iter().take_while(|value| **value == next).count();
        largest = largest.max((a as f64 / one.len() as f64 - b as f64 / other.len() as f64).abs());
        last = next;
    }
    (largest, area)
}

fn shares<K: std::hash::Hash + Eq>(keys: impl ExactSizeIterator<Item = K>) -> HashMap<K, f64> {
    let n_keys = keys.len().max(1) as f64;
    let mut shares = HashMap::new();
    keys.for_each(|key| *shares.entry(key).or_insert(0.0) += 1.0 / n_keys);
    shares
}

fn tv<K: std::hash::Hash + Eq + Ord + Copy>(one: &HashMap<K, f64>, other: &HashMap<K, f64>) -> f64 {
    let mut keys: Vec<K> = one.keys().chain(other.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |shares: &HashMap<K, f64>, key: &K| shares.get(key).copied().unwrap_or_default();
    0.5 * keys.iter().map(|key| (of(one, key) - of(other, key)).abs()).sum::<f64>()
}

pub fn tv_complement(one: &[f64], other: &[f64]) -> f64 {
    let bits =
        |values: &[f64]| shares(values.iter().map(|value| value.to_bits()).collect::<Vec<_>>().into_iter());
    1.0 - tv(&bits(one), &bits(other))
}

pub fn pairs(real: &Jobs, made: &Jobs) -> Vec<PairFidelity> {
    let is_number = |at: usize| !real.specs[at].is_category();
    let has_table = |at: usize| match &real.specs[at].kind {
        FeatureKind::Category { names } => names.len() <= MOST_NAMES,
        FeatureKind::Number { .. } => false,
    };
    let ranks = |jobs: &Jobs| -> Vec<Option<Vec<f64>>> {
        (0..jobs.specs.len()).map(|at| is_number(at).then(|| ranks(&jobs.values[at]))).collect()
    };
    let (of_real, of_made) = (ranks(real), ranks(made));
    let mut pairs = Vec::new();
    for a in 0..real.specs.len() {
        for b in a + 1..real.specs.len() {
            let names = [real.specs[a].name.clone(), real.specs[b].name.clone()];
            let rank = |ranks: &[Option<Vec<f64>>]| {
                let (one, other) = (ranks[a].as_ref()?, ranks[b].as_ref()?);
                let found = correlation(one.iter().copied().zip(other.iter().copied()));
                Some(if found.is_finite() { found } else { 0.0 })
            };
            if let (Some(real), Some(synthetic)) = (rank(&of_real), rank(&of_made)) {
                let score = 1.0 - (real - synthetic).abs() / 2.0;
                pairs.push(PairFidelity { names, real: Some(real), synthetic: Some(synthetic), score });
            } else if has_table(a) && has_table(b) {
                let joint = |jobs: &Jobs| {
                    let keys =
                        jobs.values[a].iter().zip(&jobs.values[b]).map(|(a, b)| (a.to_bits(), b.to_bits()));
                    shares(keys)
                };
                let score = 1.0 - tv(&joint(real), &joint(made));
                pairs.push(PairFidelity { names, real: None, synthetic: None, score });
            }
        }
    }
    pairs
}

/// How two columns rise and fall together.
pub fn rank_correlation(one: &[f64], other: &[f64]) -> f64 {
    let found = correlation(ranks(one).into_iter().zip(ranks(other)));
    if found.is_finite() { found } else { 0.0 }
}

/// Ranks, equal ones for equal values; what is not known is in the middle.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).filter(|at| !values[*at].is_nan()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![order.len() as f64 / 2.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let end = first + order[first..].iter().take_while(|at| values[**at] == values[order[first]]).count();
        let rank = (first + end - 1) as f64 / 2.0;
        order[first..end].iter().for_each(|at| ranks[*at] = rank);
        first = end;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_two_halves_is_one_half() {
        let (ks, area) = distances(&[0.0, 0.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 1.0]);
        assert_eq!((ks, area), (0.5, 0.5));
        assert_eq!(distances(&[1.0, 2.0], &[1.0, 2.0]), (0.0, 0.0));
        assert_eq!(distances(&[], &[1.0]).0, 1.0);
        assert_eq!(tv_complement(&[0.0, 0.0, 1.0, 2.0], &[0.0, 0.0, 1.0, 1.0]), 0.75);
        assert_eq!(ranks(&[5.0, 1.0, 5.0, f64::NAN]), [1.5, 0.0, 1.5, 1.5]);
    }
}
