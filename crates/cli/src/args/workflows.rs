//! What can be typed after `tracewise workflows`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use workflows::classify::Model;
use workflows::evaluate::Protocol;

use super::model_names;

#[derive(Debug, Subcommand)]
pub enum WorkflowsCommand {
    /// Where the time of a run went: every delay of every task
    Read(ReadArgs),
    /// Draw a run as a Gantt chart
    Draw(DrawArgs),
    /// Learn from labelled runs
    Train(TrainRunsArgs),
    /// What is wrong with runs, and why
    Classify(ClassifyArgs),
    /// How good a classifier is, under three protocols side by side
    Evaluate(EvaluateRunsArgs),
    /// Read a log as it grows, and say how the run does
    Follow(FollowArgs),
    /// Put trouble into recorded runs
    Inject(InjectRunArgs),
    /// Two runs side by side, task by task
    Compare(CompareRunsArgs),
    /// Run a small workflow on this machine, with real trouble if wanted, and record it
    Record(RecordRunsArgs),
}

/// The model, or `best`, which may be another where there are healthy runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichModel {
    Best,
    This(Model),
}

fn model_parser() -> impl TypedValueParser<Value = WhichModel> {
    let best = format!(
        "The one that measurements recommend: {}, or {} where all runs are healthy",
        Model::BEST.name(),
        Model::Usual.name()
    );
    model_names(&Model::ALL, |model| (model.name(), model.description()), best).map(|name| {
        Model::ALL.into_iter().find(|model| model.name() == name).map_or(WhichModel::Best, WhichModel::This)
    })
}

fn protocol_parser() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(Protocol::ALL.map(Protocol::name)).map(|name| {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name).unwrap_or(Protocol::Random)
    })
}

