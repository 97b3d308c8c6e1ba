//! Runs a plan on this machine: jobs in their turns, read once a second through the agent, and labels
//! when a campaign is complete.

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
use workload::Stop;
use workload::label;
use workload::{Cpu, JobId, Label, NodeName, NodeReading, Owner, Timestamp};

use crate::jobs::{JobError, Mpi, Order, find_mpi};
use crate::kind::Kind;
use crate::plan::{Plan, Turn};

use live::LiveJob;
use scratch::Scratch;

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("campaign {0} is in the archive already; give it another name, or record elsewhere")]
    Known(String),
    #[error("{0}; --even-if-busy runs all the same, and labels say how much was disturbed")]
    Busy(String),
    #[error(
        "{path} has {} free, and {} have to be, twice what jobs may write at once; free some, or lower `quota`",
        show_bytes(*.free),
        show_bytes(*.needed)
    )]
    NoRoom { path: PathBuf, free: u64, needed: u64 },
    #[error("{path} is in memory, and writers need a disk; say where one is with --scratch")]
    NoDisk { path: PathBuf },
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{0}")]
    Unreadable(String),
    #[error("job {job} ({kind}) failed: {reason}; campaign {campaign} has no labels, its readings are kept")]
    Failed { job: JobId, kind: Kind, campaign: String, reason: String },
    #[error("stopped: campaign {0} is not complete and has no labels; its readings are kept")]
    Stopped(String),
    #[error("{0}")]
    Slurm(String),
}

/// Who starts jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submit {
    /// This process, which then knows which threads they have.
    Here,
    /// Slurm; the agent sees which threads it gave them.
    Slurm,
}

#[derive(Debug, Clone)]
pub struct RunSettings {
    pub node: NodeName,
    /// The threads that jobs may have.
    pub cpus: Vec<Cpu>,
    pub procfs: PathBuf,
    pub cgroupfs: PathBuf,
    /// The folder in which jobs write.
    pub scratch: PathBuf,
    pub submit: Submit,
    pub even_if_busy: bool,
}

