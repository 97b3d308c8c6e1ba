//! When to push. The nodes of a cluster start together and lose their server together, so the first push
//! comes at a random moment, and each failure in a row doubles a pause that is random too.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Pace {
    /// The pause after a push that succeeded.
    interval: Duration,
    /// The pause after many that failed.
    longest: Duration,
    n_failures: u32,
}

impl Pace {
    pub fn new(interval: Duration, longest: Duration) -> Self {
        Self { interval, longest: longest.max(interval), n_failures: 0 }
    }

    /// How long to wait before the first push. `random` is between 0 and 1, here and below.
    pub fn first_pause(&self, random: f64) -> Duration {
        self.interval.mul_f64(random)
    }

    /// How long to wait after a push.
    pub fn pause(&mut self, has_succeeded: bool, random: f64) -> Duration {
        if has_succeeded {
            self.n_failures = 0;
            return self.interval;
        }
        self.n_failures = self.n_failures.saturating_add(1);
        let doubled = self.interval.saturating_mul(2u32.saturating_pow(self.n_failures));
        doubled.min(self.longest).mul_f64(0.5 + random / 2.0)
    }
}

/// A number between 0 and 1 that differs from process to process and from call to call.
pub fn random() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pause: Duration) -> f64 {
        pause.as_secs_f64()
    }

    #[test]
    fn pauses_double_while_pushes_fail_up_to_a_bound() {
        let mut pace = Pace::new(Duration::from_secs(15), Duration::from_secs(300));
        let pauses: Vec<f64> = (0..40).map(|_| seconds(pace.pause(false, 1.0))).collect();
        assert_eq!(pauses[..5], [30.0, 60.0, 120.0, 240.0, 300.0]);
        assert!(pauses[5..].iter().all(|pause| *pause == 300.0));
        assert_eq!(seconds(pace.pause(true, 1.0)), 15.0);
        assert_eq!(seconds(pace.pause(false, 0.0)), 15.0);
    }

    #[test]
    fn nodes_that_fail_together_come_back_at_different_moments() {
        let mut comes_back = Vec::new();
        for _ in 0..1_000 {
            let mut pace = Pace::new(Duration::from_secs(15), Duration::from_secs(300));
            let mut time = seconds(pace.first_pause(random()));
            // The server is away for half an hour.
            while time < 1_800.0 {
                time += seconds(pace.pause(false, random()));
            }
            comes_back.push(time as usize);
        }
        let most = (1_800..2_101).map(|second| comes_back.iter().filter(|at| **at == second).count()).max();
        assert!(most.unwrap() < 30, "{most:?} of 1,000 nodes in the same second");
    }

    #[test]
    fn first_pushes_are_spread_over_the_interval() {
        let pace = Pace::new(Duration::from_secs(15), Duration::from_secs(300));
        let first: Vec<f64> = (0..1_000).map(|_| seconds(pace.first_pause(random()))).collect();
        assert!(first.iter().all(|pause| (0.0..=15.0).contains(pause)));
        let n_early = first.iter().filter(|pause| **pause < 7.5).count();
        assert!((400..600).contains(&n_early), "{n_early}");
    }
}
