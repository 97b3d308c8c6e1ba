//! Thresholds from the tail of a distribution: how high a score has to be to come by chance no more
//! often than stated, also where fewer scores were seen than that would take.
//!
//! Above a high quantile, what exceeds it follows a generalised Pareto distribution (Pickands, Balkema,
//! de Haan), fitted here by probability-weighted moments (Hosking and Wallis, 1987), which are stable
//! for the few hundred exceedances that there are.

/// The share of scores that are the tail.
const TAIL_SHARE: f64 = 0.05;
const LEAST_EXCEEDANCES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TailError {
    #[error("{n_scores} scores are too few for a threshold; {needed} are needed")]
    TooFew { n_scores: usize, needed: usize },
    #[error("a rate of false alarms lies between zero and one")]
    Rate,
    #[error("a score is no number")]
    NotANumber,
}

/// The fitted tail of scores.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Tail {
    /// Where the tail begins, and the share of scores above it.
    pub from: f64,
    pub share: f64,
    /// Of the generalised Pareto distribution; a shape above zero is a heavy tail.
    pub scale: f64,
    pub shape: f64,
}

impl Tail {
    pub fn fit(scores: &[f64]) -> Result<Self, TailError> {
        let needed = (LEAST_EXCEEDANCES as f64 / TAIL_SHARE).ceil() as usize;
        let n_scores = scores.len();
        if n_scores < needed {
            return Err(TailError::TooFew { n_scores, needed });
        }
        if scores.iter().any(|score| !score.is_finite()) {
            return Err(TailError::NotANumber);
        }
        let mut sorted = scores.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n_above = ((n_scores as f64 * TAIL_SHARE) as usize).max(LEAST_EXCEEDANCES);
        let from = sorted[n_scores - n_above - 1];
        let above: Vec<f64> = sorted[n_scores - n_above..].iter().map(|score| score - from).collect();
        let n_above = above.len() as f64;
        let mean = above.iter().sum::<f64>() / n_above;
        // The second moment weighs each by its chance of being exceeded.
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
        // Beyond a half, moments say nothing any more; below minus a half, the tail would end at once.
        let shape = (2.0 - mean / denominator).clamp(-0.5, 0.5);
        Ok(Self { from, share, scale: mean * (1.0 - shape), shape })
    }

    /// The score that is exceeded by chance with this rate.
    pub fn threshold(&self, rate: f64) -> Result<f64, TailError> {
        if !(rate > 0.0 && rate < 1.0) {
            return Err(TailError::Rate);
        }
        let left = (rate / self.share).min(1.0);
        let excess = match self.shape.abs() < 1e-6 {
            true => -self.scale * left.ln(),
            false => self.scale / self.shape * (left.powf(-self.shape) - 1.0),
        };
        Ok(self.from + excess)
    }

    /// The chance that a score from the same source is at least this high.
    pub fn chance(&self, score: f64) -> f64 {
        let excess = score - self.from;
        if excess <= 0.0 {
            return self.share;
        }
        if self.scale <= 0.0 {
            return 0.0;
        }
        let left = match self.shape.abs() < 1e-6 {
            true => (-excess / self.scale).exp(),
            false => (1.0 + self.shape * excess / self.scale).max(0.0).powf(-1.0 / self.shape),
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
    fn a_chance_is_the_rate_of_its_threshold() {
        let scores: Vec<f64> = (0..1_000).map(|at| (f64::from(at) * 0.618).fract().powi(3)).collect();
        let tail = Tail::fit(&scores).unwrap();
        for rate in [0.04, 0.01, 1e-4] {
            assert!((tail.chance(tail.threshold(rate).unwrap()) / rate - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn scores_that_are_all_alike_have_a_threshold_above_none_of_them() {
        let tail = Tail::fit(&[0.25; 500]).unwrap();
        assert_eq!(tail.threshold(1e-3).unwrap(), 0.25);
        assert!(matches!(Tail::fit(&[1.0; 5]), Err(TailError::TooFew { .. })));
        assert_eq!(tail.threshold(0.0), Err(TailError::Rate));
    }
}
