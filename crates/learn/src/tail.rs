//! Thresholds from extreme value theory: the score that normal data exceeds with a given probability, even if
//! that is less than one in the number of scores.
//!
//! The excesses over a high quantile follow a generalised Pareto distribution (Balkema and de Haan, 1974;
//! Pickands, 1975). It is fitted by probability-weighted moments (Hosking and Wallis, 1987), which are
//! stable for a few hundred excesses.

/// The fraction of scores that form the tail.
const TAIL_FRACTION: f64 = 0.05;
const MIN_EXCEEDANCES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TailError {
    #[error("{n_scores} scores are too few for a threshold; at least {needed} are needed")]
    TooFew { n_scores: usize, needed: usize },
    #[error("the false alarm rate must lie between 0 and 1")]
    Rate,
    #[error("a score is not finite")]
    NotFinite,
}

/// The fitted tail of scores.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tail {
    /// Where the tail begins, and the fraction of scores above it.
    pub from: f64,
    pub share: f64,
    /// The parameters of the generalised Pareto distribution; a shape above zero is a heavy tail.
    pub scale: f64,
    pub shape: f64,
}

impl Tail {
    pub fn fit(scores: &[f64]) -> Result<Self, TailError> {
        let needed = (MIN_EXCEEDANCES as f64 / TAIL_FRACTION).ceil() as usize;
        let n_scores = scores.len();
        if n_scores < needed {
            return Err(TailError::TooFew { n_scores, needed });
        }
        if scores.iter().any(|score| !score.is_finite()) {
            return Err(TailError::NotFinite);
        }
        let mut sorted = scores.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n_above = ((n_scores as f64 * TAIL_FRACTION) as usize).max(MIN_EXCEEDANCES);
        let from = sorted[n_scores - n_above - 1];
        let above: Vec<f64> = sorted[n_scores - n_above..].iter().map(|score| score - from).collect();
        let n_above = above.len() as f64;
        let mean = above.iter().sum::<f64>() / n_above;
        // The second moment weights each excess by its probability of being exceeded.
        let weighted = above.iter().enumerate().map(|(rank, excess)| {
            let exceeded = 1.0 - (rank as f64 + 0.65) / n_above;
            exceeded * excess
        });
        let second = weighted.sum::<f64>() / n_above;
        let denominator = mean - 2.0 * second;
        let share = n_above / n_scores as f64;
        if mean <= 0.0 || denominator <= 1e-12 * mean {
            return Ok(Self { from, share, scale: mean.max(0.0), shape: 0.0 });
        }
        // Above one half the moments do not exist; below minus one half the tail would end at once.
        let shape = (2.0 - mean / denominator).clamp(-0.5, 0.5);
        Ok(Self { from, share, scale: mean * (1.0 - shape), shape })
    }

    /// Whether the parameters are those of a distribution.
    pub fn is_valid(&self) -> bool {
        let all_finite = [self.from, self.share, self.scale, self.shape].iter().all(|one| one.is_finite());
        all_finite && self.share > 0.0 && self.share <= 1.0 && self.scale >= 0.0
    }

    /// The score that normal data exceeds with this probability.
    pub fn threshold(&self, rate: f64) -> Result<f64, TailError> {
        if !(rate > 0.0 && rate < 1.0) {
            return Err(TailError::Rate);
        }
        let left = (rate / self.share).min(1.0);
        let excess = if self.shape.abs() < 1e-6 {
            -self.scale * left.ln()
        } else {
            self.scale / self.shape * (left.powf(-self.shape) - 1.0)
        };
        Ok(self.from + excess)
    }

    /// The probability that a score of normal data is at least this high; below the tail, the fraction of
    /// scores in the tail.
    pub fn probability(&self, score: f64) -> f64 {
        let excess = score - self.from;
        if excess <= 0.0 {
            return self.share;
        }
        if self.scale <= 0.0 {
            return 0.0;
        }
        let left = if self.shape.abs() < 1e-6 {
            (-excess / self.scale).exp()
        } else {
            (1.0 + self.shape * excess / self.scale).max(0.0).powf(-1.0 / self.shape)
        };
        self.share * left
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::{Exp1, StandardNormal};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn exceeded(draw: impl Fn(&mut Xoshiro256PlusPlus) -> f64, rate: f64) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        let seen: Vec<f64> = (0..10_000).map(|_| draw(&mut rng)).collect();
        let threshold = Tail::fit(&seen).unwrap().threshold(rate).unwrap();
        (0..400_000).filter(|_| draw(&mut rng) > threshold).count() as f64 / 400_000.0
    }

    #[test]
    fn a_threshold_is_exceeded_as_often_as_stated() {
        for rate in [1e-2, 1e-3] {
            let normal = exceeded(|rng| rng.sample::<f64, _>(StandardNormal), rate);
            let exponential = exceeded(|rng| rng.sample(Exp1), rate);
            let squared = exceeded(|rng| rng.sample::<f64, _>(StandardNormal).powi(4), rate);
            for found in [normal, exponential, squared] {
                assert!((0.5..2.0).contains(&(found / rate)), "{found} {rate}");
            }
        }
    }

    #[test]
    fn the_probability_of_a_threshold_is_its_rate() {
        let scores: Vec<f64> = (0..1_000).map(|at| (f64::from(at) * 0.618).fract().powi(3)).collect();
        let tail = Tail::fit(&scores).unwrap();
        for rate in [0.04, 0.01, 1e-4] {
            assert!((tail.probability(tail.threshold(rate).unwrap()) / rate - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn equal_scores_are_their_own_threshold() {
        let tail = Tail::fit(&[0.25; 500]).unwrap();
        assert_eq!(tail.threshold(1e-3).unwrap(), 0.25);
        assert!(matches!(Tail::fit(&[1.0; 5]), Err(TailError::TooFew { .. })));
        assert_eq!(tail.threshold(0.0), Err(TailError::Rate));
    }
}
