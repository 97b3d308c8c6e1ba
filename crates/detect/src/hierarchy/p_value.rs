//! Tail probabilities of distances: how rarely a normal window is at least as far off, as −log10 p.

use learn::artifact::restore::{RestoreError, ensure, expect};
use learn::artifact::{Tensor, Tensors};

const N_QUANTILES: usize = 64;
const MIN_DISTANCE: f64 = 1e-9;
const MAX_EXPONENT: f64 = 20.0;
/// The fraction of distances in the tail, which is modelled by a power law (Hill, 1975).
const TAIL_FRACTION: f64 = 0.02;

/// The prior of the tail exponent, with the weight of this many exceedances: a few groups of windows do not bound
/// how far others may be off.
const PRIOR_EXPONENT: f64 = 2.0;
const PRIOR_WEIGHT: f64 = 20.0;

/// The distribution of the distances of normal windows.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalDistances {
    /// Evenly spaced quantiles, up to the start of the tail.
    quantiles: Vec<f64>,
    /// The exponent of the power law in the tail.
    exponent: f64,
}

impl NormalDistances {
    /// Fits non-negative distances of which `n_independent` are independent; windows of one group are not. An
    /// empty slice gives a distribution under which nothing is unlikely.
    pub fn fit(mut distances: Vec<f64>, n_independent: usize) -> Self {
        if distances.is_empty() {
            return Self::uninformative();
        }
        distances.sort_by(f64::total_cmp);
        let last = distances.len() - 1;
        let quantile = |index: usize| {
            let fraction = (1.0 - TAIL_FRACTION) * index as f64 / (N_QUANTILES - 1) as f64;
            distances[(fraction * last as f64) as usize]
        };
        let quantiles: Vec<f64> = (0..N_QUANTILES).map(quantile).collect();
        let tail_start = quantiles[N_QUANTILES - 1];
        let logs: Vec<f64> = distances
            .iter()
            .filter(|distance| **distance > tail_start)
            .map(|distance| (distance / tail_start.max(MIN_DISTANCE)).ln())
            .collect();
        let mean_log = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        let n_tail = TAIL_FRACTION * n_independent as f64;
        let exponent =
            (n_tail + PRIOR_WEIGHT) / (n_tail * mean_log.max(MIN_DISTANCE) + PRIOR_WEIGHT / PRIOR_EXPONENT);
        Self { exponent: exponent.min(MAX_EXPONENT), quantiles }
    }

    /// A distribution under which every distance has p = 1.
    pub fn uninformative() -> Self {
        Self { quantiles: vec![f64::INFINITY; N_QUANTILES], exponent: 0.0 }
    }

    /// −log10 of the estimated probability that a normal window is at least this far off.
    pub fn minus_log10_p(&self, distance: f64) -> f64 {
        let tail_start = self.quantiles[N_QUANTILES - 1];
        if distance > tail_start {
            let ratio = distance / tail_start.max(MIN_DISTANCE);
            return -TAIL_FRACTION.log10() + self.exponent * ratio.log10();
        }
        let index = self.quantiles.partition_point(|quantile| *quantile < distance);
        let below = self.quantiles[index.saturating_sub(1)];
        let rest = if self.quantiles[index] > below {
            (distance - below) / (self.quantiles[index] - below)
        } else {
            0.0
        };
        let rank = (index.saturating_sub(1) as f64 + rest.clamp(0.0, 1.0)) / (N_QUANTILES - 1) as f64;
        -(1.0 - (1.0 - TAIL_FRACTION) * rank).log10()
    }

    pub fn to_tensor(&self) -> Tensor {
        let values: Vec<f32> =
            self.quantiles.iter().chain([&self.exponent]).map(|value| *value as f32).collect();
        Tensor::row(values)
    }

    pub fn restore(tensors: &Tensors, name: &str) -> Result<Self, RestoreError> {
        let values = expect(tensors, name, &[N_QUANTILES + 1])?;
        let (exponent, quantiles) = (f64::from(values[N_QUANTILES]), &values[..N_QUANTILES]);
        ensure(exponent >= 0.0, "the exponent of a tail is negative")?;
        ensure(quantiles.is_sorted() && quantiles[0] >= 0.0, "the quantiles of distances are not in order")?;
        Ok(Self { quantiles: quantiles.iter().map(|quantile| f64::from(*quantile)).collect(), exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_that_one_in_a_hundred_reaches_has_minus_log10_p_of_two() {
        // A power law of exponent three.
        let distances: Vec<f64> =
            (0..10_000).map(|at| (1.0 - (f64::from(at) + 0.5) / 10_000.0).powf(-1.0 / 3.0)).collect();
        let fitted = NormalDistances::fit(distances, 10_000);
        for (p, wanted) in [(0.5, 0.301), (0.1, 1.0), (0.01, 2.0), (1e-4, 4.0)] {
            let found = fitted.minus_log10_p(f64::powf(p, -1.0 / 3.0));
            assert!((found - wanted).abs() < 0.15, "{p}: {found}");
        }
        assert_eq!(fitted.minus_log10_p(0.0), 0.0);
        assert!(fitted.minus_log10_p(1e30).is_finite());
        assert!(NormalDistances::fit(vec![0.0; 50], 50).minus_log10_p(1.0).is_finite(), "no variation");
    }

    #[test]
    fn stored_quantiles_have_to_be_in_order() {
        let restored = |change: &dyn Fn(&mut Vec<f32>)| {
            let mut values: Vec<f32> = (0..=N_QUANTILES as u16).map(f32::from).collect();
            change(&mut values);
            NormalDistances::restore(&[("job".to_owned(), Tensor::row(values))].into(), "job")
        };
        assert!(restored(&|_| {}).is_ok());
        assert!(restored(&|values| values.swap(3, 9)).is_err());
        assert!(restored(&|values| values[0] = -1.0).is_err());
        assert!(restored(&|values| values[N_QUANTILES] = -1.0).is_err());
        assert!(restored(&|values| values.truncate(9)).is_err());
    }

    #[test]
    fn without_distances_nothing_is_unlikely() {
        assert_eq!(NormalDistances::fit(Vec::new(), 0).minus_log10_p(1e30), 0.0);
    }
}
