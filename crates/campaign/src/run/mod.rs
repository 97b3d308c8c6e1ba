//! Runs a plan on this machine: starts its jobs, samples the machine through the agent, and adds labels when
//! a campaign is complete.

mod live;
mod quiet;
mod scratch;
mod slurm;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use agent::node::{Collector, Node, NodeSettings, Sample};
use agent::sampler::Sampler;
use archive::{Archive, Writer, WriterSettings};
use report::text::show_bytes;
use workload::label;
use workload::{Cpu, JobId, Label, NodeName, NodeReading, Owner, Stop, Timestamp};

use crate::jobs::{JobError, JobRunner, JobSpec, Mpi, find_mpi};
use crate::kind::Kind;
use crate::plan::{Plan, PlannedCampaign, PlannedJob};
use crate::slurm::SlurmError;

use live::LiveJob;
use scratch::Scratch;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    #[error("campaign {0} is in the archive already")]
    KnownCampaign(String),
    #[error("other jobs run on this machine ({0}), and a campaign would disturb them")]
    OtherJobs(usize),
    #[error("{:.0} % of the CPU time of this machine is in use", .0 * 100.0)]
    Busy(f64),
    #[error(
        "{path} has {} free, but {} are needed: twice what jobs may write at once",
        show_bytes(*.free),
        show_bytes(*.needed)
    )]
    NoRoom { path: PathBuf, free: u64, needed: u64 },
    #[error("{path} is a file system in memory, but jobs that write need a disk")]
    NoDisk { path: PathBuf },
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("the CPU counters cannot be read: {0}")]
    Counters(String),
    #[error("job {job} ({kind}) failed: {reason}; campaign {campaign} has no labels, its readings are kept")]
    Failed { job: JobId, kind: Kind, campaign: String, reason: String },
    #[error("stopped: campaign {0} is not complete and has no labels; its readings are kept")]
    Stopped(String),
}

/// Who starts the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submit {
    /// This process, which chooses their threads.
    Here,
    /// Slurm; the agent sees which threads Slurm chose.
    Slurm,
}

#[derive(Debug, Clone)]
pub struct RunSettings {
    pub node: NodeName,
    /// The threads that jobs may use.
    pub cpus: Vec<Cpu>,
    pub procfs: PathBuf,
    pub cgroupfs: PathBuf,
    /// The directory in which jobs write.
    pub scratch: PathBuf,
    pub submit: Submit,
    /// How often the machine is sampled.
    pub interval: Duration,
    /// Whether to run although the machine is busy.
    pub even_if_busy: bool,
    /// The program that runs one job.
    pub runner: JobRunner,
}

