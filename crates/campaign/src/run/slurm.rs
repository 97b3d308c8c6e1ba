//! Jobs that Slurm runs. Which threads they have, and when they end, the agent sees in control groups.

use std::process::Command;
use std::time::Duration;

use agent::node::Sample;
use workload::{JobId, Millis, Timestamp};

use super::RunError;
use super::live::LiveJob;
use crate::jobs::Order;
use crate::plan::Turn;

/// How long a job may wait before it is seen on a thread.
const PATIENCE: Duration = Duration::from_secs(600);

pub fn submit(name: &str, turn: &Turn, order: &Order, now: Timestamp) -> Result<LiveJob, RunError> {
    let job = order.command().map_err(|source| RunError::Io { what: format!("job {name}"), source })?;
    let words = std::iter::once(job.get_program()).chain(job.get_args());
    let line: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    let said = slurm(
        Command::new("sbatch")
            .args(["--parsable", "--ntasks=1", "--output=/dev/null"])
            .arg(format!("--job-name={name}"))
            .arg(format!("--nodelist={}", agent_node()?))
            .arg(format!("--cpus-per-task={}", turn.n_threads))
            .arg(format!("--wrap={}", line.join(" "))),
    )?;
    let id = said.trim().split(';').next().unwrap_or_default();
    let id = JobId::new(id).map_err(|error| RunError::Slurm(format!("sbatch said {said:?}: {error}")))?;
    Ok(LiveJob::new(id, turn, now))
}

/// The name that Slurm has for this machine.
fn agent_node() -> Result<String, RunError> {
    let host = agent::hostname();
    let said = slurm(Command::new("scontrol").args(["show", "node", "--oneliner"]))?;
    let word = |line: &str, key: &str| {
        line.split_whitespace().find_map(|word| Some(word.strip_prefix(key)?.to_owned()))
    };
    said.lines()
        .find(|line| word(line, "NodeHostName=").as_deref() == Some(&host))
        .and_then(|line| word(line, "NodeName="))
        .ok_or_else(|| RunError::Slurm(format!("Slurm has no node on the host {host}")))
}

/// Learns which threads jobs have.
pub fn look(live: &mut [LiveJob], sample: &Sample) {
    for job in live.iter_mut().filter(|job| job.child.is_none()) {
        let seen = sample.jobs.iter().find(|seen| seen.id == job.id).and_then(|seen| seen.cpus.as_ref());
        if let (true, Some(cpus)) = (job.threads.is_empty(), seen) {
            job.threads = cpus.iter().collect();
            job.start = sample.time;
        }
    }
}

/// Takes those out that were seen and are not seen any more.
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
        } else if now - job.start > Millis::from(PATIENCE) {
            return Err(RunError::Slurm(format!(
                "job {} was never seen on a thread of this machine; `tracewise agent doctor` may say why",
                job.id
            )));
        } else {
            index += 1;
        }
    }
    Ok(ended)
}

/// Takes a job back.
pub fn cancel(job: &LiveJob) {
    if let Err(error) = slurm(Command::new("scancel").arg(job.id.as_str())) {
        tracing::warn!("job {} may still run: {error}", job.id);
    }
}

/// Whether Slurm says that a job has ended well.
fn check_outcome(job: &LiveJob, campaign: &str) -> Result<(), RunError> {
    let said = slurm(Command::new("scontrol").args(["show", "job", "--oneliner", job.id.as_str()]))?;
    let state = said.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
    match state {
        Some("COMPLETED" | "COMPLETING") => Ok(()),
        state => Err(RunError::Failed {
            job: job.id.clone(),
            kind: job.turn.kind,
            campaign: campaign.to_owned(),
            reason: format!("Slurm says {}", state.unwrap_or("nothing of it")),
        }),
    }
}

/// What a command of Slurm's says.
fn slurm(command: &mut Command) -> Result<String, RunError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| RunError::Slurm(format!("{name}: {error}; is Slurm installed here?")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(RunError::Slurm(format!("{name}: {}", said.split_whitespace().collect::<Vec<_>>().join(" "))))
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
