//! The command line: arguments and their help.

mod access;
mod analyze;
mod campaign;
mod detect;
mod jobs;
mod learning;
#[cfg(test)]
mod reference;
mod serve;
mod workflows;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use workload::units::{parse_bytes, parse_duration};
use workload::{JobId, NodeName, Timestamp};

use crate::times::parse_time;

pub use access::AccessArgs;
pub use analyze::{Analysis, AnalyzeCommand, SamplingArgs, SpectrumArgs, WhichSet};
pub use campaign::{
    CampaignCommand, CampaignRunArgs, CompareArgs, FitArgs, InjectArgs, JobArgs, LabelAddArgs, LabelCommand,
    LabelListArgs, SimulateArgs,
};

pub use detect::{
    DetectCommand, EvaluateArgs, EventsArgs, ExplainArgs, TableArgs, TrainArgs, WatchArgs, WindowArgs,
};
pub use jobs::{
    CompareTracesArgs, InspectArgs, JobsCommand, Reading, ReplayTraceArgs, SampleArgs, TrainGeneratorArgs,
};
pub use learning::{ExcludeCommand, LearnCommand, NightArgs, RehearseArgs, ReviewArgs, TrainOn};
pub use serve::{DemoArgs, HealthArgs, ModelsCommand, ServeArgs, StoreArgs, TokenCommand};
pub use workflows::{
    ClassifyArgs, CompareRunsArgs, DrawArgs, DrawStyle, EvaluateRunsArgs, FollowArgs, InjectRunArgs,
    RankTasksArgs, ReadArgs, RecordRunsArgs, TrainRunsArgs, TrainingArgs, WhichClassifier, WorkflowsCommand,
};

const TIMES: &str =
    "T is a time: epoch seconds, RFC 3339 such as 2026-11-15T08:00:00Z, or a day such as 2026-11-15";

/// Detects anomalies on compute clusters from CPU, job and workflow traces
#[derive(Debug, Parser)]
#[command(
    name = "tracewise",
    version = env!("TRACEWISE_VERSION"),
    propagate_version = true,
    after_help = "\
Examples:
  tracewise record --into traces                                  record this machine once a second
  tracewise archive list --data traces                            what an archive contains
  tracewise detect train --detector best --data traces --out model
  tracewise detect watch --model model --data traces              report anomalies as they happen

`tracewise COMMAND --help` and `tracewise COMMAND SUBCOMMAND --help` have more examples."
)]
pub struct Args {
    /// Configuration file [default: tracewise.toml in the current directory, if it exists]
    #[arg(long, global = true, env = "TRACEWISE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Log more to stderr
    #[arg(long, short, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Import, inspect, export and maintain CPU traces
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// Record the CPU threads of this machine into an archive, once a second
    Record(RecordArgs),
    /// Check what the agent can see on this node
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Make labelled CPU traces: run known jobs and record them, or simulate a cluster
    #[command(subcommand)]
    Campaign(CampaignCommand),
    /// Choose the window length and the sampling interval from labelled jobs
    #[command(subcommand)]
    Analyze(AnalyzeCommand),
    /// Train anomaly detectors on CPU traces, score archives, and explain anomalies
    #[command(subcommand)]
    Detect(DetectCommand),
    /// Run the service: read agents, score live, report events, serve the API
    Serve(ServeArgs),
    /// Run the service with a simulated cluster, to see what it does
    Demo(DemoArgs),
    /// Ask a running service whether it is healthy; exit code 1 if it is not
    Health(HealthArgs),
    /// List, compare, promote and roll back the models of the service
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Give verdicts about events: anomaly, normal or unsure
    Review(ReviewArgs),
    /// Let models compete, and list past competitions
    #[command(subcommand)]
    Learn(LearnCommand),
    /// Exclude times, such as maintenance, from training
    #[command(subcommand)]
    Exclude(ExcludeCommand),
    /// Rehearse a week of the service with a simulated cluster, and report what it found
    Rehearse(RehearseArgs),
    /// Create, list and revoke access tokens of the service
    #[command(subcommand)]
    Token(TokenCommand),
    /// Synthetic traces for scheduler experiments: train on a job trace, sample, compare, replay
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Read workflow logs, draw Gantt charts, and classify faults
    #[command(subcommand)]
    Workflows(WorkflowsCommand),
    /// Show and check the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Import CSV files, samples from Prometheus, or readings of agents
    Import(Box<ImportArgs>),
    /// List the nodes, jobs and times in an archive
    List(ListArgs),
    /// Show how busy nodes and their threads were
    Show(ShowArgs),
    /// Write rates as CSV or JSON lines
    Export(ExportArgs),
    /// Merge small files, and remove old ones
    Compact(CompactArgs),
    /// Check every byte of an archive; exit code 1 if anything is damaged
    Verify(VerifyArgs),
    /// Print readings in order of time, at any speed, as JSON lines
    Replay(ReplayArgs),
}

/// The archive that a command reads.
#[derive(Debug, ClapArgs)]
pub struct DataArgs {
    /// The archive to read: a directory or s3://bucket/prefix [default: archive.address of the configuration]
    #[arg(long = "data", value_name = "ARCHIVE")]
    pub address: Option<String>,
}

