//! What can be typed.

mod analyze;
mod campaign;
mod detect;
mod jobs;
mod workflows;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use workload::units::{parse_bytes, parse_duration};
use workload::{JobId, NodeName, Timestamp};

use crate::times::parse_time;

pub use analyze::{Analysis, AnalyzeCommand, WhichSet};
pub use campaign::{
    CampaignCommand, CampaignRunArgs, CompareArgs, FitArgs, InjectArgs, JobArgs, LabelArgs, LabelsArgs,
    SimulateArgs,
};

pub use detect::{DetectCommand, EvaluateArgs, ExplainArgs, ModelArgs, TableArgs, TrainArgs, WatchArgs};
pub use jobs::{
    FitArgs as FitJobsArgs, InspectArgs, JobsCommand, Reading, SampleArgs, ScoreArgs, SimulateJobsArgs,
};
pub use workflows::{
    ClassifyArgs, CompareRunsArgs, DrawArgs, DrawStyle, EvaluateRunsArgs, FollowArgs, InjectRunArgs,
    Learning, ReadArgs, RecordRunsArgs, TrainRunsArgs, WhichModel, WorkflowsCommand,
};

const TIMES: &str = "T is epoch seconds or RFC 3339, such as 2026-11-15T08:00:00Z";

/// Learns what normal looks like on a compute cluster, and says when, where and why it is not.
#[derive(Debug, Parser)]
#[command(name = "tracewise", version, propagate_version = true)]
pub struct Args {
    /// Configuration file [default: tracewise.toml in this folder, if there is one]
    #[arg(long, global = true, env = "TRACEWISE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say more on stderr
    #[arg(long, short, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Where CPU traces rest: import, look, export, look after
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// Record the CPU threads of this machine into an archive, once a second
    Record(RecordArgs),
    /// What a node says of itself, and whether it says enough
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Jobs whose kind is known: run and recorded for real, or simulated
    #[command(subcommand)]
    Campaign(CampaignCommand),
    /// How long and how often to look at jobs, from what is known of them
    #[command(subcommand)]
    Analyze(AnalyzeCommand),
    /// Learn what normal looks like on CPU threads, and say what is not
    #[command(subcommand)]
    Detect(DetectCommand),
    /// Learn from job traces, and make synthetic ones that a scheduler cannot tell from them
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Read runs of workflows, draw them, and name their trouble
    #[command(subcommand)]
    Workflows(WorkflowsCommand),
    /// The settings in force, and where they can be changed
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Bring in CSV files, a stretch of Prometheus, or what agents have read
    Import(ImportArgs),
    /// Which nodes, jobs and times an archive holds
    List(ListArgs),
    /// How busy nodes and their threads were, at a glance
    Show(ShowArgs),
    /// Rates as CSV or JSON lines
    Export(ExportArgs),
    /// Merge small files; remove what is too old or too much
    Compact(CompactArgs),
    /// Check every byte
    Verify(VerifyArgs),
    /// Play readings back in order of time, at any speed, as JSON lines
    Replay(ReplayArgs),
}

/// The archive that a command reads.
#[derive(Debug, ClapArgs)]
pub struct DataArgs {
    /// The archive to read: a directory or s3://bucket/prefix [default: archive.address of the configuration]
    #[arg(long = "data", value_name = "ARCHIVE")]
    pub address: Option<String>,
}

/// Which readings are wanted.
#[derive(Debug, ClapArgs)]
pub struct Which {
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    /// Only threads that this job owned
    #[arg(long, value_name = "ID")]
    pub job: Option<JobId>,
    /// Not before this moment
    #[arg(long, value_name = "T", value_parser = parse_time)]
    pub from: Option<Timestamp>,
    /// Before this moment
    #[arg(long, value_name = "T", value_parser = parse_time)]
    pub to: Option<Timestamp>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{TIMES}.\n\nExamples:\n  \
    tracewise archive import --preset exathlon 1_0_100000_15.csv.zst --into traces\n  \
    tracewise archive import --columns map.toml nodes.csv --into s3://bucket/traces\n  \
    tracewise archive import --prometheus http://prometheus:9090 --from 2026-11-15T00:00:00Z \\\n      \
    --to 2026-11-16T00:00:00Z --into traces\n  \
    tracewise archive import --agent http://n001:9742 --agent http://n002:9742 --into traces"))]
pub struct ImportArgs {
    /// CSV files, plain, .gz or .zst
    #[arg(value_name = "FILE", required_unless_present_any = ["prometheus", "agent"], conflicts_with_all = ["prometheus", "agent"])]
    pub files: Vec<PathBuf>,
    /// The archive to bring them into: a folder or s3://bucket/prefix
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// A layout that is known
    #[arg(long, value_enum, required_unless_present_any = ["columns", "prometheus", "agent"], conflicts_with_all = ["prometheus", "agent"])]
    pub preset: Option<Preset>,
    /// A column map of your own, in TOML; `docs/archive.md` says how
    #[arg(long, value_name = "MAP.toml", conflicts_with_all = ["preset", "prometheus", "agent"])]
    pub columns: Option<PathBuf>,
    /// The job that every row belongs to
    #[arg(long, value_name = "ID", conflicts_with_all = ["prometheus", "agent"])]
    pub job: Option<JobId>,
    /// Ask this agent for every reading it still has; may be given several times
    #[arg(long, value_name = "URL", conflicts_with = "prometheus")]
    pub agent: Vec<String>,
    /// Ask this Prometheus (or VictoriaMetrics) for its raw samples
    #[arg(long, value_name = "URL", requires = "from", requires = "to")]
    pub prometheus: Option<String>,
    /// From this moment on
    #[arg(long, value_name = "T", value_parser = parse_time, conflicts_with = "files")]
    pub from: Option<Timestamp>,
    /// Up to this moment
    #[arg(long, value_name = "T", value_parser = parse_time, requires = "prometheus")]
    pub to: Option<Timestamp>,
    /// The counter of CPU seconds [default: the agent's, else node_cpu_seconds_total]
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    pub metric: Option<String>,
    /// More label matchers, such as 'cluster="a",job="node"'
    #[arg(long = "match", value_name = "MATCHERS", requires = "prometheus")]
    pub matchers: Option<String>,
    /// The label that names the node
    #[arg(long, value_name = "LABEL", default_value = "instance", requires = "prometheus")]
    pub node_label: String,
    /// How long to wait for one answer
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration, conflicts_with = "files")]
    pub timeout: Duration,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Preset {
    /// Exathlon: `t`, then `node5_CPU001_Idle%`, …; -1 is missing; the job is the file's name
    Exathlon,
}

