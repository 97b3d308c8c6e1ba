//! Numbers as bins of about equally many jobs.

use learn::artifact::restore::{RestoreError, ensure};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::generators::encoding::normal_quantile;

const MAX_BINS: usize = 24;
const N_QUANTILES: usize = 1_001;
/// Scores are those of probabilities within this distance of 0 and 1.
const MIN_PROBABILITY: f64 = 0.005;

/// Bins of one feature. Unknown values are in the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bins {
    /// The largest value of every bin but the last.
    limits: Vec<f64>,
    /// The fraction of jobs up to the end of each bin.
    ends: Vec<f64>,
    /// Equally spaced quantiles of known values.
    quantiles: Vec<f64>,
}

impl Bins {
    pub fn fit(values: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let at = |part: usize, n_parts: usize| sorted.get(part * last / n_parts).copied();
        let mut limits: Vec<f64> = (1..MAX_BINS).filter_map(|part| at(part, MAX_BINS)).collect();
        limits.dedup();
        let quantiles = (0..N_QUANTILES).filter_map(|part| at(part, N_QUANTILES - 1)).collect();
        let mut bins = Self { ends: vec![0.0; limits.len() + 1], limits, quantiles };
        for value in values {
            let bin = bins.bin(*value);
            bins.ends[bin] += 1.0 / values.len() as f64;
        }
        let mut sum = 0.0;
        for end in &mut bins.ends {
            sum += *end;
            *end = sum;
        }
        bins
    }

    pub fn check(&self) -> Result<(), RestoreError> {
        let is_whole = self.ends.len() == self.limits.len() + 1 && !self.quantiles.is_empty();
        ensure(is_whole, "bins have no limits or quantiles")?;
        let is_sorted = self.limits.is_sorted() && self.ends.is_sorted() && self.quantiles.is_sorted();
        ensure(is_sorted && self.ends[0] >= 0.0, "bins are not in order")
    }

    pub fn n_bins(&self) -> usize {
        self.ends.len()
    }

    /// Whether any value is known.
    pub fn has_values(&self) -> bool {
        !self.quantiles.is_empty()
    }

    pub fn bin(&self, value: f64) -> usize {
        self.limits.partition_point(|limit| *limit < value)
    }

    fn start(&self, bin: usize) -> f64 {
        bin.checked_sub(1).map_or(0.0, |before| self.ends[before])
    }

    /// The normal score of the middle of a bin.
    pub fn score(&self, bin: usize) -> f32 {
        let middle = f64::midpoint(self.start(bin), self.ends[bin]);
        normal_quantile(middle.clamp(MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)) as f32
    }

    /// A random rank, between 0 and 1, in a bin.
    pub fn rank(&self, bin: usize, rng: &mut Xoshiro256PlusPlus) -> f64 {
        self.start(bin) + rng.random::<f64>() * (self.ends[bin] - self.start(bin))
    }

    /// The value at a rank.
    pub fn quantile(&self, rank: f64) -> f64 {
        let last = self.quantiles.len() - 1;
        let place = rank.clamp(0.0, 1.0) * last as f64;
        let low = (place as usize).min(last);
        let (from, to) = (self.quantiles[low], self.quantiles[(low + 1).min(last)]);
        from + (place - low as f64) * (to - from)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn values_are_sampled_from_their_bins() {
        let values: Vec<f64> =
            (0..1_000).map(|at| if at % 2 == 0 { 0.0 } else { f64::from(at * at) }).collect();
        let bins = Bins::fit(&values);
        assert_eq!(bins.check(), Ok(()));
        assert!((12..=13).contains(&bins.n_bins()), "half of the values are one bin: {}", bins.n_bins());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for value in [0.0, 1.0, 90_000.0, 998_001.0] {
            let bin = bins.bin(value);
            for _ in 0..20 {
                let sampled = bins.quantile(bins.rank(bin, &mut rng));
                let (low, high) = (bin.saturating_sub(1), (bin + 1).min(bins.n_bins() - 1));
                assert!((low..=high).contains(&bins.bin(sampled)), "{value} became {sampled}");
            }
        }
        assert!(bins.score(0) < bins.score(5));
        assert_eq!(bins.bin(f64::NAN), 0);
    }

    #[test]
    fn bins_without_order_are_rejected() {
        let bins = Bins::fit(&[1.0, 2.0, 3.0]);
        assert_eq!(bins.check(), Ok(()));
        assert!(Bins { limits: vec![2.0, 1.0, 0.0], ..bins.clone() }.check().is_err());
        assert!(Bins { ends: vec![1.0], ..bins.clone() }.check().is_err());
        assert!(Bins { quantiles: Vec::new(), ..bins }.check().is_err());
    }
}
