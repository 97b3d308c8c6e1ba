//! What can be typed after `tracewise campaign`.

use std::path::PathBuf;
use std::time::Duration;

use agent::cpuset::CpuSet;
use campaign::Kind;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use detect::inject::Fault;
use workload::units::parse_duration;
use workload::{NodeName, Set, Timestamp};

use super::{DataArgs, KernelRoots, TIMES};
use crate::times::parse_time;

#[derive(Debug, Subcommand)]
pub enum CampaignCommand {
    /// Run the jobs of a plan on this machine, and record them with their labels
    Run(CampaignRunArgs),
    /// Make a cluster up: its jobs, its traces, its trouble
    Simulate(SimulateArgs),
    /// Which jobs of an archive are known, and what they are
    Labels(LabelsArgs),
    /// Say what jobs of an archive are, and which set they are for
    Label(LabelArgs),
    /// Copy an archive and put trouble of known strength into it
    Inject(InjectArgs),
    /// Fit the simulator to the jobs that were recorded
    Fit(FitArgs),
    /// Say how far simulated jobs are from recorded ones
    Compare(CompareArgs),
    /// Be one job of a campaign
    #[command(hide = true)]
    Job(JobArgs),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "A plan, in TOML; docs/campaigns.md says more:\n  \
    [[normal]]\n  kind = \"np\"            # or good-io, mpi-N, idle\n  threads = 2\n  length = [\"3m\", \"4m\"]\n\n  \
    [[anomalous]]\n  kind = \"bad-io\"\n  threads = 2\n  length = [\"3m\", \"4m\"]\n\n  \
    [[campaign]]\n  name = \"monday\"\n  set = \"train\"         # or validation\n\n  \
    [[campaign]]\n  name = \"tuesday\"\n  set = \"test\"          # runs what is anomalous too\n\n\
    Example:\n  tracewise campaign run plan.toml --into traces")]
