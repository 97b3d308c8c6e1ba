//! The jobs of a campaign: real work on given CPUs for a given time.

mod fault;
mod io;
mod mpi;
mod np;
pub mod waves;

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use workload::Cpu;

use crate::kind::Kind;

use mpi::Ranks;
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

/// One job: its kind, and the resources it gets.
#[derive(Debug, Clone)]
pub struct JobSpec {
    pub kind: Kind,
    /// The CPUs it runs on, one worker per CPU.
    pub cpus: Vec<Cpu>,
    pub length: Duration,
    pub seed: u64,
    /// The directory it writes to; it removes its files at the end.
    pub scratch: PathBuf,
    /// Bytes that it may have on disk at any moment.
    pub quota: u64,
}

/// The program that runs one job in a process of its own. It gets `arguments`, then those that describe a
/// [`JobSpec`], and has to call [`run`] with that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRunner {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

impl JobRunner {
    /// The process of a job, not bound to CPUs: a scheduler does that.
    pub fn command(&self, spec: &JobSpec) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .args(["--kind", &spec.kind.to_string()])
            .args(["--seconds", &spec.length.as_secs_f64().to_string()])
            .args(["--seed", &spec.seed.to_string(), "--quota", &spec.quota.to_string(), "--scratch"])
            .arg(&spec.scratch);
        command
    }

    /// The process of a job, bound to its CPUs, that ends when its stdin is closed.
    pub fn tied_command(&self, spec: &JobSpec) -> Command {
        let mut command = self.command(spec);
        command.args(["--tied", "--cpus", &list(&spec.cpus)]).stdin(Stdio::piped());
        command
    }
}

fn list(cpus: &[Cpu]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// When a job ends: at its deadline, or when it is told to.
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

    /// Sleeps for `length`, or until the job ends.
    fn sleep(&self, length: Duration) {
        const CHECK_EVERY: Duration = Duration::from_millis(200);
        let wake = Instant::now() + length.min(self.rest());
        while !self.is_over() && Instant::now() < wake {
            std::thread::sleep(wake.saturating_duration_since(Instant::now()).min(CHECK_EVERY));
        }
    }

    /// Ends the job when stdin is closed, so that it does not outlive the process that started it.
    pub fn end_with_stdin(&self) {
        let until = self.clone();
        std::thread::spawn(move || {
            let mut byte = [0];
            while matches!(std::io::stdin().read(&mut byte), Ok(1)) {}
            until.end();
        });
    }
}

/// Runs a job to its end. `runner` starts further processes for the kinds that need them.
pub fn run(spec: &JobSpec, runner: &JobRunner, until: &Until) -> Result<(), JobError> {
    confine(&spec.cpus)?;
    match spec.kind {
        Kind::Np => np::run(spec, until),
        Kind::GoodIo => io::write_buffered(spec, until),
        Kind::BadIo => io::write_synchronous(spec, until),
        // The process that hogs a thread of `cpu-hog` is not part of the job.
        Kind::Mpi(_) | Kind::CpuHog(_) => mpi::run(spec, until, Ranks::Random),
        Kind::SteadyMpi(_) => mpi::run(spec, until, Ranks::Steady),
        Kind::StuckRank => mpi::run(spec, until, Ranks::Stuck),
        Kind::Runaway(percent) => fault::run_away(spec, until, percent),
        Kind::MemoryPressure => {
            fault::alongside(until, || np::run(spec, until), || fault::churn_memory(spec, until))
        }
        Kind::Leak => fault::alongside(until, || np::run(spec, until), || fault::leak(until)),
        Kind::Throttled => fault::throttle(spec, runner, until),
        Kind::Idle => {
            until.sleep(spec.length);
            Ok(())
        }
    }
}

/// The CPUs that this process may run on.
pub fn allowed_cpus() -> Result<Vec<Cpu>, JobError> {
    let mask = sched_getaffinity(None).map_err(|error| JobError::io("affinity")(error.into()))?;
    Ok((0..Mask::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).map(|cpu| Cpu(cpu as u16)).collect())
}

/// Binds the calling thread, and the threads it starts from now on, to these CPUs.
fn confine(cpus: &[Cpu]) -> Result<(), JobError> {
    let mut mask = Mask::new();
    cpus.iter().for_each(|cpu| mask.set(usize::from(cpu.0)));
    sched_setaffinity(None, &mask).map_err(|error| JobError::io(format!("CPUs {}", list(cpus)))(error.into()))
}

/// Runs one worker per CPU, each bound to its CPU; the first error ends all of them.
fn on_each(
    spec: &JobSpec,
    until: &Until,
    work: impl Fn(usize) -> Result<(), JobError> + Sync,
) -> Result<(), JobError> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = spec
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
