//! The modes of a column of numbers: a mixture of normal distributions whose number nobody has to say, since those that are
//! not needed die out (variational inference with a sparse prior; Bishop, 2006, chapter 10).

use serde::{Deserialize, Serialize};
use statrs::function::gamma::digamma;

use crate::{KMeans, Matrix};

const N_ROUNDS: usize = 100;
/// Points that modes are found with.
const MOST_POINTS: usize = 20_000;
/// Little is enough for one mode, so that others are not made up.
const CONCENTRATION: f64 = 1e-3;
/// A mode with less weight is none.
const LEAST_WEIGHT: f64 = 0.005;
/// What no mode is narrower than, as a share of the width of all.
const LEAST_WIDTH: f64 = 1e-4;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    pub weight: f64,
    pub mean: f64,
    pub width: f64,
}

/// At least one mode, at most `most`, of numbers that are all known.
///
/// # Panics
/// If there is no number.
pub fn modes(values: &[f64], most: usize, seed: u64) -> Vec<Mode> {
    let every = values.len().div_ceil(MOST_POINTS);
    let values: Vec<f64> = values.iter().copied().step_by(every).collect();
    let n_values = values.len() as f64;
    let centre = values.iter().sum::<f64>() / n_values;
    let variance = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / n_values;
    if variance <= f64::EPSILON * centre.abs() {
        return vec![Mode { weight: 1.0, mean: centre, width: variance.sqrt().max(1e-6) }];
    }
    let scale = variance.sqrt();
    let points: Vec<f64> = values.iter().map(|value| (value - centre) / scale).collect();
    let found = KMeans::fit(&Matrix::new(points.iter().map(|value| *value as f32).collect(), 1), most, seed);
    let n_modes = found.centres.n_rows();
    let mut shares = vec![vec![0.0; n_modes]; points.len()];
    found.groups.iter().zip(&mut shares).for_each(|(group, shares)| shares[*group] = 1.0);
    // Priors in units of the whole: mean 0, variance 1, each as good as one point.
    let (mut before, mut state) = (f64::MIN, Vec::new());
    for _ in 0..N_ROUNDS {
        state = (0..n_modes).map(|mode| Posterior::of(&points, &shares, mode)).collect();
        let total: f64 = state.iter().map(|one: &Posterior| one.concentration).sum();
        let expected: Vec<Expected> = state.iter().map(|one| one.expected(total)).collect();
        let mut likelihood = 0.0;
        for (point, shares) in points.iter().zip(&mut shares) {
            let mut sum = 0.0;
            let mut largest = f64::MIN;
            for (share, one) in shares.iter_mut().zip(&expected) {
                *share = one.log_share(*point);
                largest = largest.max(*share);
            }
            for share in shares.iter_mut() {
                *share = (*share - largest).exp();
                sum += *share;
            }
            shares.iter_mut().for_each(|share| *share /= sum);
            likelihood += largest + sum.ln();
        }
        if (likelihood - before).abs() < 1e-5 * n_values {
            break;
        }
        before = likelihood;
    }
    let total: f64 = state.iter().map(|one| one.concentration).sum();
    let mut modes: Vec<Mode> = state
        .iter()
        .map(|one| Mode {
            weight: one.concentration / total,
            mean: centre + scale * one.mean,
            width: scale * (one.rate / one.shape).sqrt().max(LEAST_WIDTH),
        })
        .filter(|mode| mode.weight > LEAST_WEIGHT)
        .collect();
    modes.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    modes
}

/// What is known of a mode: a Dirichlet weight, a normal mean and a gamma precision.
struct Posterior {
    concentration: f64,
    confidence: f64,
    mean: f64,
    shape: f64,
    rate: f64,
}

impl Posterior {
    fn of(points: &[f64], shares: &[Vec<f64>], mode: usize) -> Self {
        let of_mode = || points.iter().zip(shares).map(|(point, shares)| (point, shares[mode]));
        let count: f64 = of_mode().map(|(_, share)| share).sum::<f64>() + 1e-10;
        let mean = of_mode().map(|(point, share)| point * share).sum::<f64>() / count;
        let spread: f64 = of_mode().map(|(point, share)| share * (point - mean).powi(2)).sum();
        let confidence = 1.0 + count;
        Self {
            concentration: CONCENTRATION + count,
            confidence,
            mean: count * mean / confidence,
            shape: 0.5 * (1.0 + count),
            rate: 0.5 * (LEAST_WIDTH + spread + count / confidence * mean * mean),
        }
    }

    fn expected(&self, total: f64) -> Expected {
        let log_weight = digamma(self.concentration) - digamma(total);
        let log_precision = digamma(self.shape) - self.rate.ln();
        Expected {
            constant: log_weight + 0.5 * log_precision - 0.5 / self.confidence,
            half_precision: 0.5 * self.shape / self.rate,
            mean: self.mean,
        }
    }
}

/// What of a mode does not depend on the point.
struct Expected {
    constant: f64,
    half_precision: f64,
    mean: f64,
}

impl Expected {
    fn log_share(&self, point: f64) -> f64 {
        self.constant - self.half_precision * (point - self.mean).powi(2)
    }
}

impl Mode {
    /// How dense the mode is at a number, up to a factor that all share.
    pub fn density(&self, value: f64) -> f64 {
        let off = (value - self.mean) / self.width;
        self.weight / self.width * (-0.5 * off * off).exp()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn there_are_as_many_modes_as_the_numbers_have() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let values: Vec<f64> = (0..4_000)
            .map(|index| {
                let normal: f64 = rng.sample(StandardNormal);
                if index % 4 == 0 { 100.0 + 2.0 * normal } else { 10.0 + 0.5 * normal }
            })
            .collect();
        let found = modes(&values, 10, 0);
        let heavy: Vec<&Mode> = found.iter().filter(|mode| mode.weight > 0.05).collect();
        let near = |mean: f64| {
            heavy.iter().filter(|mode| (mode.mean - mean).abs() < 3.0).map(|mode| mode.weight).sum::<f64>()
        };
        assert!((near(10.0) - 0.75).abs() < 0.02 && (near(100.0) - 0.25).abs() < 0.02, "{found:?}");
        assert_eq!(modes(&[5.0; 10], 10, 0).len(), 1);
    }
}
