//! Commands of Slurm.

use std::process::Command;

use workload::JobId;

#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    #[error("{command} cannot be run: {source}")]
    NotRun { command: String, source: std::io::Error },
    #[error("{command} failed: {stderr}")]
    Failed { command: String, stderr: String },
    #[error("sbatch printed {output:?}, which is not a job id")]
    JobId { output: String },
    #[error("Slurm has no node on the host {0}")]
    NoNode(String),
    #[error("job {0} was not seen on any thread of this machine")]
    NotSeen(JobId),
}

/// The number of a job that `sbatch --parsable` printed.
pub fn submitted(output: &str) -> Result<JobId, SlurmError> {
    let id = output.trim().split(';').next().unwrap_or_default();
    JobId::new(id).map_err(|_| SlurmError::JobId { output: output.trim().to_owned() })
}

/// The output of a Slurm command.
pub fn output_of(command: &mut Command) -> Result<String, SlurmError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(source) => return Err(SlurmError::NotRun { command: name, source }),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(SlurmError::Failed { command: name, stderr })
}

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
