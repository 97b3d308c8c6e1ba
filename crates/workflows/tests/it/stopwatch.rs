//! How long something takes, also on a machine that other programs keep busy.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

pub struct Stopwatch {
    begun: Instant,
    cpu_seconds: f64,
}

/// The CPU time of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { begun: Instant::now(), cpu_seconds: cpu_seconds() }
    }

    /// Seconds since the start on the clock or on the CPU, whichever is less.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64().min(cpu_seconds() - self.cpu_seconds)
    }
}
