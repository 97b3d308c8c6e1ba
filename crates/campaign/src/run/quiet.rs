//! Checks that a campaign would neither disturb other jobs on this machine nor be disturbed by them.

use std::time::Duration;

use agent::node::{Collector, Node};
use workload::{Cpu, Stop, Timestamp};

use super::{RunError, RunSettings, busy_ticks};

/// How long the machine is observed.
const OBSERVED: Duration = Duration::from_secs(2);
/// The largest fraction of CPU time that may be in use.
const MAX_BUSY: f64 = 0.1;

pub fn check(node: &mut Node, settings: &RunSettings, stop: &Stop) -> Result<(), RunError> {
    let mut sample = || {
        let time = Timestamp::from(std::time::SystemTime::now());
        let sample = node.sample(time);
        match sample.error_of(Collector::Cpu) {
            Some(error) => Err(RunError::Counters(error.to_owned())),
            None => Ok((sample.jobs.len(), sample.reading(&settings.node))),
        }
    };
    let (_, before) = sample()?;
    if settings.even_if_busy {
        return Ok(());
    }
    stop.wait(OBSERVED);
    let (n_jobs, after) = sample()?;
    if n_jobs > 0 {
        return Err(RunError::OtherJobs(n_jobs));
    }
    let threads: Vec<Cpu> = after.threads.iter().map(|thread| thread.cpu).collect();
    let ticks = busy_ticks(&after, &threads).saturating_sub(busy_ticks(&before, &threads)) as f64;
    let thread_seconds = (after.time - before.time).as_seconds() * threads.len() as f64;
    let busy = ticks / f64::from(agent::cpu::ticks_per_second()) / thread_seconds;
    if busy > MAX_BUSY { Err(RunError::Busy(busy)) } else { Ok(()) }
}