/// `label=file`
fn parse_labelled(text: &str) -> Result<(String, PathBuf), String> {
    let (label, file) = text.split_once('=').ok_or("write label=file, such as hdd_50=run.csv")?;
    Ok((label.to_owned(), file.into()))
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Reads tables of jobs (FlowBench), submit folders and jobstate.log of Pegasus, *.dagman.out, event logs of \
    HTCondor, stampede databases, WfFormat and Nextflow's trace.txt; what a file is, it finds out.\n\nExamples:\n  \
    tracewise workflows read run.csv\n  tracewise workflows read submit/run0001 --json\n  \
    tracewise workflows read process-0.stampede.db --json"
)]
pub struct ReadArgs {
    /// A file or a submit folder
    pub run: PathBuf,
    /// Delays as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DrawStyle {
    /// Names, a legend, the critical path and retries
    Named,
    /// As networks see it: a row a job, no letters
    Seed,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "What is drawn, the name of the file says: .png, .svg, or .html to walk about in.\n\nExamples:\n  \
    tracewise workflows draw run.csv --out run.html\n  tracewise workflows draw run.csv --style seed --size 224 --out run.png"
)]
pub struct DrawArgs {
    /// A file or a submit folder
    pub run: PathBuf,
    #[arg(long, value_enum, default_value = "named")]
    pub style: DrawStyle,
    /// Pixels on a side (seed), or of the width (named)
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub size: u32,
    /// Where it is written
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// What training may be told.
#[derive(Debug, Clone, ClapArgs)]
pub struct Learning {
    /// Published weights to start from: .pth or .safetensors
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Train all of a network with published weights, not only its last layer
    #[arg(long)]
    pub fine_tune: bool,
    /// Vary the pictures while learning
    #[arg(long)]
    pub augment: bool,
    /// Rounds of training, for networks
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Learn for runs that are over only: tables take a quarter of the time, and runs that go on are refused
    #[arg(long)]
    pub finished: bool,
    /// The same seed, the same result
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Runs are files <label>/<workflow>[-<batch>]-runNNNN.csv in a folder, a .tar or a .tar.zst.\n\nExamples:\n  \
    tracewise workflows train --model best --runs runs.tar.zst --out model --seed 1\n  \
    tracewise workflows train --model cnn --augment --runs runs --split splits.csv --out cnn\n  \
    tracewise workflows train --model efficientnet-lite0 --weights efficientnet-lite0.pth --runs runs --out transfer\n  \
    tracewise workflows train --model best --runs runs --add hdd_50=yesterday.csv --out model"
)]
pub struct TrainRunsArgs {
    #[arg(long, value_parser = model_parser(), default_value = "best")]
    pub model: WhichModel,
    /// Labelled runs: a folder of `<label>/<workflow>[-<batch>]-runNNNN.csv`, plain or as .tar.zst
    #[arg(long, value_name = "DIR_OR_TAR")]
    pub runs: PathBuf,
    /// Where it is written
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Which runs to learn from: a table split,label,main_label,run
    #[arg(long, value_name = "FILE")]
    pub split: Option<PathBuf>,
    /// A run that was labelled since; may be given again
    #[arg(long, value_name = "LABEL=FILE", value_parser = parse_labelled)]
    pub add: Vec<(String, PathBuf)>,
    #[command(flatten)]
    pub learning: Learning,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  tracewise workflows classify --model model run.csv\n  \
    tracewise workflows classify --model model runs/*.csv --json")]
pub struct ClassifyArgs {
    /// What `train` wrote
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Files or submit folders
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Without --protocol, all that the runs allow: authors (needs --split), random, leave-batch-out (needs \
    batches).\n\nExamples:\n  tracewise workflows evaluate --model best --runs runs.tar.zst --split splits.csv\n  \
    tracewise workflows evaluate --model trees --runs runs.tar.zst --protocol leave-batch-out --json\n  \
    tracewise workflows evaluate --model best --runs 1000-genome.tar.zst --per-job --json"
)]
pub struct EvaluateRunsArgs {
    #[arg(long, value_parser = model_parser(), default_value = "best")]
    pub model: WhichModel,
    /// Labelled runs: a folder of `<label>/<workflow>[-<batch>]-runNNNN.csv`, plain or as .tar.zst
    #[arg(long, value_name = "DIR_OR_TAR")]
    pub runs: PathBuf,
    #[arg(long, value_parser = protocol_parser())]
    pub protocol: Option<Protocol>,
    /// A table `split,label,main_label,run` that says what is learnt from and what is judged
    #[arg(long, value_name = "FILE")]
    pub split: Option<PathBuf>,
    /// Judge every task, where tasks have labels
    #[arg(long)]
    pub per_job: bool,
    /// Choose what slowdown can be told inside the training batches of every fold
    #[arg(long)]
    pub nested: bool,
    #[command(flatten)]
    pub learning: Learning,
    /// Write a report with curves and confusions
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Follows jobstate.log, *.dagman.out, an event log of HTCondor, or a submit folder; only what is new is \
    read. Ends with the run, or with Ctrl-C; event logs of HTCondor do not say when it is over.\n\nExamples:\n  tracewise workflows follow submit/run0001\n  \
    tracewise workflows follow --model model submit/run0001 --every 30s --json"
)]
pub struct FollowArgs {
    /// A log or a submit folder
    pub log: PathBuf,
    /// Say what is wrong, as far as it shows
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = workload::units::parse_duration)]
    pub every: std::time::Duration,
    /// Read what is there, and end
    #[arg(long)]
    pub once: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Trouble is cpu_K (K cores taken), hdd_P (P per cent of the disk's speed left) or loss_P (P per cent of \
    packets lost). How each changes a run: docs/workflows.md.\n\nExamples:\n  \
    tracewise workflows inject run.csv --trouble loss_1 --out made/\n  \
    tracewise workflows inject normal/*.csv --trouble cpu_2 --trouble hdd_50 --cores 8 --out made/"
)]
pub struct InjectRunArgs {
    /// Runs: a log, a submit folder, or a table
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// May be given again
    #[arg(long, required = true, value_name = "TROUBLE")]
    pub trouble: Vec<String>,
    /// Cores of a machine
    #[arg(long, default_value_t = workflows::inject::CORES)]
    pub cores: u32,
    /// A folder: runs are written to <trouble>/<run>.csv
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The same seed, the same result
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  tracewise workflows compare yesterday.csv today.csv\n  \
    tracewise workflows compare yesterday.csv today.csv --json")]
pub struct CompareRunsArgs {
    /// The run to compare with
    pub before: PathBuf,
    pub after: PathBuf,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Trouble is real: cpu_K keeps K threads busy, hdd_P writes to the disk (the more, the less P per cent of \
    its speed are to be left), loss_P loses P per cent of the packets on the loopback, which needs tc and the right to use \
    it.\n\nExamples:\n  tracewise workflows record --runs 20 --out runs\n  \
    tracewise workflows record --trouble cpu_2 --runs 20 --out runs"
)]
pub struct RecordRunsArgs {
    /// normal, cpu_K, hdd_P or loss_P
    #[arg(long, default_value = "normal")]
    pub trouble: String,
    #[arg(long, default_value_t = 1)]
    pub runs: u32,
    /// A folder: runs are written to <trouble>/<run>.csv
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
