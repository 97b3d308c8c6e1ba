//! Discrete Laplace noise (Ghosh, Roughgarden and Sundararajan, 2009) from secret random numbers.

use std::io::Read;

use sha2::{Digest, Sha256};

/// Random numbers that nobody can reproduce: SHA-256 of a key of the operating system and a counter. Noise from a known
/// seed could be subtracted.
pub struct SecretNumbers {
    key: [u8; 32],
    counter: u64,
}

impl SecretNumbers {
    pub fn new() -> std::io::Result<Self> {
        let mut key = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        Ok(Self { key, counter: 0 })
    }

    /// A number above zero and at most one.
    fn next(&mut self) -> f64 {
        self.counter += 1;
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(self.counter.to_le_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        ((u64::from_le_bytes(first) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A whole number with a probability in proportion to `exp(-|x| / scale)`: the difference of two geometric numbers.
    pub fn laplace(&mut self, scale: f64) -> f64 {
        let mut geometric = || (-self.next().ln() * scale).floor();
        geometric() - geometric()
    }
}

/// Counts that are nowhere negative and sum to `total`, as close as possible to noisy ones (Euclidean projection onto a
/// simplex). This uses only what is already noisy.
pub fn projected(noisy: &[f64], total: f64) -> Vec<f64> {
    let mut sorted = noisy.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut excess) = (0.0, 0.0);
    for (at, value) in sorted.iter().enumerate() {
        sum += value;
        let candidate = (sum - total) / (at + 1) as f64;
        if *value <= candidate {
            break;
        }
        excess = candidate;
    }
    noisy.iter().map(|value| (value - excess).max(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_the_scale_and_is_never_the_same() {
        let mut numbers = SecretNumbers::new().unwrap();
        let (scale, count) = (20.0, 20_000);
        let drawn: Vec<f64> = (0..count).map(|_| numbers.laplace(scale)).collect();
        assert!(drawn.iter().all(|one| one.fract() == 0.0));
        let mean_size = drawn.iter().map(|one| one.abs()).sum::<f64>() / f64::from(count);
        assert!((mean_size / scale - 1.0).abs() < 0.1, "{mean_size}");
        assert!(learn::stats::mean(&drawn).abs() < 1.0);
        let mut others = SecretNumbers::new().unwrap();
        assert!((0..100).any(|at| others.laplace(scale) != drawn[at]));
    }

    #[test]
    fn projected_counts_have_the_total_and_no_negative_ones() {
        let found = projected(&[10.0, -3.0, 5.0, 1.0], 10.0);
        assert!((found.iter().sum::<f64>() - 10.0).abs() < 1e-9);
        assert_eq!(found, [7.5, 0.0, 2.5, 0.0]);
        assert_eq!(projected(&[1.0, 1.0], 4.0), [2.0, 2.0]);
        assert_eq!(projected(&[-1.0, -1.0], 4.0), [2.0, 2.0]);
    }
}
