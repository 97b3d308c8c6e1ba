//! Arguments of `tracewise learn`, `tracewise review`, `tracewise exclude` and `tracewise rehearse`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use lifecycle::{AcceptedScope, Answer};
use workload::units::parse_duration;
use workload::{NodeName, Timestamp};

use super::StoreArgs;
use crate::times::parse_time;

/// Where candidates are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrainOn {
    Here,
    Slurm,
}

#[derive(Debug, ClapArgs)]
pub struct NightArgs {
    /// Where candidates are trained
    #[arg(long, value_enum, value_name = "WHERE", default_value = "here")]
    pub on: TrainOn,
    /// How long candidates may take with --on slurm
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = parse_duration)]
    pub deadline: Duration,
    /// A further argument of sbatch; may be given several times
    #[arg(long = "sbatch", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub options: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum LearnCommand {
    /// Let models compete with the data of the last day; the winner becomes the champion
    #[command(after_help = "\
Candidates are trained on 60 % of the jobs, thresholds are set with 20 %, and the rest and all confirmed anomalies judge.
The lowest reconstruction error wins, unless the winner would find fewer anomalies or raise more false events than the
champion. Settings are in [serve.learning] of the configuration. A running service does this every night by itself and
uses the winner within seconds.

With `--on slurm`, each candidate is a task of a job array. The data directory and the program must be at the same place on
all nodes. Tasks that are requeued start again; candidates without a result at the deadline do not take part.

Examples:
    tracewise learn tonight
    tracewise learn tonight --data /var/lib/tracewise --json
    tracewise learn tonight --on slurm --deadline 90m --sbatch=--partition=short --sbatch=--cpus-per-task=8")]
    Tonight {
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        night: NightArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Train and judge one candidate of a night; the tasks of `tonight --on slurm` run this
    #[command(hide = true)]
    Candidate {
        /// The directory of the assignment
        folder: PathBuf,
        /// The number of the candidate
        number: usize,
    },
    /// How often models can compete on this machine, and how that changes with the number of threads
    #[command(after_help = "\
This is derived from the nights that were held. If they had clusters of different sizes, a line is fitted to their durations;
otherwise the time is taken to be proportional to the number of threads. Learning may use half of the time.

Examples:
    tracewise learn cadence
    tracewise learn cadence --data /var/lib/tracewise --json")]
    Cadence {
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// List past competitions, the newest first
    History {
        #[command(flatten)]
        store: StoreArgs,
        /// The number of competitions
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Without an event, events without a verdict are shown one after the other; answer with one key: a (anomaly), n (normal),
u (unsure), s (skip), z (undo the last verdict), q (quit). Before an event is called normal, the events that this would
have hidden in the last 30 days are shown.

Examples:
    tracewise review
    tracewise review --list
    tracewise review 4c1d2e0a9b8f7a61 --answer anomaly --kind bad-io
    tracewise review 4c1d2e0a9b8f7a61 --answer normal --scope node --days 7
    tracewise review --undo 12")]
pub struct ReviewArgs {
    /// An event, as `tracewise review --list` prints it
    pub event: Option<String>,
    /// The verdict: anomaly, normal or unsure
    #[arg(long, requires = "event")]
    pub answer: Option<Answer>,
    /// What kind of anomaly it is, such as bad-io
    #[arg(long, requires = "answer")]
    pub kind: Option<String>,
    /// Why
    #[arg(long, default_value = "")]
    pub comment: String,
    /// Where events like a normal one are hidden: cluster or node
    #[arg(long, default_value = "cluster")]
    pub scope: AcceptedScope,
    /// For how many days they are hidden
    #[arg(long, default_value_t = 30.0)]
    pub days: f64,
    /// Undo a verdict with all of its effects
    #[arg(long, value_name = "VERDICT", conflicts_with_all = ["event", "list"])]
    pub undo: Option<i64>,
    /// List the events without a verdict
    #[arg(long, conflicts_with = "event")]
    pub list: bool,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ExcludeCommand {
    /// Exclude a time, such as maintenance, from training
    #[command(after_help = "Examples:
    tracewise exclude add --from 2026-11-15T08:00:00Z --to 2026-11-15T18:00:00Z --reason maintenance
    tracewise exclude add --node n017 --from 2026-11-01 --to 2026-11-08 --reason \"new node\"")]
    Add {
        /// Only this node [default: all nodes]
        #[arg(long, value_name = "NAME")]
        node: Option<NodeName>,
        /// Start of the time range
        #[arg(long, value_name = "T", value_parser = parse_time)]
        from: Timestamp,
        /// End of the time range
        #[arg(long, value_name = "T", value_parser = parse_time)]
        to: Timestamp,
        /// Why; it is kept in the audit log
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// List the times that are excluded
    List {
        #[command(flatten)]
        store: StoreArgs,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Learn from a time again
    Remove {
        /// The number of the exclusion, as `tracewise exclude list` prints it
        number: i64,
        #[command(flatten)]
        store: StoreArgs,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "\
The week: anomalous jobs on days 2, 3, 5 and 7; jobs behave differently from day 4 on; a harmless new kind of job from
day 6 on. The report is written as rehearsal.html, rehearsal.md and rehearsal.json.

Examples:
    tracewise rehearse --out report
    tracewise rehearse --seed 7 --error-rate 0.1 --out report-with-wrong-verdicts")]
pub struct RehearseArgs {
    /// The number of days
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub days: u32,
    /// The random seed of the cluster, the administrator and the candidates
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many hours of each day are simulated
    #[arg(long, default_value_t = 6.0)]
    pub hours: f64,
    /// Nodes of the simulated cluster
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes: u32,
    /// Hardware threads of each node
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// The fraction of the administrator's verdicts that are wrong
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    pub error_rate: f64,
    /// The directory of the report
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Keep the archive, the models and the events in this directory, to look at them with other commands
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}
