//! `mpi-N` and `mpi-steady-N`: ranks that compute and then meet in an Allreduce, in a loop. They are bound by the
//! CPU. Real ranks where MPICH is installed, else threads and a barrier.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_distr::{Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{JobError, JobSpec, Until, on_each};

const PROGRAM: &str = include_str!("allreduce.c");
/// The mean time that a rank computes between two meetings.
const MEAN_SECONDS: f64 = 0.25;
/// The standard deviation of that time for steady ranks, as a fraction of its mean.
const STEADY_SPREAD: f64 = 0.1;
/// How long the ranks may take to finish after the deadline.
const GRACE: Duration = Duration::from_secs(5);

/// An MPI that programs can be compiled for and run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mpi {
    compiler: PathBuf,
    launcher: PathBuf,
}

impl Mpi {
    /// The value of `made_by` in labels of jobs that ran with it.
    pub const NAME: &'static str = "mpich";
    /// The value of `made_by` where no MPI was found.
    pub const NAME_WITHOUT: &'static str = "threads and a barrier";

    /// Compiles the ranks' program into a directory, unless it is there already.
    pub fn compile(&self, directory: &Path) -> Result<PathBuf, JobError> {
        let (source, program) = (directory.join("allreduce.c"), directory.join("allreduce"));
        if program.exists() {
            return Ok(program);
        }
        fs::write(&source, PROGRAM).map_err(JobError::io(source.display().to_string()))?;
        let output = Command::new(&self.compiler)
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(&source)
            .arg("-lm")
            .output()
            .map_err(JobError::io(self.compiler.display().to_string()))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(JobError::Program { program: self.compiler.display().to_string(), reason });
        }
        Ok(program)
    }
}

/// MPICH, if its compiler and launcher are in the path.
pub fn find_mpi() -> Option<Mpi> {
    let find = |names: [&str; 2]| {
        let directories = std::env::var_os("PATH")?;
        std::env::split_paths(&directories)
            .flat_map(|directory| names.map(|name| directory.join(name)))
            .find(|path| path.is_file())
    };
    Some(Mpi {
        compiler: find(["mpicc.mpich", "mpicc"])?,
        launcher: find(["mpiexec.mpich", "mpiexec.hydra"])?,
    })
}

/// How ranks behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// They compute for exponentially distributed times.
    Random,
    /// They compute for nearly the same time.
    Steady,
    /// As [`Ranks::Random`], but the first never reaches the Allreduce.
    Stuck,
}

impl Ranks {
    fn draw_time(self, rng: &mut Xoshiro256PlusPlus) -> Duration {
        let factor = match self {
            Self::Random | Self::Stuck => rng.sample(Exp1),
            Self::Steady => 1.0 + STEADY_SPREAD * rng.sample::<f64, _>(StandardNormal),
        };
        Duration::from_secs_f64((MEAN_SECONDS * factor).max(0.0))
    }
}

pub fn run(spec: &JobSpec, until: &Until, ranks: Ranks) -> Result<(), JobError> {
    match find_mpi() {
        Some(mpi) => run_ranks(&mpi, spec, until, ranks),
        None => run_threads(spec, until, ranks),
    }
}

fn run_ranks(mpi: &Mpi, spec: &JobSpec, until: &Until, ranks: Ranks) -> Result<(), JobError> {
    let program = mpi.compile(&spec.scratch)?;
    let spread = if ranks == Ranks::Steady { STEADY_SPREAD } else { 0.0 };
    let stuck = if ranks == Ranks::Stuck { "0" } else { "-1" };
    let child = Command::new(&mpi.launcher)
        .arg("-n")
        .arg(spec.cpus.len().to_string())
        .arg(&program)
        .args([until.rest().as_secs_f64().to_string(), spec.seed.to_string()])
        .args([MEAN_SECONDS.to_string(), spread.to_string(), stuck.to_owned()])
        .args(spec.cpus.iter().map(ToString::to_string))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(JobError::io(mpi.launcher.display().to_string()))?;
    wait(child, until).map_err(|reason| JobError::Program { program: "mpiexec".into(), reason })
}

/// Waits for the leader of a process group to end; ends the group some time after the deadline.
fn wait(mut child: Child, until: &Until) -> Result<(), String> {
    let mut told: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return if status.success() || told.is_some() { Ok(()) } else { Err(status.to_string()) };
        }
        let is_late = until.is_over() && told.get_or_insert_with(Instant::now).elapsed() > GRACE;
        if is_late || until.ended.load(Ordering::Relaxed) {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
            let _ = child.wait();
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn run_threads(spec: &JobSpec, until: &Until, ranks: Ranks) -> Result<(), JobError> {
    let barrier = Barrier::new(spec.cpus.len());
    let is_over = AtomicBool::new(false);
    on_each(spec, until, |rank| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(spec.seed.wrapping_add(rank as u64));
        let mut work = 0.0;
        loop {
            let is_stuck = ranks == Ranks::Stuck && rank == 0;
            let pause = if is_stuck { until.rest() } else { ranks.draw_time(&mut rng).min(until.rest()) };
            let end = Instant::now() + pause;
            while Instant::now() < end && !until.ended.load(Ordering::Relaxed) {
                work += compute(&mut rng);
            }
            if until.is_over() || ranks == Ranks::Stuck {
                is_over.store(true, Ordering::Relaxed);
            }
            barrier.wait();
            let leaves = is_over.load(Ordering::Relaxed);
            // No rank may start the next round before all have decided whether to leave.
            barrier.wait();
            if leaves {
                std::hint::black_box(work);
                return Ok(());
            }
        }
    })
}

fn compute(rng: &mut Xoshiro256PlusPlus) -> f64 {
    (0..20_000).map(|_| rng.random::<f64>().sqrt()).sum()
}

#[cfg(test)]
mod tests {
    use workload::Cpu;

    use super::*;
    use crate::kind::Kind;

    #[test]
    fn threads_meet_and_end_together_even_with_one_that_is_stuck() {
        for ranks in [Ranks::Random, Ranks::Steady, Ranks::Stuck] {
            let spec = JobSpec {
                kind: Kind::Mpi(2),
                cpus: vec![Cpu(0), Cpu(0)],
                length: Duration::from_millis(300),
                seed: 1,
                scratch: PathBuf::new(),
                quota: 0,
            };
            let begun = Instant::now();
            run_threads(&spec, &Until::after(spec.length), ranks).unwrap();
            assert!(begun.elapsed() >= spec.length && begun.elapsed() < spec.length + GRACE);
        }
    }
}