/// Which readings to read.
#[derive(Debug, ClapArgs)]
pub struct Which {
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    /// Only threads while this job owned them
    #[arg(long, value_name = "ID")]
    pub job: Option<JobId>,
    /// Start of the time range
    #[arg(long, value_name = "T", value_parser = parse_time)]
    pub from: Option<Timestamp>,
    /// End of the time range; readings at this time are left out
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
    /// CSV files; they may be compressed (.gz, .zst)
    #[arg(value_name = "FILE", required_unless_present_any = ["prometheus", "agent"], conflicts_with_all = ["prometheus", "agent"])]
    pub files: Vec<PathBuf>,
    /// The archive to import into: a directory or s3://bucket/prefix [default: archive.address of the configuration]
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// A known layout of CSV files
    #[arg(long, value_enum, required_unless_present_any = ["columns", "prometheus", "agent"], conflicts_with_all = ["prometheus", "agent"])]
    pub preset: Option<Preset>,
    /// A column map in TOML for other layouts; see docs/archive.md
    #[arg(long, value_name = "MAP.toml", conflicts_with_all = ["preset", "prometheus", "agent"])]
    pub columns: Option<PathBuf>,
    /// The job that owns every row
    #[arg(long, value_name = "ID", conflicts_with_all = ["prometheus", "agent"])]
    pub job: Option<JobId>,
    /// Fetch every reading that this agent still has; repeatable
    #[arg(long, value_name = "URL", conflicts_with = "prometheus")]
    pub agent: Vec<String>,
    /// Fetch raw samples from this Prometheus or VictoriaMetrics
    #[arg(long, value_name = "URL", requires = "from", requires = "to")]
    pub prometheus: Option<String>,
    /// Start of the time range
    #[arg(long, value_name = "T", value_parser = parse_time, conflicts_with = "files")]
    pub from: Option<Timestamp>,
    /// End of the time range
    #[arg(long, value_name = "T", value_parser = parse_time, requires = "prometheus")]
    pub to: Option<Timestamp>,
    /// The counter of CPU seconds [default: that of the agent, else node_cpu_seconds_total]
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    pub metric: Option<String>,
    /// Further label matchers, such as 'cluster="a",job="node"'
    #[arg(long = "match", value_name = "MATCHERS", requires = "prometheus")]
    pub matchers: Option<String>,
    /// The label that names the node
    #[arg(long, value_name = "LABEL", default_value = "instance", requires = "prometheus")]
    pub node_label: String,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Preset {
    /// Exathlon: `t`, then `node5_CPU001_Idle%`, …; -1 is missing; the job is named after the file
    Exathlon,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  tracewise archive list --data traces --json")]
pub struct ListArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = format!("{TIMES}.\n\nExample:\n  tracewise archive show --data traces --node n001"))]
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
    /// The same fields, one JSON object per line
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
    /// The output format
    #[arg(long, value_enum, default_value = "csv")]
    pub format: ExportFormat,
    /// Rates of threads, or memory and pressure of jobs
    #[arg(long, value_enum, default_value = "cpu")]
    pub table: ExportTable,
    /// The file to write; - means stdout
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print the result as JSON to stdout; not possible with --out -
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  tracewise archive compact --data traces\n  \
    tracewise archive compact --data traces --max-age 90d --dry-run")]
pub struct CompactArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Remove files whose last reading is older than this, such as 90d [default: archive.retention of the configuration]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub max_age: Option<Duration>,
    /// Remove the oldest files until the archive is not larger than this, such as 500GB [default: archive.retention of the
    /// configuration]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_size: Option<u64>,
    /// Keep files that were merged for this long, for commands that are reading them; a later run removes them
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub grace: Option<Duration>,
    /// Only list what would be removed; do not merge or remove anything
    #[arg(long)]
    pub dry_run: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:\n  tracewise archive verify --data traces")]
pub struct VerifyArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Print the result as JSON
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
    /// Recorded seconds per real second [default: as fast as possible]
    #[arg(long, value_name = "FACTOR")]
    pub speed: Option<f64>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  tracewise record --into traces\n  \
    tracewise record --into traces --interval 100ms --duration 10m --json")]
pub struct RecordArgs {
    /// The archive to record into: a directory or s3://bucket/prefix [default: archive.address of the configuration]
    #[arg(long, value_name = "ARCHIVE")]
    pub into: Option<String>,
    /// The sampling interval, such as 1s or 100ms [default: record.interval of the configuration]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub interval: Option<Duration>,
    /// The name of this machine in the archive [default: its hostname]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    #[command(flatten)]
    pub roots: KernelRoots,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Print each acknowledged reading as a JSON line
    #[arg(long)]
    pub json: bool,
}

/// Where the file systems of the kernel are mounted.
#[derive(Debug, ClapArgs)]
pub struct KernelRoots {
    /// Where the proc file system is mounted
    #[arg(long = "path.procfs", value_name = "DIR", default_value = "/proc")]
    pub procfs: PathBuf,
    /// Where control groups are mounted
    #[arg(long = "path.cgroupfs", value_name = "DIR", default_value = "/sys/fs/cgroup")]
    pub cgroupfs: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Show the jobs found on this node and the threads they own, and suggest changes
    #[command(
        after_help = "The exit code is 1 if there is something to change.\n\nExample:\n  tracewise agent doctor"
    )]
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
    /// Show the settings that apply, from defaults, file and environment
    Show {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration file
    #[command(after_help = "Example:\n  tracewise config check tracewise.toml")]
    Check {
        /// The file to check [default: the file that applies]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a configuration file with every setting, its default and its meaning
    #[command(after_help = "Example:\n  tracewise config example > tracewise.toml")]
    Example,
}

/// Accepts the names of models, and `best`, each with its description.
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
