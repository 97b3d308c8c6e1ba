//! Jobs that this process starts, each bound to its own threads.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use agent::cpu::ticks_per_second;
use rustix::process::{Pid, Signal, kill_process_group};
use workload::{Cpu, JobId, JobReading, NodeReading, Timestamp};

use super::{RunError, busy_ticks, set_owner, slurm};
use crate::jobs::{JobRunner, JobSpec};
use crate::kind::Kind;
use crate::plan::PlannedJob;

/// How long a job may take to end after its stdin was closed.
const GRACE: Duration = Duration::from_secs(10);

/// A job that has been started and has not ended.
pub struct LiveJob {
    pub id: JobId,
    pub planned: PlannedJob,
    /// Empty until the agent has seen which threads Slurm chose.
    pub threads: Vec<Cpu>,
    pub start: Timestamp,
    /// The process; absent for jobs of Slurm.
    pub child: Option<Child>,
    /// The process that hogs its first thread, which is not part of the job.
    hog: Option<Child>,
    /// The largest CPU time that was read, in user and in system mode: that of a process which just ended may be
    /// missing.
    cpu_usec: [u64; 2],
    /// Busy ticks of its threads when it started.
    busy_before: u64,
    /// Its own CPU time in ticks, once it has ended.
    own_ticks: u64,
}

impl LiveJob {
    pub fn new(id: JobId, planned: &PlannedJob, start: Timestamp) -> Self {
        Self {
            id,
            planned: planned.clone(),
            threads: Vec::new(),
            start,
            child: None,
            hog: None,
            cpu_usec: [0; 2],
            busy_before: 0,
            own_ticks: 0,
        }
    }

    /// Starts the process that hogs its first thread, once the thread is known.
    pub fn start_hog(
        &mut self,
        runner: &JobRunner,
        spec: impl FnOnce(Kind) -> JobSpec,
    ) -> Result<(), RunError> {
        let Some(percent) = self.planned.kind.hogged_percent() else { return Ok(()) };
        let (None, Some(cpu)) = (&self.hog, self.threads.first()) else { return Ok(()) };
        let failed = |source| RunError::Io { what: format!("the hog of job {}", self.id), source };
        let spec = JobSpec { cpus: vec![*cpu], ..spec(Kind::Runaway(percent)) };
        let mut command = runner.tied_command(&spec);
        self.hog = Some(command.stdout(Stdio::null()).process_group(0).spawn().map_err(failed)?);
        Ok(())
    }

    /// The fraction of its threads' time that other processes took.
    pub fn disturbance(&self, reading: &NodeReading) -> Option<f64> {
        self.child.as_ref()?;
        let others = busy_ticks(reading, &self.threads).saturating_sub(self.busy_before + self.own_ticks);
        let length = (reading.time - self.start).as_seconds() * f64::from(ticks_per_second());
        let fraction = others as f64 / (length * self.threads.len() as f64);
        Some((fraction * 1e4).round() / 1e4)
    }
}

/// Starts a job as a process in a process group of its own.
pub fn start(
    name: &str,
    planned: &PlannedJob,
    runner: &JobRunner,
    spec: JobSpec,
    reading: &NodeReading,
) -> Result<LiveJob, RunError> {
    let failed = || |source| RunError::Io { what: format!("job {name}"), source };
    let mut command = runner.tied_command(&spec);
    let child = command.stdout(Stdio::null()).process_group(0).spawn().map_err(failed())?;
    let id = JobId::new(name).map_err(|error| failed()(std::io::Error::other(error)))?;
    let mut job = LiveJob::new(id, planned, reading.time);
    job.busy_before = busy_ticks(reading, &spec.cpus);
    job.threads = spec.cpus;
    job.child = Some(child);
    Ok(job)
}

