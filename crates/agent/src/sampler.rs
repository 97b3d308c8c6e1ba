//! A steady clock: ticks at whole intervals, without drift, and with a count of those missed.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use workload::{Stop, Timestamp};

/// Wakes at every multiple of an interval of the wall clock, held by the steady clock.
#[derive(Debug)]
pub struct Sampler {
    interval: Duration,
    next: Instant,
    missed: u64,
    /// How long the machine had slept at the last tick; the steady clock stands still meanwhile.
    slept: Duration,
}

impl Sampler {
    /// The first tick comes at the next whole multiple of `interval` after now.
    pub fn new(interval: Duration) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let into = since_epoch.as_nanos() % interval.as_nanos().max(1);
        let wait = interval.saturating_sub(Duration::from_nanos(into as u64));
        Self { interval, next: Instant::now() + wait, missed: 0, slept: slept() }
    }

    /// How many ticks passed while the caller was busy or the machine slept.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Waits for the next tick and returns its time; `None` when it is time to stop.
    pub fn wait(&mut self, stop: &Stop) -> Option<Timestamp> {
        if stop.wait(self.next.saturating_duration_since(Instant::now())) {
            return None;
        }
        let now = Instant::now();
        self.next += self.interval;
        while self.next <= now {
            self.next += self.interval;
            self.missed += 1;
        }
        let slept = slept();
        let n_slept = slept.saturating_sub(self.slept).as_nanos() / self.interval.as_nanos().max(1);
        self.missed += n_slept as u64;
        self.slept = slept;
        Some(SystemTime::now().into())
    }
}

/// How long the machine has slept since it was started.
fn slept() -> Duration {
    let clock = |id| {
        let time = clock_gettime(id);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    };
    let steady = clock(ClockId::Monotonic);
    clock(ClockId::Boottime).saturating_sub(steady)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_do_not_drift_and_missed_ones_are_counted() {
        let (mut sampler, stop) = (Sampler::new(Duration::from_millis(20)), Stop::default());
        let begin = sampler.next;
        for _ in 0..3 {
            sampler.wait(&stop).unwrap();
        }
        std::thread::sleep(Duration::from_millis(90));
        sampler.wait(&stop).unwrap();
        assert!(sampler.missed() >= 3, "{}", sampler.missed());
        let steps = (sampler.next - begin).as_nanos() % 20_000_000;
        assert_eq!(steps, 0);
    }

    #[test]
    fn waiting_ends_when_told_to() {
        let (mut sampler, stop) = (Sampler::new(Duration::from_secs(3_600)), Stop::default());
        let other = stop.clone();
        let thread = std::thread::spawn(move || other.now());
        assert_eq!(sampler.wait(&stop), None);
        thread.join().unwrap();
        assert_eq!(sampler.wait(&Stop::after(Some(Duration::from_millis(5)))), None);
    }
}