#[derive(Debug, ClapArgs)]
pub struct ListArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{TIMES}."))]
pub struct ShowArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub which: Which,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportFormat {
    /// time,node,cpu,job,user,system,iowait,other
    Csv,
    /// The same as one JSON object a line
    Jsonl,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportTable {
    /// Rates of each thread
    Cpu,
    /// Memory and pressure of each job
    Cgroup,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{TIMES}; times are exported as epoch seconds.\n\nExamples:\n  \
    tracewise archive export --data traces --format csv --out rates.csv\n  \
    tracewise archive export --data traces --node n001 --job 4711 --format jsonl --out -"))]
pub struct ExportArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub which: Which,
    #[arg(long, value_enum, default_value = "csv")]
    pub format: ExportFormat,
    /// Rates of threads, or memory and pressure of jobs
    #[arg(long, value_enum, default_value = "cpu")]
    pub table: ExportTable,
    /// The file to write; - is stdout
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print the outcome as JSON (on stdout; not together with --out -)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct CompactArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Remove files whose last reading is older than this, such as 90d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_age: Option<Duration>,
    /// Remove the oldest files until the archive takes no more than this, such as 500GB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_size: Option<u64>,
    /// Keep merged files for so long, for those who are reading them; a later run removes them
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Only say what would be removed; merge nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{TIMES}.\n\nExample:\n  tracewise archive replay --data traces --speed 60"))]
pub struct ReplayArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub which: Which,
    /// Recorded seconds a real second [default: as fast as possible]
    #[arg(long, value_name = "FACTOR")]
    pub speed: Option<f64>,
}

#[derive(Debug, ClapArgs)]
pub struct RecordArgs {
    /// The archive to record into: a folder or s3://bucket/prefix
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// How often to read, such as 1s or 100ms [default: record.interval of the configuration]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// The name to record this machine under [default: its hostname]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    #[command(flatten)]
    pub roots: KernelRoots,
    /// Stop after so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Print each acknowledged second as a JSON line
    #[arg(long)]
    pub json: bool,
}

/// Where the kernel's files are.
#[derive(Debug, ClapArgs)]
pub struct KernelRoots {
    /// Where the proc file system is mounted
    #[arg(long = "path.procfs", value_name = "FOLDER", default_value = "/proc")]
    pub procfs: PathBuf,
    /// Where control groups are mounted
    #[arg(long = "path.cgroupfs", value_name = "FOLDER", default_value = "/sys/fs/cgroup")]
    pub cgroupfs: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Which jobs are found on this node, which threads they own, what was skipped, what to change
    Doctor {
        #[command(flatten)]
        roots: KernelRoots,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// The settings in force, from defaults, file, environment
    Show {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Whether a file is sound
    Check {
        /// [default: the file in force]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print the outcome as JSON
        #[arg(long)]
        json: bool,
    },
    /// A file with every setting, its default and what it does
    Example,
}

/// Names of models with what they are, and `best`, with what that is.
fn model_names<T: Copy>(
    all: &[T],
    described: impl Fn(T) -> (&'static str, &'static str),
    best: String,
) -> PossibleValuesParser {
    let named = |model: &T| {
        let (name, description) = described(*model);
        PossibleValue::new(name).help(description)
    };
    PossibleValuesParser::new(all.iter().map(named).chain([PossibleValue::new("best").help(best)]))
}
