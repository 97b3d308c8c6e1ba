//! Faults that run alongside a job, or are done to it.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{JobError, JobRunner, JobSpec, Until, confine, join, on_each};
use crate::kind::Kind;

/// The limit of what a leak keeps.
const MAX_LEAKED: usize = 1 << 30;
const LEAKED_PER_SECOND: usize = 4 << 20;
const CHURNED_BYTES: usize = 64 << 20;
const PIECE_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 4_096;
/// The period of the kernel's CPU bandwidth limit, and the fraction of it in which the job may run.
const PERIOD: Duration = Duration::from_millis(100);
const RUN_FRACTION: f64 = 0.3;

/// Runs a job, and a fault in a thread of its own until the job ends.
pub fn alongside(
    until: &Until,
    job: impl FnOnce() -> Result<(), JobError>,
    fault: impl FnOnce() -> Result<(), JobError> + Send,
) -> Result<(), JobError> {
    std::thread::scope(|scope| {
        let fault = scope.spawn(fault);
        let outcome = job();
        until.end();
        outcome.and(join(fault))
    })
}

/// Computes on each CPU for a percentage of every period.
pub fn run_away(spec: &JobSpec, until: &Until, percent: u8) -> Result<(), JobError> {
    on_each(spec, until, |worker| {
        let mut number = (spec.seed as f64) + worker as f64;
        let mut period_start = Instant::now();
        while !until.is_over() {
            let computed_until = period_start + PERIOD.mul_f64(f64::from(percent) / 100.0);
            while Instant::now() < computed_until && !until.is_over() {
                number = (0..10_000).fold(number, |number, step| (number + f64::from(step)).sqrt());
            }
            // A hog that was kept from running does not catch up.
            period_start = (period_start + PERIOD).max(Instant::now() - PERIOD);
            std::thread::sleep(period_start.saturating_duration_since(Instant::now()));
        }
        std::hint::black_box(number);
        Ok(())
    })
}

/// Takes memory from the kernel, fills it and gives it back, on the job's last CPU. It uses memory files
/// because an allocator would keep freed memory.
pub fn churn_memory(spec: &JobSpec, until: &Until) -> Result<(), JobError> {
    confine(&spec.cpus[spec.cpus.len() - 1..])?;
    let piece = vec![1; PIECE_BYTES];
    while !until.is_over() {
        let memory = rustix::fs::memfd_create("churn", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|error| JobError::io("memory")(error.into()))?;
        let mut memory = File::from(memory);
        for _ in 0..CHURNED_BYTES / PIECE_BYTES {
            memory.write_all(&piece).map_err(JobError::io("memory"))?;
        }
    }
    Ok(())
}

/// Keeps more memory every second, up to a limit.
pub fn leak(until: &Until) -> Result<(), JobError> {
    let mut kept = Vec::new();
    while !until.is_over() {
        if kept.len() * LEAKED_PER_SECOND < MAX_LEAKED {
            kept.push(touched(LEAKED_PER_SECOND));
        }
        until.sleep(Duration::from_secs(1));
    }
    std::hint::black_box(kept);
    Ok(())
}

fn touched(n_bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; n_bytes];
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    memory
}

/// Runs a fit in a process of its own, and stops that for most of every period.
pub fn throttle(spec: &JobSpec, runner: &JobRunner, until: &Until) -> Result<(), JobError> {
    let failed = || JobError::io("throttled fit");
    let fit = JobSpec { kind: Kind::Np, length: until.rest(), ..spec.clone() };
    let mut child = runner.tied_command(&fit).spawn().map_err(failed())?;
    let pid = Pid::from_child(&child);
    let mut next = Instant::now();
    while !until.is_over() && child.try_wait().map_err(failed())?.is_none() {
        let _ = kill_process(pid, Signal::CONT);
        std::thread::sleep(PERIOD.mul_f64(RUN_FRACTION));
        let _ = kill_process(pid, Signal::STOP);
        next += PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let _ = kill_process(pid, Signal::CONT);
    // It ends when its stdin is closed.
    drop(child.stdin.take());
    let status = child.wait().map_err(failed())?;
    if status.success() {
        return Ok(());
    }
    Err(JobError::Program { program: "the throttled fit".into(), reason: status.to_string() })
}