/// Removes the jobs that have ended from `live` and returns them.
pub fn take_ended(live: &mut Vec<LiveJob>, campaign: &str) -> Result<Vec<LiveJob>, RunError> {
    let mut ended = Vec::new();
    let mut index = 0;
    while index < live.len() {
        let Some(child) = &mut live[index].child else {
            index += 1;
            continue;
        };
        let before = ticks_of_children();
        let status = child.try_wait();
        match status.map_err(|source| RunError::Io { what: format!("job {}", live[index].id), source })? {
            None => index += 1,
            Some(status) => {
                let mut job = live.remove(index);
                if !status.success() {
                    return Err(RunError::Failed {
                        kind: job.planned.kind,
                        job: job.id,
                        campaign: campaign.to_owned(),
                        reason: status.to_string(),
                    });
                }
                job.own_ticks = ticks_of_children().saturating_sub(before);
                end_processes(job.hog.take().into_iter().collect());
                ended.push(job);
            }
        }
    }
    Ok(ended)
}

/// Ends jobs: cancels those of Slurm, closes the stdin of the others, and kills those that do not end.
pub fn end_all(live: Vec<LiveJob>) {
    for job in live.iter().filter(|job| job.child.is_none()) {
        slurm::cancel(job);
    }
    end_processes(live.into_iter().flat_map(|job| [job.child, job.hog]).flatten().collect());
}

/// Closes the stdin of processes, which ends them, and kills those that do not end.
fn end_processes(mut processes: Vec<Child>) {
    for process in &mut processes {
        drop(process.stdin.take());
    }
    let deadline = Instant::now() + GRACE;
    let is_running = |process: &mut Child| matches!(process.try_wait(), Ok(None));
    while Instant::now() < deadline && processes.iter_mut().any(is_running) {
        std::thread::sleep(Duration::from_millis(20));
    }
    for mut process in processes {
        if is_running(&mut process) {
            let _ = kill_process_group(Pid::from_child(&process), Signal::KILL);
            let _ = process.wait();
        }
    }
}

/// Adds the owner of every thread, and the memory and CPU time of every job, to a reading.
pub fn annotate(reading: &mut NodeReading, live: &mut [LiveJob], node_memory_bytes: Option<u64>) {
    set_owner(reading, live);
    for job in live.iter_mut().filter(|job| job.planned.kind.owns_threads()) {
        let Some(child) = &job.child else { continue };
        let used = Used::by(child.id());
        let usec_per_tick = 1_000_000 / u64::from(ticks_per_second());
        for (known, ticks) in job.cpu_usec.iter_mut().zip(used.ticks) {
            *known = (*known).max(ticks * usec_per_tick);
        }
        let [user_usec, system_usec] = job.cpu_usec;
        reading.jobs.push(JobReading {
            memory_bytes: Some(used.memory_bytes),
            cpu_user_usec: Some(user_usec),
            cpu_system_usec: Some(system_usec),
            node_memory_bytes,
            ..JobReading::empty(job.id.clone())
        });
    }
}

/// What a process and its descendants have used.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    /// Resident memory.
    memory_bytes: u64,
    /// CPU time in user and in system mode, including that of descendants that have ended.
    ticks: [u64; 2],
}

impl Used {
    fn by(pid: u32) -> Self {
        let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok();
        let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let [user, system, user_of_ended, system_of_ended] = cpu_ticks(&stat);
        let mut used = Self {
            memory_bytes: pages.unwrap_or(0) * rustix::param::page_size() as u64,
            ticks: [user + user_of_ended, system + system_of_ended],
        };
        for child in children_of(pid) {
            let below = Self::by(child);
            used.memory_bytes += below.memory_bytes;
            for (total, ticks) in used.ticks.iter_mut().zip(below.ticks) {
                *total += ticks;
            }
        }
        used
    }
}

/// The processes that any thread of a process has started.
fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// User and system time of a process, then of its children that have been waited for, from its `stat`.
fn cpu_ticks(stat: &str) -> [u64; 4] {
    // The program's name may contain spaces; the fields after its closing parenthesis do not.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let mut ticks = fields.skip(11).filter_map(|field| field.parse().ok());
    std::array::from_fn(|_| ticks.next().unwrap_or(0))
}

/// CPU time, in ticks, of all children that have been waited for, including their descendants.
fn ticks_of_children() -> u64 {
    cpu_ticks(&fs::read_to_string("/proc/self/stat").unwrap_or_default())[2..].iter().sum()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_cpu_time_of_a_child_is_counted_when_it_has_ended() {
        let before = ticks_of_children();
        let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", spin]).status().unwrap().success());
        assert!(ticks_of_children() > before);
    }
}
