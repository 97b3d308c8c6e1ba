//! The jobs themselves: real work on the threads that they are given, for as long as they are told.

mod io;
mod mpi;
mod np;
mod trouble;
pub mod waves;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use workload::Cpu;

use crate::kind::Kind;

pub use mpi::{Mpi, find_mpi};

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("the fit failed: {0}")]
    Fit(String),
    #[error("{program} failed: {reason}")]
    Program { program: String, reason: String },
}

impl JobError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// What a job is told.
#[derive(Debug, Clone)]
pub struct Order {
    pub kind: Kind,
    /// The threads it runs on, one worker each.
    pub cpus: Vec<Cpu>,
    pub length: Duration,
    pub seed: u64,
    /// Where it may write, and what it leaves nothing behind in.
    pub scratch: PathBuf,
    /// Bytes that it may have on disk at any moment.
    pub quota: u64,
}

impl Order {
    /// The process that does as it is told, but for where it runs.
    pub fn command(&self) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["campaign", "job", "--kind", &self.kind.to_string()])
            .args(["--seconds", &self.length.as_secs_f64().to_string()])
            .args(["--seed", &self.seed.to_string(), "--quota", &self.quota.to_string(), "--scratch"])
            .arg(&self.scratch);
        Ok(command)
    }

    /// The same process on the threads that it is given, which ends when its stdin does.
    pub fn tied_command(&self) -> std::io::Result<Command> {
        let mut command = self.command()?;
        command.args(["--tied", "--cpus", &list(&self.cpus)]).stdin(Stdio::piped());
        Ok(command)
    }
}

fn list(cpus: &[Cpu]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// How long a job goes on: until its time is over, or somebody has ended it.
#[derive(Debug, Clone)]
pub struct Until {
    deadline: Instant,
    ended: Arc<AtomicBool>,
}

impl Until {
    pub fn after(length: Duration) -> Self {
        Self { deadline: Instant::now() + length, ended: Arc::default() }
    }

    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn rest(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Sleeps, but not longer than it lasts.
    fn sleep(&self, length: Duration) {
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        let wake = Instant::now() + length.min(self.rest());
        while !self.is_over() && Instant::now() < wake {
            std::thread::sleep(wake.saturating_duration_since(Instant::now()).min(LOOK_EVERY));
        }
    }

    /// Ends when stdin does: whoever started the job is gone then, and the job shall not outlive them.
    pub fn end_with_stdin(&self) {
        let until = self.clone();
        std::thread::spawn(move || {
            let mut byte = [0];
            while matches!(std::io::stdin().read(&mut byte), Ok(1)) {}
            until.end();
        });
    }
}

/// Runs a job to its end.
pub fn run(order: &Order, until: &Until) -> Result<(), JobError> {
    confine(&order.cpus)?;
    match order.kind {
        Kind::Np => np::run(order, until),
        Kind::GoodIo => io::write_well(order, until),
        Kind::BadIo => io::write_badly(order, until),
        Kind::Mpi(_) => mpi::run(order, until, None),
        Kind::StuckRank => mpi::run(order, until, Some(0)),
        Kind::CpuHog => {
            trouble::beside(until, || mpi::run(order, until, None), || trouble::hog(order, until))
        }
        Kind::MemoryPressure => {
            trouble::beside(until, || np::run(order, until), || trouble::churn_memory(order, until))
        }
        Kind::Leak => trouble::beside(until, || np::run(order, until), || trouble::leak(until)),
        Kind::Throttled => trouble::throttle(order, until),
        Kind::Idle => {
            until.sleep(order.length);
            Ok(())
        }
    }
}

/// The threads that this process may run on.
pub fn allowed_cpus() -> Result<Vec<Cpu>, JobError> {
    let mask = sched_getaffinity(None).map_err(|error| JobError::io("affinity")(error.into()))?;
    Ok((0..Mask::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).map(|cpu| Cpu(cpu as u16)).collect())
}

/// Keeps the calling thread, and those it starts from now on, on these hardware threads.
fn confine(cpus: &[Cpu]) -> Result<(), JobError> {
    let mut mask = Mask::new();
    cpus.iter().for_each(|cpu| mask.set(usize::from(cpu.0)));
    sched_setaffinity(None, &mask).map_err(|error| JobError::io(format!("CPUs {}", list(cpus)))(error.into()))
}

/// One worker a thread, each on its own; the first error ends them all.
fn on_each(
    order: &Order,
    until: &Until,
    work: impl Fn(usize) -> Result<(), JobError> + Sync,
) -> Result<(), JobError> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = order
            .cpus
            .iter()
            .enumerate()
            .map(|(index, cpu)| {
                scope.spawn(move || {
                    let outcome = confine(&[*cpu]).and_then(|()| work(index));
                    if outcome.is_err() {
                        until.end();
                    }
                    outcome
                })
            })
            .collect();
        workers.into_iter().try_for_each(join)
    })
}

fn join(worker: std::thread::ScopedJoinHandle<'_, Result<(), JobError>>) -> Result<(), JobError> {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
