//! Candidates of a night as the tasks of a Slurm job array.
//!
//! The tasks and this process share the directory of the assignment. A task that is requeued starts again. When the
//! deadline is over, the array is cancelled and the directory removed, so that late results have no effect.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use archive::Archive;
use campaign::slurm::{SlurmError, output_of, quoted, submitted};
use detect::{DetectError, ValidConfig};
use lifecycle::{Assignment, Held, NightError, NightStep, Plan, Registry};
use workload::{Control, JobId, Stop};

/// How often Slurm and the directory are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How the candidates are submitted.
#[derive(Debug, Clone)]
pub struct SlurmNight {
    /// The program that each task runs.
    pub program: PathBuf,
    /// A directory that all nodes see; the assignment is below it.
    pub shared: PathBuf,
    /// Further arguments of `sbatch`, such as `--partition=short`.
    pub options: Vec<String>,
    pub deadline: Duration,
}

/// Why a night on Slurm was not held.
#[derive(Debug, thiserror::Error)]
pub enum SlurmNightError {
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    #[error(transparent)]
    Night(#[from] NightError),
}

/// A job array that is cancelled, and whose directory is removed, when it is not needed any more.
struct Array {
    id: JobId,
    folder: PathBuf,
}

impl Drop for Array {
    fn drop(&mut self) {
        // It fails if all tasks have ended.
        let _ = output_of(Command::new("scancel").args(["--quiet", self.id.as_str()]));
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!("{}: {error}", self.folder.display());
        }
    }
}

impl SlurmNight {
    /// Holds a night whose candidates are trained on other machines, while the champion is judged here.
    pub fn hold(
        &self,
        plan: Plan,
        (archive, address): (&Archive, String),
        registry: &Registry,
        config: &ValidConfig,
        (stop, control): (&Stop, Control<'_>),
        tell: impl FnMut(NightStep<'_>),
    ) -> Result<Held, SlurmNightError> {
        let assignment = plan.assignment(address, registry, config, config.train.seed)?;
        let folder = self.shared.join(format!("night-{}", plan.to.0));
        assignment.write(&folder)?;
        let array = self.submit(&assignment, folder)?;
        let wait = || {
            self.wait(&assignment, &array, stop);
            Ok(stop.check().map_err(DetectError::from)?)
        };
        Ok(plan.gather(&assignment, &array.folder, archive, control, tell, wait)?)
    }

    fn submit(&self, assignment: &Assignment, folder: PathBuf) -> Result<Array, SlurmError> {
        let log = folder.join("candidate-%a.log");
        let words = [self.program.as_path(), Path::new("learn"), Path::new("candidate"), &folder];
        let words: Vec<String> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        let submission = output_of(
            Command::new("sbatch")
                .args(["--parsable", "--requeue", "--job-name=tracewise-night"])
                .arg(format!("--array=0-{}", assignment.entrants.len().saturating_sub(1)))
                .arg(format!("--output={}", log.display()))
                .args(&self.options)
                .arg(format!("--wrap=exec {} \"$SLURM_ARRAY_TASK_ID\"", words.join(" "))),
        );
        match submission.and_then(|output| submitted(&output)) {
            Ok(id) => Ok(Array { id, folder }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Returns when all candidates have a result, no task is left, the deadline is over, or somebody stops it.
    fn wait(&self, assignment: &Assignment, array: &Array, stop: &Stop) {
        let begin = Instant::now();
        while !assignment.is_complete(&array.folder) && begin.elapsed() < self.deadline {
            let tasks = Command::new("squeue").args(["--noheader", "--jobs", array.id.as_str()]).output();
            // Slurm does not know a job any more some time after its end. If it cannot be asked, the deadline decides.
            let is_over = tasks.is_ok_and(|tasks| tasks.stdout.trim_ascii().is_empty());
            if is_over || stop.wait(LOOK_EVERY) {
                return;
            }
        }
    }
}