/// What happens during a run.
#[derive(Debug, Clone)]
pub enum RunEvent<'a> {
    CampaignStarted { campaign: &'a str, n_jobs: usize },
    JobStarted { id: &'a JobId, job: &'a PlannedJob, threads: &'a [Cpu] },
    JobEnded { label: &'a Label },
    Progress { done: Duration, total: Duration },
}

/// Runs every campaign of a plan and returns their labels.
pub fn run(
    plan: &Plan,
    settings: &RunSettings,
    archive: &Archive,
    stop: &Stop,
    mut on_event: impl FnMut(RunEvent<'_>),
) -> Result<Vec<Label>, RunError> {
    let known = archive.labels()?;
    let is_known = |planned: &&PlannedCampaign| known.iter().any(|label| label.campaign == planned.name);
    if let Some(campaign) = plan.campaign.iter().find(is_known) {
        return Err(RunError::KnownCampaign(campaign.name.clone()));
    }
    let (procfs, cgroupfs) = (settings.procfs.clone(), settings.cgroupfs.clone());
    let mut node =
        Node::new(NodeSettings::for_recording(settings.node.clone(), procfs, cgroupfs, settings.interval));
    quiet::check(&mut node, settings, stop)?;
    let scratch = Scratch::new(&settings.scratch)?;
    scratch.check_room(plan.quota.saturating_mul(plan.n_writers(settings.cpus.len()) as u64))?;
    let has_ranks = plan.templates().any(|job| job.kind.has_ranks());
    let mpi = if has_ranks { find_mpi() } else { None };
    if let Some(mpi) = &mpi {
        mpi.compile(scratch.directory())?;
    }
    let writer = archive.writer(node.source(), WriterSettings::default())?;
    let all_jobs = (0..plan.campaign.len()).flat_map(|campaign| plan.jobs(campaign));
    let mut recorder = Recorder {
        settings,
        plan,
        scratch: &scratch,
        stop,
        ranks_made_by: if mpi.is_some() { Mpi::NAME } else { Mpi::NAME_WITHOUT },
        sampler: Sampler::new(settings.interval),
        node,
        writer,
        done: Duration::ZERO,
        total: all_jobs.map(|job| job.length + plan.pause).sum(),
    };
    let mut all = Vec::new();
    for (index, campaign) in plan.campaign.iter().enumerate() {
        let jobs = plan.jobs(index);
        on_event(RunEvent::CampaignStarted { campaign: &campaign.name, n_jobs: jobs.len() });
        let labels = recorder.record(campaign, jobs, &mut on_event)?;
        archive.add_labels(&labels)?;
        all.extend(labels);
    }
    recorder.writer.close()?;
    label::sort(&mut all);
    Ok(all)
}

struct Recorder<'a> {
    settings: &'a RunSettings,
    plan: &'a Plan,
    scratch: &'a Scratch,
    stop: &'a Stop,
    /// `made_by` in the labels of kinds with ranks.
    ranks_made_by: &'static str,
    sampler: Sampler,
    node: Node,
    writer: Writer,
    /// How long it has recorded, and about how long it will.
    done: Duration,
    total: Duration,
}

impl Recorder<'_> {
    /// Runs the jobs of one campaign and returns their labels. No job is left running, also after an error.
    fn record(
        &mut self,
        campaign: &PlannedCampaign,
        jobs: Vec<PlannedJob>,
        on_event: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<Vec<Label>, RunError> {
        let mut live = Vec::new();
        let waiting = jobs.into_iter().enumerate().collect();
        let outcome = self.record_jobs(campaign, waiting, &mut live, on_event);
        live::end_all(live);
        outcome
    }

    /// Starts jobs in order as threads become free, and samples the machine meanwhile.
    fn record_jobs(
        &mut self,
        campaign: &PlannedCampaign,
        mut waiting: VecDeque<(usize, PlannedJob)>,
        live: &mut Vec<LiveJob>,
        on_event: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<Vec<Label>, RunError> {
        let interval = self.settings.interval;
        let mut labels = Vec::new();
        let mut previous = None;
        let mut rested = Duration::ZERO;
        while let Some(time) = self.sampler.wait(self.stop) {
            // A job that ended during this interval did not have all of it, so its label ends at the previous
            // sample.
            let ended = live::take_ended(live, &campaign.name)?;
            let (sample, reading) = self.read(time, live)?;
            let ended = ended.into_iter().chain(slurm::take_ended(live, &sample, time, &campaign.name)?);
            for job in ended.collect::<Vec<_>>() {
                let disturbance = job.disturbance(&reading);
                let label = self.label(campaign, job, previous.unwrap_or(time), disturbance);
                on_event(RunEvent::JobEnded { label: &label });
                labels.push(label);
                rested = Duration::ZERO;
            }
            for job in live.iter_mut() {
                // It ends with the job at the latest.
                let (length, seed) = (2 * job.planned.length, job.planned.seed);
                job.start_hog(&self.settings.runner, |kind| self.spec(kind, Vec::new(), length, seed))?;
            }
            previous = Some(time);
            self.done += interval;
            on_event(RunEvent::Progress { done: self.done.min(self.total), total: self.total });
            if rested >= self.plan.pause {
                if waiting.is_empty() && live.is_empty() {
                    return Ok(labels);
                }
                self.start_next(&campaign.name, &mut waiting, live, &reading, on_event)?;
            }
            rested += interval;
        }
        Err(RunError::Stopped(campaign.name.clone()))
    }

    fn label(
        &self,
        campaign: &PlannedCampaign,
        job: LiveJob,
        end: Timestamp,
        disturbance: Option<f64>,
    ) -> Label {
        Label {
            campaign: campaign.name.clone(),
            set: campaign.set,
            kind: job.planned.kind.to_string(),
            anomalous: Some(job.planned.is_anomalous),
            node: self.settings.node.clone(),
            threads: job.threads,
            start: job.start,
            end,
            made_by: job.planned.kind.has_ranks().then(|| self.ranks_made_by.to_owned()),
            disturbance,
            job: job.id,
        }
    }

    /// Samples the machine and stores the reading.
    fn read(&mut self, time: Timestamp, live: &mut [LiveJob]) -> Result<(Sample, NodeReading), RunError> {
        let sample = self.node.sample(time);
        if let Some(error) = sample.error_of(Collector::Cpu) {
            return Err(RunError::Counters(error.to_owned()));
        }
        let mut reading = sample.reading(&self.settings.node);
        match self.settings.submit {
            Submit::Here => live::annotate(&mut reading, live, self.node.memory_bytes()),
            Submit::Slurm => slurm::update_threads(live, &sample),
        }
        self.writer.append(std::slice::from_ref(&reading))?;
        Ok((sample, reading))
    }

    fn spec(&self, kind: Kind, cpus: Vec<Cpu>, length: Duration, seed: u64) -> JobSpec {
        let scratch = self.scratch.directory().to_owned();
        JobSpec { kind, cpus, length, seed, scratch, quota: self.plan.quota }
    }

    /// Starts waiting jobs in order, as long as there are free threads for them.
    fn start_next(
        &mut self,
        campaign: &str,
        waiting: &mut VecDeque<(usize, PlannedJob)>,
        live: &mut Vec<LiveJob>,
        reading: &NodeReading,
        on_event: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<(), RunError> {
        while let Some((index, planned)) = waiting.front() {
            let is_taken = |cpu: &&Cpu| live.iter().any(|job| job.threads.contains(cpu));
            let free: Vec<Cpu> = self.settings.cpus.iter().filter(|cpu| !is_taken(cpu)).copied().collect();
            // Slurm has not shown yet which threads these jobs have.
            let n_promised: usize = live
                .iter()
                .filter(|job| job.threads.is_empty())
                .map(|job| usize::from(job.planned.n_threads))
                .sum();
            let n_wanted = usize::from(planned.n_threads);
            if free.len() < n_wanted + n_promised {
                return Ok(());
            }
            let name = format!("{campaign}-{:02}", index + 1);
            let spec = self.spec(planned.kind, free[..n_wanted].to_vec(), planned.length, planned.seed);
            let runner = &self.settings.runner;
            let job = match self.settings.submit {
                Submit::Here => live::start(&name, planned, runner, spec, reading)?,
                Submit::Slurm => slurm::submit(&name, planned, &runner.command(&spec), reading.time)?,
            };
            on_event(RunEvent::JobStarted { id: &job.id, job: planned, threads: &job.threads });
            live.push(job);
            waiting.pop_front();
        }
        Ok(())
    }
}

/// Ticks since boot in which these threads were neither idle nor waiting for I/O.
fn busy_ticks(reading: &NodeReading, threads: &[Cpu]) -> u64 {
    use workload::Mode::{Idle, Iowait};
    let these = reading.threads.iter().filter(|thread| threads.contains(&thread.cpu));
    these.map(|thread| thread.ticks.total() - thread.ticks[Idle] - thread.ticks[Iowait]).sum()
}

/// Sets the owner of every thread. All jobs are known here, so the other threads have no owner.
fn set_owner(reading: &mut NodeReading, live: &[LiveJob]) {
    for thread in &mut reading.threads {
        let mut jobs = live.iter().filter(|job| job.planned.kind.owns_threads());
        let owner = jobs.find(|job| job.threads.contains(&thread.cpu));
        thread.owner = owner.map_or(Owner::Nobody, |job| Owner::Job(job.id.clone()));
    }
}
