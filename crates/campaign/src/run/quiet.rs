//! Whether jobs would disturb others here, or others the jobs.

use std::time::Duration;

use agent::node::{Collector, Node};
use workload::Stop;
use workload::{Cpu, Timestamp};

use super::{RunError, RunSettings, busy_ticks};

const LOOK: Duration = Duration::from_secs(2);
/// The share of the machine that may be busy.
const MOST_BUSY: f64 = 0.1;

pub fn check(node: &mut Node, settings: &RunSettings, stop: &Stop) -> Result<(), RunError> {
    let mut look = || {
        let time = Timestamp::from(std::time::SystemTime::now());
        let sample = node.sample(time);
        match sample.error_of(Collector::Cpu) {
            Some(error) => Err(RunError::Unreadable(error.to_owned())),
            None => Ok((sample.jobs.len(), sample.reading(&settings.node))),
        }
    };
    let (_, before) = look()?;
    if settings.even_if_busy {
        return Ok(());
    }
    stop.wait(LOOK);
    let (n_jobs, after) = look()?;
    if n_jobs > 0 {
        let jobs = if n_jobs == 1 { "1 job runs".into() } else { format!("{n_jobs} jobs run") };
        return Err(RunError::Busy(format!("{jobs} on this machine, which a campaign would disturb")));
    }
    let threads: Vec<Cpu> = after.threads.iter().map(|thread| thread.cpu).collect();
    let ticks = busy_ticks(&after, &threads).saturating_sub(busy_ticks(&before, &threads)) as f64;
    let all = (after.time - before.time).as_seconds() * threads.len() as f64;
    let share = ticks / f64::from(agent::cpu::ticks_per_second()) / all;
    if share > MOST_BUSY {
        let percent = (share * 100.0).round();
        return Err(RunError::Busy(format!(
            "{percent} % of this machine is busy with something else, which a campaign would disturb"
        )));
    }
    Ok(())
}
