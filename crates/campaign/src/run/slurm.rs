//! Jobs that Slurm runs. The agent sees in control groups which threads they have and when they end.

use std::process::Command;
use std::time::Duration;

use agent::node::Sample;
use workload::{Millis, Timestamp};

use super::RunError;
use super::live::LiveJob;
use crate::plan::PlannedJob;
use crate::slurm::{SlurmError, output_of, quoted, submitted};

/// How long a job may wait before it is seen on a thread.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Submits the process of a job to this machine.
pub fn submit(
    name: &str,
    planned: &PlannedJob,
    job: &Command,
    now: Timestamp,
) -> Result<LiveJob, SlurmError> {
    let words = std::iter::once(job.get_program()).chain(job.get_args());
    let line: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    let output = output_of(
        Command::new("sbatch")
            .args(["--parsable", "--ntasks=1", "--output=/dev/null"])
            .arg(format!("--job-name={name}"))
            .arg(format!("--nodelist={}", this_node()?))
            .arg(format!("--cpus-per-task={}", planned.n_threads))
            .arg(format!("--wrap={}", line.join(" "))),
    )?;
    Ok(LiveJob::new(submitted(&output)?, planned, now))
}

/// Slurm's name for this machine.
fn this_node() -> Result<String, SlurmError> {
    let host = agent::hostname();
    let output = output_of(Command::new("scontrol").args(["show", "node", "--oneliner"]))?;
    let value = |line: &str, key: &str| {
        line.split_whitespace().find_map(|word| Some(word.strip_prefix(key)?.to_owned()))
    };
    output
        .lines()
        .find(|line| value(line, "NodeHostName=").as_deref() == Some(&host))
        .and_then(|line| value(line, "NodeName="))
        .ok_or(SlurmError::NoNode(host))
}

/// Notes the threads of jobs that are seen for the first time.
pub fn update_threads(live: &mut [LiveJob], sample: &Sample) {
    for job in live.iter_mut().filter(|job| job.child.is_none() && job.threads.is_empty()) {
        let seen = sample.jobs.iter().find(|seen| seen.id == job.id);
        if let Some(cpus) = seen.and_then(|seen| seen.cpus.as_ref()) {
            job.threads = cpus.iter().collect();
            job.start = sample.time;
        }
    }
}

/// Removes the jobs that were seen and are gone from `live`, and returns them.
pub fn take_ended(
    live: &mut Vec<LiveJob>,
    sample: &Sample,
    now: Timestamp,
    campaign: &str,
) -> Result<Vec<LiveJob>, RunError> {
    let mut ended = Vec::new();
    let is_here = |job: &LiveJob| sample.jobs.iter().any(|seen| seen.id == job.id);
    let mut index = 0;
    while index < live.len() {
        let job = &live[index];
        if job.child.is_some() || is_here(job) {
            index += 1;
        } else if !job.threads.is_empty() {
            let job = live.remove(index);
            check_outcome(&job, campaign)?;
            ended.push(job);
        } else if now - job.start > Millis::from(MAX_WAIT) {
            return Err(SlurmError::NotSeen(job.id.clone()).into());
        } else {
            index += 1;
        }
    }
    Ok(ended)
}

pub fn cancel(job: &LiveJob) {
    if let Err(error) = output_of(Command::new("scancel").arg(job.id.as_str())) {
        tracing::warn!("job {} may still run: {error}", job.id);
    }
}

/// Fails unless Slurm reports that a job was completed.
fn check_outcome(job: &LiveJob, campaign: &str) -> Result<(), RunError> {
    let output = output_of(Command::new("scontrol").args(["show", "job", "--oneliner", job.id.as_str()]))?;
    let state = output.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
    match state {
        Some("COMPLETED" | "COMPLETING") => Ok(()),
        state => Err(RunError::Failed {
            job: job.id.clone(),
            kind: job.planned.kind,
            campaign: campaign.to_owned(),
            reason: format!("Slurm reports {}", state.unwrap_or("no state")),
        }),
    }
}
