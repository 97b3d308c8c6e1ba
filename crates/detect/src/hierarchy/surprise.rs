//! How surprising a number is: minus the decimal logarithm of how often normal ones are as large.

use learn::artifact::Tensor;

const N_QUANTILES: usize = 64;
const LEAST: f64 = 1e-9;
const MOST_EXPONENT: f64 = 20.0;
/// The share of numbers beyond the last quantile, where a power law takes over (Hill, 1975).
const TAIL_SHARE: f64 = 0.02;

/// Before any number is seen, the tail is taken to be as heavy as this, and as if so many beyond the last quantile had said
/// so: what a few groups of windows have done is no bound on what others will.
const PRESUMED_EXPONENT: f64 = 2.0;
const N_PRESUMED: f64 = 20.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Surprise {
    /// Where each share of the numbers ends, evenly up to the tail.
    quantiles: Vec<f64>,
    /// The exponent of the power law.
    exponent: f64,
}

impl Surprise {
    /// Of numbers that are not negative, as many of which are independent of each other: windows of one group are not.
    ///
    /// # Panics
    /// If there is no number.
    pub fn fit(mut normal: Vec<f64>, n_independent: usize) -> Self {
        normal.sort_by(f64::total_cmp);
        let last = normal.len() - 1;
        let at = |index: usize| {
            let share = (1.0 - TAIL_SHARE) * index as f64 / (N_QUANTILES - 1) as f64;
            normal[(share * last as f64) as usize]
        };
        let quantiles: Vec<f64> = (0..N_QUANTILES).map(at).collect();
        let from = quantiles[N_QUANTILES - 1];
        let beyond: Vec<f64> = normal
            .iter()
            .filter(|value| **value > from)
            .map(|value| (value / from.max(LEAST)).ln())
            .collect();
        let mean = beyond.iter().sum::<f64>() / beyond.len().max(1) as f64;
        let n_beyond = TAIL_SHARE * n_independent as f64;
        let exponent =
            (n_beyond + N_PRESUMED) / (n_beyond * mean.max(LEAST) + N_PRESUMED / PRESUMED_EXPONENT);
        Self { exponent: exponent.min(MOST_EXPONENT), quantiles }
    }

    /// Of nothing.
    pub fn never() -> Self {
        Self { quantiles: vec![f64::INFINITY; N_QUANTILES], exponent: 0.0 }
    }

    pub fn of(&self, value: f64) -> f64 {
        let from = self.quantiles[N_QUANTILES - 1];
        if value > from {
            return -TAIL_SHARE.log10() + self.exponent * (value / from.max(LEAST)).log10();
        }
        let index = self.quantiles.partition_point(|quantile| *quantile < value);
        let below = self.quantiles[index.saturating_sub(1)];
        let rest = if self.quantiles[index] > below {
            (value - below) / (self.quantiles[index] - below)
        } else {
            0.0
        };
        let place = (index.saturating_sub(1) as f64 + rest.clamp(0.0, 1.0)) / (N_QUANTILES - 1) as f64;
        -(1.0 - (1.0 - TAIL_SHARE) * place).log10()
    }

    pub fn to_tensor(&self) -> Tensor {
        let values = self.quantiles.iter().chain([&self.exponent]).map(|value| *value as f32).collect();
        Tensor { shape: vec![N_QUANTILES + 1], values }
    }

    pub fn from_tensor(tensor: &Tensor) -> Option<Self> {
        let values: Vec<f64> = tensor.values.iter().map(|value| f64::from(*value)).collect();
        let (exponent, quantiles) = values.split_last()?;
        (quantiles.len() == N_QUANTILES).then(|| Self { quantiles: quantiles.to_vec(), exponent: *exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_is_a_surprise_of_two() {
        // A power law of exponent three.
        let normal: Vec<f64> =
            (0..10_000).map(|at| (1.0 - (f64::from(at) + 0.5) / 10_000.0).powf(-1.0 / 3.0)).collect();
        let surprise = Surprise::fit(normal, 10_000);
        for (share, wanted) in [(0.5, 0.301), (0.1, 1.0), (0.01, 2.0), (1e-4, 4.0)] {
            let found = surprise.of(f64::powf(share, -1.0 / 3.0));
            assert!((found - wanted).abs() < 0.15, "{share}: {found}");
        }
        assert_eq!((surprise.of(0.0), Surprise::never().of(1e30)), (0.0, 0.0));
        assert!(surprise.of(1e30).is_finite());
        assert!(Surprise::fit(vec![0.0; 50], 50).of(1.0).is_finite(), "also where nothing ever differed");
    }
}
