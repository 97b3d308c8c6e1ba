//! Values near those of a group of similar jobs.

use rand::RngExt;
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Values whose logarithms differ by less than this may be interpolated.
const MAX_LOG_STEP: f64 = 0.3;
/// The standard deviation of the perturbation of a value without neighbours, as a logarithm.
const ISOLATED_STD_DEV: f64 = 0.15;
/// The standard deviation of the perturbation of a group of values, relative to that of the group.
const PERTURBATION: f64 = 0.5;
/// The range of the standard deviation of a group.
const MIN_GROUP_STD_DEV: f64 = 0.005;
const MAX_GROUP_STD_DEV: f64 = 0.3;

pub(super) fn normal(rng: &mut Xoshiro256PlusPlus) -> f64 {
    rng.sample(StandardNormal)
}

/// How values are perturbed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Perturbation {
    /// How much values of the same session deviate, in standard deviations.
    pub shift: f64,
    /// A factor of all standard deviations.
    pub spread: f64,
}

impl Perturbation {
    pub const PLAIN: Self = Self { shift: 0.0, spread: 1.0 };

    /// A run time near the chosen one, on the same side of the limit.
    pub fn within(self, similar: &[f64], chosen: usize, limit: f64, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let value = similar[chosen];
        if value.is_nan() {
            return value;
        }
        let is_over = value > limit;
        let is_same_side = |other: &&f64| (**other > limit) == is_over;
        let same_side: Vec<f64> = similar.iter().filter(is_same_side).copied().collect();
        let chosen = similar[..chosen].iter().filter(is_same_side).count();
        if is_over {
            let excess: Vec<f64> = same_side.iter().map(|value| value - limit).collect();
            return limit + Self { shift: 0.0, ..self }.near(&excess, chosen, rng);
        }
        let shift = if value < 0.9 * limit { self.shift } else { 0.0 };
        let perturbed = Self { shift, ..self }.near(&same_side, chosen, rng);
        if perturbed > limit { value * value / perturbed } else { perturbed }
    }

    /// A value between the chosen one and its neighbour, plus noise; if it has no neighbour, the value plus noise.
    pub fn near(self, similar: &[f64], chosen: usize, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let value = similar[chosen];
        if value.is_nan() || value <= 0.0 {
            return value;
        }
        let std_dev = log_std_dev(similar)
            .map_or(ISOLATED_STD_DEV, |std_dev| std_dev.clamp(MIN_GROUP_STD_DEV, MAX_GROUP_STD_DEV));
        let std_dev = std_dev * PERTURBATION * self.spread;
        let is_up = rng.random::<bool>();
        let others = similar
            .iter()
            .enumerate()
            .filter(|(at, other)| *at != chosen && **other > 0.0)
            .map(|(_, other)| *other);
        let neighbour = if is_up {
            others.filter(|other| *other >= value).min_by(f64::total_cmp)
        } else {
            others.filter(|other| *other <= value).max_by(f64::total_cmp)
        };
        let step = match neighbour.map(|other| (other / value).ln()).filter(|step| step.abs() < MAX_LOG_STEP)
        {
            Some(step) => rng.random::<f64>() * step + 0.5 * std_dev * normal(rng),
            None => ISOLATED_STD_DEV * self.spread * normal(rng),
        };
        value * (step + self.shift * std_dev).exp()
    }
}

/// The standard deviation of the logarithms of positive values, if there are several.
fn log_std_dev(values: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
    (logs.len() > 1).then(|| learn::stats::std_dev(&logs))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_run_time_stays_on_its_side_of_the_limit() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let wide = Perturbation { shift: 2.0, spread: 5.0 };
        for _ in 0..200 {
            assert!(wide.within(&[95.0, 99.0, 103.0], 1, 100.0, &mut rng) <= 100.0);
            assert!(wide.within(&[95.0, 99.0, 103.0], 2, 100.0, &mut rng) > 100.0);
        }
        assert!(wide.within(&[f64::NAN], 0, 100.0, &mut rng).is_nan());
        assert_eq!(wide.near(&[0.0, 5.0], 0, &mut rng), 0.0);
    }
}
