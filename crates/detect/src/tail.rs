//! The upper tail of a distribution, from few values.

/// The fraction of units in the tail, and how many there are at least and at most.
const TAIL_FRACTION: f64 = 0.1;
const MIN_TAIL: usize = 3;
const MAX_TAIL: usize = 100;
/// The number of units that the prior mean excess counts as. It keeps thresholds of few units high.
const PRIOR_WEIGHT: f64 = 3.0;
/// No threshold is larger.
const MAX_THRESHOLD: f64 = 1e12;

/// The upper tail of positive values of normal units. Excesses are modelled as exponential with an uncertain mean: few
/// values give a heavy tail.
#[derive(Debug, Clone, PartialEq)]
pub struct TailFit {
    /// Largest first.
    sorted: Vec<f64>,
    n_tail: usize,
    /// The value at which the tail begins.
    start: f64,
    /// The sum of the excesses, with those of the prior.
    excess: f64,
    /// The number of excesses, with those of the prior.
    weight: f64,
}

impl TailFit {
    /// `prior_excess` is the mean excess before any value is known, as a fraction of the value at which the tail begins.
    /// `None` without a positive value.
    pub fn new(values: &[f64], prior_excess: f64) -> Option<Self> {
        let mut sorted: Vec<f64> =
            values.iter().copied().filter(|value| *value > 0.0 && value.is_finite()).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let last = sorted.len().checked_sub(1)?;
        let n_tail = ((sorted.len() as f64 * TAIL_FRACTION).round() as usize).clamp(MIN_TAIL, MAX_TAIL);
        let n_tail = n_tail.min(sorted.len());
        let start = sorted[n_tail.min(last)];
        let excess = sorted[..n_tail].iter().map(|value| value - start).sum::<f64>();
        // If all values are in the tail, the smallest is its start and has no excess.
        let n_excesses = n_tail.min(last);
        Some(Self {
            excess: excess + PRIOR_WEIGHT * prior_excess * start,
            weight: n_excesses as f64 + PRIOR_WEIGHT,
            sorted,
            n_tail,
            start,
        })
    }

    fn tail_fraction(&self) -> f64 {
        self.n_tail as f64 / self.sorted.len() as f64
    }

    /// The value that a unit exceeds with a probability. It is not below the largest value if that is rarer than one of
    /// the units.
    pub fn threshold(&self, probability: f64) -> f64 {
        let n_units = self.sorted.len() as f64;
        if probability >= self.tail_fraction() {
            let rank = ((probability * n_units) as usize).min(self.sorted.len() - 1);
            return self.sorted[rank];
        }
        let ratio = (self.tail_fraction() / probability).powf(1.0 / self.weight);
        let modelled = (self.start + self.excess * (ratio - 1.0)).min(MAX_THRESHOLD);
        if probability * n_units < 1.0 { modelled.max(self.sorted[0]) } else { modelled }
    }

    /// The probability that a unit exceeds a value.
    pub fn probability(&self, value: f64) -> f64 {
        let over = value - self.start;
        if over <= 0.0 {
            let n_above = self.sorted.partition_point(|one| *one > value);
            return n_above as f64 / self.sorted.len() as f64;
        }
        self.tail_fraction() * (1.0 + over / self.excess).powf(-self.weight)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::{Exp1, StandardNormal};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const PRIOR_EXCESS: f64 = 0.25;

    #[test]
    fn the_threshold_of_many_units_is_the_value_that_so_many_exceed() {
        // Logarithms are exponential, as in the model.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let values: Vec<f64> = (0..50_000).map(|_| rng.sample::<f64, _>(Exp1).exp()).collect();
        let tail = TailFit::new(&values, PRIOR_EXCESS).unwrap();
        for probability in [0.1, 0.01, 1e-3, 1e-4] {
            let exact = -f64::ln(probability);
            let found = tail.threshold(probability).ln();
            assert!((found - exact).abs() < 0.12 * exact, "{probability}: {found} {exact}");
            assert!((tail.probability(tail.threshold(probability)) / probability - 1.0).abs() < 0.25);
        }
    }

    #[test]
    fn few_units_give_a_high_threshold() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let values: Vec<f64> =
            (0..1_000).map(|_| (0.3 * rng.sample::<f64, _>(StandardNormal)).exp()).collect();
        let threshold =
            |n_units: usize| TailFit::new(&values[..n_units], PRIOR_EXCESS).unwrap().threshold(1e-3);
        assert!(threshold(5) > 1.2 * threshold(1_000), "{} {}", threshold(5), threshold(1_000));
        assert!(threshold(1_000) > 2.0);
        let one = TailFit::new(&[2.0], PRIOR_EXCESS).unwrap().threshold(1e-3);
        assert!(one > 4.0 && one.is_finite(), "{one}");
        assert!(TailFit::new(&[], PRIOR_EXCESS).is_none() && TailFit::new(&[0.0], PRIOR_EXCESS).is_none());
        assert!(TailFit::new(&[3.0; 40], PRIOR_EXCESS).unwrap().threshold(1e-3) > 3.0);
    }
}
