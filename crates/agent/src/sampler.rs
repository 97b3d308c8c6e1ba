//! A steady clock: ticks at whole intervals, without drift, and with a count of those missed.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use workload::Timestamp;

/// Wakes at every multiple of an interval of the wall clock, held by the steady clock.
#[derive(Debug)]
pub struct Sampler {
    interval: Duration,
    next: Instant,
    missed: u64,
}

impl Sampler {
    /// The first tick comes at the next whole multiple of `interval` after now.
    pub fn new(interval: Duration) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let into = since_epoch.as_nanos() % interval.as_nanos().max(1);
        let wait = interval.saturating_sub(Duration::from_nanos(into as u64));
        Self { interval, next: Instant::now() + wait, missed: 0 }
    }

    /// How many ticks passed while the caller was busy or the machine slept.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Waits for the next tick, or until `stop` says so, and returns when it is.
    pub fn wait(&mut self, mut stop: impl FnMut() -> bool) -> Option<Timestamp> {
        loop {
            if stop() {
                return None;
            }
            match self.next.checked_duration_since(Instant::now()) {
                Some(rest) if !rest.is_zero() => std::thread::sleep(rest.min(Duration::from_millis(100))),
                _ => break,
            }
        }
        let now = Instant::now();
        self.next += self.interval;
        while self.next <= now {
            self.next += self.interval;
            self.missed += 1;
        }
        Some(SystemTime::now().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_do_not_drift_and_missed_ones_are_counted() {
        let mut sampler = Sampler::new(Duration::from_millis(20));
        let begin = sampler.next;
        for _ in 0..3 {
            sampler.wait(|| false).unwrap();
        }
        std::thread::sleep(Duration::from_millis(90));
        sampler.wait(|| false).unwrap();
        assert!(sampler.missed() >= 3, "{}", sampler.missed());
        let steps = (sampler.next - begin).as_nanos() % 20_000_000;
        assert_eq!(steps, 0);
    }

    #[test]
    fn waiting_ends_when_told_to() {
        let mut sampler = Sampler::new(Duration::from_secs(3_600));
        assert_eq!(sampler.wait(|| true), None);
    }
}