/// How far a run has come.
#[derive(Debug, Clone)]
pub enum Step<'a> {
    Begun { campaign: &'a str, n_jobs: usize },
    Started { job: &'a JobId, turn: &'a Turn, threads: &'a [Cpu] },
    Ended { label: &'a Label },
    Second { done: Duration, of: Duration },
}

/// Runs every campaign of a plan and returns their labels.
pub fn run(
    plan: &Plan,
    settings: &RunSettings,
    archive: &Archive,
    stop: &Stop,
    mut tell: impl FnMut(Step<'_>),
) -> Result<Vec<Label>, RunError> {
    let known = archive.labels()?;
    if let Some(campaign) =
        plan.campaign.iter().find(|planned| known.iter().any(|label| label.campaign == planned.name))
    {
        return Err(RunError::Known(campaign.name.clone()));
    }
    let (procfs, cgroupfs) = (settings.procfs.clone(), settings.cgroupfs.clone());
    let mut node = Node::new(NodeSettings::for_recording(settings.node.clone(), procfs, cgroupfs, INTERVAL));
    quiet::check(&mut node, settings, stop)?;
    let scratch = Scratch::new(&settings.scratch)?;
    scratch.check_room(plan.quota.saturating_mul(plan.n_writers(settings.cpus.len()) as u64))?;
    let has_ranks = |kind: Kind| matches!(kind, Kind::Mpi(_) | Kind::StuckRank | Kind::CpuHog);
    let mpi = match plan.normal.iter().chain(&plan.anomalous).any(|job| has_ranks(job.kind)) {
        true => find_mpi(),
        false => None,
    };
    if let Some(mpi) = &mpi {
        mpi.compile(scratch.folder())?;
    }
    let made_by = |kind: Kind| match (kind, &mpi) {
        (kind, Some(_)) if has_ranks(kind) => Some(Mpi::NAME.to_owned()),
        (kind, None) if has_ranks(kind) => Some(Mpi::NAME_WITHOUT.to_owned()),
        _ => None,
    };
    let writer = archive.writer(node.source(), WriterSettings::default())?;
    let all_turns = (0..plan.campaign.len()).flat_map(|campaign| plan.turns(campaign));
    let mut recorder = Recorder {
        settings,
        plan,
        scratch: &scratch,
        stop,
        sampler: Sampler::new(INTERVAL),
        node,
        writer,
        done: Duration::ZERO,
        total: all_turns.map(|turn| turn.length + plan.pause).sum(),
    };
    let mut all = Vec::new();
    for (index, campaign) in plan.campaign.iter().enumerate() {
        let turns = plan.turns(index);
        tell(Step::Begun { campaign: &campaign.name, n_jobs: turns.len() });
        let label = |job: LiveJob, end: Timestamp, disturbance: Option<f64>| Label {
            campaign: campaign.name.clone(),
            set: campaign.set,
            kind: job.turn.kind.to_string(),
            anomalous: Some(job.turn.kind.is_anomalous()),
            node: settings.node.clone(),
            threads: job.threads,
            start: job.start,
            end,
            made_by: made_by(job.turn.kind),
            disturbance,
            job: job.id,
        };
        let labels = recorder.record(&campaign.name, turns, &label, &mut tell)?;
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
    sampler: Sampler,
    node: Node,
    writer: Writer,
    /// How long it has recorded, and about how long it will.
    done: Duration,
    total: Duration,
}

impl Recorder<'_> {
    /// Runs the jobs of one campaign, and leaves none behind.
    fn record(
        &mut self,
        campaign: &str,
        turns: Vec<Turn>,
        label: &dyn Fn(LiveJob, Timestamp, Option<f64>) -> Label,
        tell: &mut dyn FnMut(Step<'_>),
    ) -> Result<Vec<Label>, RunError> {
        let mut live = Vec::new();
        let outcome = self.record_turns(campaign, turns, &mut live, label, tell);
        live::end_all(live);
        outcome
    }

    /// Runs jobs in their turns, and reads the machine meanwhile.
    fn record_turns(
        &mut self,
        campaign: &str,
        turns: Vec<Turn>,
        live: &mut Vec<LiveJob>,
        label: &dyn Fn(LiveJob, Timestamp, Option<f64>) -> Label,
        tell: &mut dyn FnMut(Step<'_>),
    ) -> Result<Vec<Label>, RunError> {
        let mut waiting: VecDeque<(usize, Turn)> = turns.into_iter().enumerate().collect();
        let mut labels = Vec::new();
        let mut last = None;
        let mut rested = Duration::ZERO;
        while let Some(time) = self.sampler.wait(self.stop) {
            // A job that ended during this second did not have it as a whole.
            let ended = live::take_ended(live, campaign)?;
            let (sample, reading) = self.read(time, live)?;
            let ended = ended.into_iter().chain(slurm::take_ended(live, &sample, time, campaign)?);
            for job in ended.collect::<Vec<_>>() {
                let disturbance = job.disturbance(&reading);
                let label = label(job, last.unwrap_or(time), disturbance);
                tell(Step::Ended { label: &label });
                labels.push(label);
                rested = Duration::ZERO;
            }
            last = Some(time);
            self.done += INTERVAL;
            tell(Step::Second { done: self.done.min(self.total), of: self.total });
            if waiting.is_empty() && live.is_empty() {
                if rested >= self.plan.pause {
                    return Ok(labels);
                }
            } else if rested >= self.plan.pause {
                self.start_next(campaign, &mut waiting, live, &reading, tell)?;
            }
            rested += INTERVAL;
        }
        Err(RunError::Stopped(campaign.to_owned()))
    }

    /// Reads the machine and keeps what was read.
    fn read(&mut self, time: Timestamp, live: &mut [LiveJob]) -> Result<(Sample, NodeReading), RunError> {
        let sample = self.node.sample(time);
        if let Some(error) = sample.error_of(Collector::Cpu) {
            return Err(RunError::Unreadable(error.to_owned()));
        }
        let mut reading = sample.reading(&self.settings.node);
        match self.settings.submit {
            Submit::Here => live::flag(&mut reading, live),
            Submit::Slurm => slurm::look(live, &sample),
        }
        self.writer.append(std::slice::from_ref(&reading))?;
        Ok((sample, reading))
    }

    /// Starts jobs in their turn, as long as there are threads for them.
    fn start_next(
        &mut self,
        campaign: &str,
        waiting: &mut VecDeque<(usize, Turn)>,
        live: &mut Vec<LiveJob>,
        reading: &NodeReading,
        tell: &mut dyn FnMut(Step<'_>),
    ) -> Result<(), RunError> {
        while let Some((index, turn)) = waiting.front() {
            let is_taken = |cpu: &&Cpu| live.iter().any(|job| job.threads.contains(cpu));
            let free: Vec<Cpu> = self.settings.cpus.iter().filter(|cpu| !is_taken(cpu)).copied().collect();
            let n_promised: usize = live
                .iter()
                .filter(|job| job.threads.is_empty())
                .map(|job| usize::from(job.turn.n_threads))
                .sum();
            let n_wanted = usize::from(turn.n_threads);
            if free.len() < n_wanted + n_promised {
                return Ok(());
            }
            let name = format!("{campaign}-{:02}", index + 1);
            let order = Order {
                kind: turn.kind,
                cpus: free[..n_wanted].to_vec(),
                length: turn.length,
                seed: turn.seed,
                scratch: self.scratch.folder().to_owned(),
                quota: self.plan.quota,
            };
            let job = match self.settings.submit {
                Submit::Here => live::start(&name, turn, order, reading)?,
                Submit::Slurm => slurm::submit(&name, turn, &order, reading.time)?,
            };
            tell(Step::Started { job: &job.id, turn, threads: &job.threads });
            live.push(job);
            waiting.pop_front();
        }
        Ok(())
    }
}

/// The time that somebody worked on these threads, in ticks since the machine was started.
fn busy_ticks(reading: &NodeReading, threads: &[Cpu]) -> u64 {
    use workload::Mode::{Idle, Iowait};
    let on_them = reading.threads.iter().filter(|thread| threads.contains(&thread.cpu));
    on_them.map(|thread| thread.ticks.total() - thread.ticks[Idle] - thread.ticks[Iowait]).sum()
}

/// Threads that no job has belong to nobody: this process knows all of them.
fn set_owner(reading: &mut NodeReading, live: &[LiveJob]) {
    for thread in &mut reading.threads {
        let owner = live.iter().find(|job| job.threads.contains(&thread.cpu));
        thread.owner = owner.map_or(Owner::Nobody, |job| Owner::Job(job.id.clone()));
    }
}
