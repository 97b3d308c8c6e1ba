//! What goes wrong beside a job, or with it.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{JobError, Order, Until, confine, join};
use crate::kind::Kind;

/// Memory that trouble takes at most.
const MOST_MEMORY: usize = 1 << 30;
const LEAKED_A_SECOND: usize = 4 << 20;
const CHURNED: usize = 64 << 20;
const PIECE: usize = 1 << 20;
const PAGE: usize = 4_096;
/// The period of the kernel's own bandwidth limit, and the share of it that is left.
const PERIOD: Duration = Duration::from_millis(100);
const SHARE: f64 = 0.3;

/// Runs a job and what troubles it, on a thread of its own.
pub fn beside(
    until: &Until,
    job: impl FnOnce() -> Result<(), JobError>,
    trouble: impl FnOnce() -> Result<(), JobError> + Send,
) -> Result<(), JobError> {
    std::thread::scope(|scope| {
        let trouble = scope.spawn(trouble);
        let outcome = job();
        until.end();
        outcome.and(join(trouble))
    })
}

/// Computes on the job's first thread.
pub fn hog(order: &Order, until: &Until) -> Result<(), JobError> {
    confine(&order.cpus[..1])?;
    let mut number = order.seed as f64;
    while !until.is_over() {
        number = (0..100_000).fold(number, |number, step| (number + f64::from(step)).sqrt());
    }
    std::hint::black_box(number);
    Ok(())
}

/// Takes memory from the kernel, fills it, and gives it back, on the job's last thread. (An allocator
/// would keep it.)
pub fn churn_memory(order: &Order, until: &Until) -> Result<(), JobError> {
    confine(&order.cpus[order.cpus.len() - 1..])?;
    let piece = vec![1; PIECE];
    while !until.is_over() {
        let memory = rustix::fs::memfd_create("churn", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|error| JobError::io("memory")(error.into()))?;
        let mut memory = File::from(memory);
        for _ in 0..CHURNED / PIECE {
            memory.write_all(&piece).map_err(JobError::io("memory"))?;
        }
    }
    Ok(())
}

/// Keeps a little more memory every second.
pub fn leak(until: &Until) -> Result<(), JobError> {
    let mut kept = Vec::new();
    while !until.is_over() {
        if kept.len() * LEAKED_A_SECOND < MOST_MEMORY {
            kept.push(touched(LEAKED_A_SECOND));
        }
        until.sleep(Duration::from_secs(1));
    }
    std::hint::black_box(kept);
    Ok(())
}

fn touched(n_bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; n_bytes];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    memory
}

/// A fit in a process of its own, which is stopped for most of every period.
pub fn throttle(order: &Order, until: &Until) -> Result<(), JobError> {
    let failed = || JobError::io("throttled fit");
    let fit = Order { kind: Kind::Np, length: until.rest(), ..order.clone() };
    let mut child = fit.tied_command().and_then(|mut command| command.spawn()).map_err(failed())?;
    let pid = Pid::from_child(&child);
    let mut next = Instant::now();
    while !until.is_over() && child.try_wait().map_err(failed())?.is_none() {
        let _ = kill_process(pid, Signal::CONT);
        std::thread::sleep(PERIOD.mul_f64(SHARE));
        let _ = kill_process(pid, Signal::STOP);
        next += PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let _ = kill_process(pid, Signal::CONT);
    // It ends by itself when its stdin does.
    drop(child.stdin.take());
    let status = child.wait().map_err(failed())?;
    if status.success() {
        return Ok(());
    }
    Err(JobError::Program { program: "the throttled fit".into(), reason: status.to_string() })
}
