//! Arguments of `tracewise campaign`.

use std::path::PathBuf;
use std::time::Duration;

use agent::cpuset::CpuSet;
use campaign::Kind;
use campaign::simulate::CampaignCount;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use detect::inject::Fault;
use workload::units::parse_duration;
use workload::{NodeName, Set, Timestamp};

use super::{DataArgs, KernelRoots, TIMES};
use crate::times::parse_time;

#[derive(Debug, Subcommand)]
pub enum CampaignCommand {
    /// Run the jobs of a plan on this machine, record them and label them
    Run(CampaignRunArgs),
    /// Simulate a cluster with labelled jobs, some of them anomalous
    Simulate(SimulateArgs),
    /// Label jobs of an archive, or list its labels
    #[command(subcommand)]
    Label(LabelCommand),
    /// Copy an archive and inject faults of known strength into it
    Inject(InjectArgs),
    /// Fit the models of the simulator to recorded jobs
    Fit(FitArgs),
    /// Measure how well a classifier separates simulated from recorded jobs
    Compare(CompareArgs),
    /// Run one job of a campaign
    #[command(hide = true)]
    Job(JobArgs),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "A plan, in TOML (docs/campaigns.md describes all keys):\n  \
    [[normal]]              # every campaign runs these jobs\n  kind = \"np\"             # or good-io, mpi-N, idle\n  \
    threads = 2\n  length = [\"3m\", \"4m\"]   # shortest, longest\n\n  \
    [[anomalous]]           # only campaigns of the test set run these\n  kind = \"bad-io\"\n  threads = 2\n  \
    length = [\"3m\", \"4m\"]\n\n  \
    [[campaign]]\n  name = \"monday\"\n  set = \"train\"           # or validation\n\n  \
    [[campaign]]\n  name = \"tuesday\"\n  set = \"test\"\n\n\
    Examples:\n  tracewise campaign run plan.toml --into traces\n  \
    tracewise campaign run plan.toml --into traces --interval 100ms --scratch /scratch")]
pub struct CampaignRunArgs {
    /// The plan, a TOML file
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// The archive to record into: a directory or s3://bucket/prefix [default: archive.address of the configuration]
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// The scheduler that starts the jobs on this machine [default: they are started directly]
    #[arg(long, value_enum)]
    pub submit: Option<Scheduler>,
    /// How often to sample the machine, such as 100ms [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "1s", hide_default_value = true)]
    pub interval: Duration,
    /// The directory in which jobs write, on a disk [default: /var/tmp]
    #[arg(long, value_name = "DIRECTORY")]
    pub scratch: Option<PathBuf>,
    /// Run although the machine is busy
    #[arg(long)]
    pub even_if_busy: bool,
    /// The node name of this machine in the archive [default: its hostname]
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
    /// Number of nodes
    #[arg(long, default_value = "5")]
    pub nodes: u32,
    /// Hardware threads per node
    #[arg(long, default_value = "32")]
    pub threads: u16,
    /// The length of each campaign, in hours
    #[arg(long, default_value = "4")]
    pub hours: f64,
    /// The number of campaigns of each set; campaigns follow each other
    #[arg(long, value_name = "SET=N,…", default_value = "train=2,validation=1,test=1", value_parser = parse_campaigns)]
    pub campaigns: CampaignCounts,
    /// Random seed; the same seed gives the same cluster
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// The mean fraction of all threads that normal jobs use
    #[arg(long, default_value = "0.7")]
    pub load: f64,
    /// When the first campaign starts [default: Monday 2026-01-05, or now with --live]
    #[arg(long, value_name = "T", value_parser = parse_time)]
    pub start: Option<Timestamp>,
    /// The archive to write: a directory or s3://bucket/prefix [default: archive.address of the configuration]
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// The models of the kinds, from `campaign fit` [default: those that come with Tracewise]
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Simulate in real time from now on, until Ctrl-C
    #[arg(long, conflicts_with = "campaigns")]
    pub live: bool,
    /// Simulated seconds per second
    #[arg(long, value_name = "FACTOR", default_value = "1", requires = "live")]
    pub speed: f64,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "live")]
    pub duration: Option<Duration>,
    /// Print the outcome as JSON (with --live: one line per simulated second)
    #[arg(long)]
    pub json: bool,
}

/// The number of campaigns of each set.
#[derive(Debug, Clone)]
pub struct CampaignCounts(pub Vec<CampaignCount>);

fn parse_campaigns(text: &str) -> Result<CampaignCounts, String> {
    let mut counts: Vec<CampaignCount> = Vec::new();
    for part in text.split(',') {
        let parsed = part.split_once('=').and_then(|(name, count)| {
            let set = Set::ALL.into_iter().find(|set| set.name() == name)?;
            Some(CampaignCount { set, count: count.parse().ok()? })
        });
        let Some(count) = parsed else {
            return Err(format!("write it like train=2,validation=1,test=1, not {part:?}"));
        };
        if counts.iter().any(|known| known.set == count.set) {
            return Err(format!("{} is given twice", count.set));
        }
        counts.push(count);
    }
    Ok(CampaignCounts(counts))
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  tracewise campaign fit --data recorded --out model.json\n  \
    tracewise campaign simulate --model model.json --into traces")]
pub struct FitArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The model file to write (JSON)
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
    /// The directory to write the report to
    #[arg(long, value_name = "DIRECTORY")]
    pub out: PathBuf,
    /// The length of a window, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub window: usize,
    /// Random seed; the same seed selects the same windows
    #[arg(long, default_value = "0")]
    pub seed: u64,
    /// Print the numbers as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LabelCommand {
    /// Label jobs of an archive, from a CSV file
    Add(LabelAddArgs),
    /// List the labels of an archive
    List(LabelListArgs),
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example of a file; the last column is optional:\n  \
    job,kind,set,anomalous\n  4711,lammps,train,\n  4712,lammps,test,\n  4713,miner,test,true\n\n\
    Example:\n  tracewise campaign label add --data traces --labels labels.csv")]
pub struct LabelAddArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// CSV with the columns job,kind,set and optionally anomalous (true or false)
    #[arg(long, value_name = "FILE.csv")]
    pub labels: PathBuf,
    /// Print the new labels as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  tracewise campaign label list --data traces --json")]
pub struct LabelListArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Print as JSON: an array of labels, with times in seconds since the epoch
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
    /// The CPUs to run on [default: those that this process may use]
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
    /// End when stdin is closed
    #[arg(long)]
    pub tied: bool,
}

fn parse_cpus(text: &str) -> Result<CpuSet, String> {
    CpuSet::parse(text).filter(|cpus| !cpus.is_empty()).ok_or_else(|| "write CPUs as 0-3,8".into())
}