pub struct CampaignRunArgs {
    /// What to run, in TOML
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// The archive to record into: a folder or s3://bucket/prefix
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// Let a scheduler start the jobs, on this machine
    #[arg(long, value_enum)]
    pub submit: Option<Scheduler>,
    /// How often to sample the machine, such as 100ms [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1s", hide_default_value = true)]
    pub interval: Duration,
    /// Where jobs may write, on a disk [default: /var/tmp]
    #[arg(long, value_name = "FOLDER")]
    pub scratch: Option<PathBuf>,
    /// Run although others are at work here
    #[arg(long)]
    pub even_if_busy: bool,
    /// The name to record this machine under [default: its hostname]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    #[command(flatten)]
    pub roots: KernelRoots,
    /// Print the labels as JSON at the end
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Scheduler {
    Slurm,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{TIMES}.\n\nExamples:\n  \
    tracewise campaign simulate --nodes 5 --threads 32 --hours 4 \\\n      \
    --campaigns train=2,validation=1,test=1 --seed 7 --into traces\n  \
    tracewise campaign simulate --nodes 1000 --threads 128 --live --into traces"))]
pub struct SimulateArgs {
    /// Nodes of the cluster
    #[arg(long, default_value = "5")]
    pub nodes: u32,
    /// Hardware threads of each node
    #[arg(long, default_value = "32")]
    pub threads: u16,
    /// The length of each campaign
    #[arg(long, default_value = "4")]
    pub hours: f64,
    /// How many campaigns of each set, one after the other
    #[arg(long, value_name = "SET=N,…", default_value = "train=2,validation=1,test=1", value_parser = parse_campaigns)]
    pub campaigns: CampaignCounts,
    /// The same seed makes the same cluster
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// The share of all threads that jobs ask for
    #[arg(long, default_value = "0.7")]
    pub load: f64,
    /// When the first campaign begins [default: Monday 2026-01-05, or now with --live]
    #[arg(long, value_name = "T", value_parser = parse_time)]
    pub start: Option<Timestamp>,
    /// The archive to write: a folder or s3://bucket/prefix
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// What jobs are like, from `campaign fit` [default: the model that comes with Tracewise]
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Go on as time passes, from now on, until Ctrl-C
    #[arg(long, conflicts_with = "campaigns")]
    pub live: bool,
    /// Simulated seconds a real second
    #[arg(long, value_name = "FACTOR", default_value = "1", requires = "live")]
    pub speed: f64,
    /// Stop after so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "live")]
    pub duration: Option<Duration>,
    /// Print the outcome as JSON (with --live: a line a second)
    #[arg(long)]
    pub json: bool,
}

/// How many campaigns there are of each set.
#[derive(Debug, Clone)]
pub struct CampaignCounts(pub Vec<(Set, usize)>);

fn parse_campaigns(text: &str) -> Result<CampaignCounts, String> {
    let mut counts = Vec::new();
    for part in text.split(',') {
        let known = part.split_once('=').and_then(|(name, count)| {
            Some((Set::ALL.into_iter().find(|set| set.name() == name)?, count.parse().ok()?))
        });
        match known {
            None => return Err(format!("write train=2,validation=1,test=1, not {part:?}")),
            Some((set, _)) if counts.iter().any(|(known, _)| *known == set) => {
                return Err(format!("{set} is there twice"));
            }
            Some(known) => counts.push(known),
        }
    }
    Ok(CampaignCounts(counts))
}

#[derive(Debug, ClapArgs)]
pub struct FitArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The file to write the model to
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Example:\n  tracewise campaign compare --recorded recorded --simulated simulated --out report"
)]
pub struct CompareArgs {
    /// The archive with recorded jobs
    #[arg(long, value_name = "ARCHIVE")]
    pub recorded: String,
    /// The archive with simulated jobs
    #[arg(long, value_name = "ARCHIVE")]
    pub simulated: String,
    /// The folder to write the report to
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Seconds that a window spans
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub window: usize,
    /// The same seed draws the same windows
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// Print the numbers as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct LabelsArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "The file, for example:\n  job,kind,set\n  4711,lammps,train\n  4712,lammps,test\n\n\
    Example:\n  tracewise campaign label --data traces --known known.csv")]
pub struct LabelArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// CSV with the columns job,kind,set; sets are train, validation, test
    #[arg(long, value_name = "FILE")]
    pub known: PathBuf,
    /// Print the labels as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Faults are injected into normal jobs of the test set, or into the last fifth of an archive without labels. \
    What was\ninjected is stored in the copy, and printed with --json.\n\n\
    Example:\n  tracewise campaign inject --data traces --into faulty --fault slow-storage --strength 0.2"
)]
pub struct InjectArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The archive to write: a directory or s3://bucket/prefix
    #[arg(long, value_name = "ARCHIVE")]
    pub into: String,
    /// system-time, starved, slow-storage, burst, stuck-rank or slow-cluster
    #[arg(long)]
    pub fault: Fault,
    /// The fraction of time that is moved: 0.1 is barely visible, 0.6 obvious
    #[arg(long)]
    pub strength: f32,
    /// The probability of a fault per job and hour
    #[arg(long, default_value = "0.2")]
    pub probability: f64,
    /// The duration of each fault
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
    pub length: Duration,
    /// The random seed
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// Print the injected faults as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct JobArgs {
    #[arg(long)]
    pub kind: Kind,
    /// [default: those that this process may run on]
    #[arg(long, value_parser = parse_cpus)]
    pub cpus: Option<CpuSet>,
    #[arg(long)]
    pub seconds: f64,
    #[arg(long, default_value = "0")]
    pub seed: u64,
    #[arg(long)]
    pub scratch: PathBuf,
    #[arg(long, default_value = "1000000000")]
    pub quota: u64,
    /// End when stdin does
    #[arg(long)]
    pub tied: bool,
}

fn parse_cpus(text: &str) -> Result<CpuSet, String> {
    CpuSet::parse(text).filter(|cpus| !cpus.is_empty()).ok_or_else(|| "write CPUs as 0-3,8".into())
}
