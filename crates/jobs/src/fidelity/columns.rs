//! Fidelity of single columns and of pairs of columns.

use std::collections::HashMap;
use std::hash::Hash;

use learn::stats::{Distances, correlation, distances, std_dev};
use serde::Serialize;
use workload::{Stop, Stopped};

use crate::features::{FeatureKind, FeatureSpec, FeatureTable};

/// Contingency tables are compared for categories of at most this many names.
const MAX_TABLE_NAMES: usize = 60;

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
        /// One minus the Kolmogorov-Smirnov statistic: the largest distance between the distribution functions.
        ks_complement: f64,
        /// The area between the distribution functions, in standard deviations of the real column.
        wasserstein: f64,
    },
    Category {
        /// One minus the total variation distance.
        tv_complement: f64,
    },
}

impl Figures {
    /// 1 is perfect.
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
    /// Rank correlations of numbers; none for categories.
    pub real: Option<f64>,
    pub synthetic: Option<f64>,
    /// 1 is perfect.
    pub score: f64,
}

pub fn columns(real: &FeatureTable, synthetic: &FeatureTable) -> Vec<ColumnFidelity> {
    let column = |(at, spec): (usize, &FeatureSpec)| {
        let (real, synthetic) = (real.column(at), synthetic.column(at));
        let figures = match spec.kind {
            FeatureKind::Category { .. } => {
                Figures::Category { tv_complement: tv_complement(real, synthetic) }
            }
            FeatureKind::Number { .. } => number(real, synthetic),
        };
        ColumnFidelity { name: spec.name.clone(), figures }
    };
    real.specs().iter().enumerate().map(column).collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut known: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    known.sort_by(f64::total_cmp);
    known
}

fn number(real: &[f64], synthetic: &[f64]) -> Figures {
    let (real, synthetic) = (sorted(real), sorted(synthetic));
    let scale = std_dev(&real).max(1e-12);
    let Distances { ks, wasserstein } = distances(&real, &synthetic);
    Figures::Number { ks_complement: 1.0 - ks, wasserstein: wasserstein / scale }
}

type Frequencies<K> = HashMap<K, f64>;

fn frequencies<K: Hash + Eq>(keys: impl ExactSizeIterator<Item = K>) -> Frequencies<K> {
    let n_keys = keys.len().max(1) as f64;
    let mut frequencies = HashMap::new();
    for key in keys {
        *frequencies.entry(key).or_insert(0.0) += 1.0 / n_keys;
    }
    frequencies
}

fn total_variation<K: Hash + Eq + Ord + Copy>(one: &Frequencies<K>, other: &Frequencies<K>) -> f64 {
    let mut keys: Vec<K> = one.keys().chain(other.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |frequencies: &Frequencies<K>, key: &K| frequencies.get(key).copied().unwrap_or_default();
    0.5 * keys.iter().map(|key| (of(one, key) - of(other, key)).abs()).sum::<f64>()
}

fn tv_complement(one: &[f64], other: &[f64]) -> f64 {
    let of = |values: &[f64]| frequencies(values.iter().map(|value| value.to_bits()));
    1.0 - total_variation(&of(one), &of(other))
}

/// Rank correlations of pairs of numbers, contingency tables of pairs of categories.
pub fn pairs(
    real: &FeatureTable,
    synthetic: &FeatureTable,
    stop: &Stop,
) -> Result<Vec<PairFidelity>, Stopped> {
    let specs = real.specs();
    let has_table = |at: usize| match &specs[at].kind {
        FeatureKind::Category { names } => names.len() <= MAX_TABLE_NAMES,
        FeatureKind::Number { .. } => false,
    };
    let ranks = |jobs: &FeatureTable| -> Vec<Option<Vec<f64>>> {
        (0..specs.len()).map(|at| (!specs[at].is_category()).then(|| ranks(jobs.column(at)))).collect()
    };
    let (real_ranks, synthetic_ranks) = (ranks(real), ranks(synthetic));
    let mut pairs = Vec::new();
    for a in 0..specs.len() {
        for b in a + 1..specs.len() {
            stop.check()?;
            let names = [specs[a].name.clone(), specs[b].name.clone()];
            let rank = |ranks: &[Option<Vec<f64>>]| {
                let (one, other) = (ranks[a].as_ref()?, ranks[b].as_ref()?);
                let found = correlation(one.iter().copied().zip(other.iter().copied()));
                Some(if found.is_finite() { found } else { 0.0 })
            };
            if let (Some(real), Some(synthetic)) = (rank(&real_ranks), rank(&synthetic_ranks)) {
                let score = 1.0 - (real - synthetic).abs() / 2.0;
                pairs.push(PairFidelity { names, real: Some(real), synthetic: Some(synthetic), score });
            } else if has_table(a) && has_table(b) {
                let joint = |jobs: &FeatureTable| {
                    let keys = jobs.column(a).iter().zip(jobs.column(b));
                    frequencies(keys.map(|(a, b)| (a.to_bits(), b.to_bits())))
                };
                let score = 1.0 - total_variation(&joint(real), &joint(synthetic));
                pairs.push(PairFidelity { names, real: None, synthetic: None, score });
            }
        }
    }
    Ok(pairs)
}

/// Spearman's rank correlation; 0 where it is undefined.
pub fn rank_correlation(one: &[f64], other: &[f64]) -> f64 {
    let found = correlation(ranks(one).into_iter().zip(ranks(other)));
    if found.is_finite() { found } else { 0.0 }
}

/// Ranks; ties share their mean rank, and unknown values have the median rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).filter(|at| !values[*at].is_nan()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![order.len() as f64 / 2.0; values.len()];
    let mut first = 0;
    while first < order.len() {
        let end = first + order[first..].iter().take_while(|at| values[**at] == values[order[first]]).count();
        let rank = (first + end - 1) as f64 / 2.0;
        for at in &order[first..end] {
            ranks[*at] = rank;
        }
        first = end;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variations_and_ranks_are_those_of_textbooks() {
        assert_eq!(tv_complement(&[0.0, 0.0, 1.0, 2.0], &[0.0, 0.0, 1.0, 1.0]), 0.75);
        assert_eq!(ranks(&[5.0, 1.0, 5.0, f64::NAN]), [1.5, 0.0, 1.5, 1.5]);
    }
}
