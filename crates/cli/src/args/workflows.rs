//! Arguments of `tracewise workflows`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use workflows::classify::ClassifierKind;
use workflows::evaluate::Protocol;

use super::model_names;

#[derive(Debug, Subcommand)]
pub enum WorkflowsCommand {
    /// Show the delays of every task of a run
    Read(ReadArgs),
    /// Draw a run as a Gantt chart
    Draw(DrawArgs),
    /// Train a classifier on labelled runs
    Train(TrainRunsArgs),
    /// Find the fault of runs, with reasons
    Classify(ClassifyArgs),
    /// Rank the tasks of runs by how anomalous they are, with reasons; needs no labels
    Tasks(RankTasksArgs),
    /// Follow a run while it goes on
    Follow(FollowArgs),
    /// Compare two runs task by task
    Compare(CompareRunsArgs),
    /// Evaluate a classifier under three protocols
    Evaluate(EvaluateRunsArgs),
    /// Inject a fault into recorded runs, by a simple model
    Inject(InjectRunArgs),
    /// Run and record a small workflow on this machine, with or without a fault
    Record(RecordRunsArgs),
}

/// A classifier, or the recommended one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichClassifier {
    Best,
    This(ClassifierKind),
}

fn classifier_parser() -> impl TypedValueParser<Value = WhichClassifier> {
    let best = format!(
        "The recommended one: {}, or {} if all runs are healthy",
        ClassifierKind::BEST.name(),
        ClassifierKind::Baseline.name()
    );
    let kinds = &ClassifierKind::ALL;
    model_names(kinds, |kind| (kind.name(), kind.description()), best).map(|name| {
        let kind = ClassifierKind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.map_or(WhichClassifier::Best, WhichClassifier::This)
    })
}

fn protocol_parser() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(Protocol::ALL.map(Protocol::name)).map(|name| {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name).unwrap_or(Protocol::Random)
    })
}

/// `label=file`
fn parse_labelled(text: &str) -> Result<(String, PathBuf), String> {
    let (label, file) = text.split_once('=').ok_or("expected label=file, such as hdd_50=run.csv")?;
    Ok((label.to_owned(), file.into()))
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction: &f64| *fraction > 0.0 && *fraction <= 1.0);
    fraction.ok_or_else(|| "expected a fraction above 0 and up to 1, such as 0.3".to_owned())
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The format of the file is recognised: FlowBench tables, submit directories and jobstate.log of Pegasus, \
    *.dagman.out, HTCondor event logs, stampede databases, WfFormat, Nextflow's trace.txt, and a submit directory in a .tar, \
    .tar.gz, .tar.xz or .tar.zst. Tasks of a sub-workflow are shown as <node>/<task>.\n\nDelays, in seconds: ready (since \
    the start of the workflow), pre_script, wms_delay, queue, held (part of queue), stage_in, runtime (without staging), \
    stage_out, post_script.\n\nExamples:\n  \
    tracewise workflows read run.csv\n  tracewise workflows read submit/run0001 --json\n  \
    tracewise workflows read run0001.tar.xz\n  \
    tracewise workflows read process-0.stampede.db --json"
)]
pub struct ReadArgs {
    /// A file or a submit directory
    pub run: PathBuf,
    /// Print every attempt with its delays as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DrawStyle {
    /// With names, a legend, the critical path and retries
    Named,
    /// The chart that networks are trained on: one row per job, no text (Krawczuk et al., PEARC 2021)
    Paper,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The extension of the file decides the format: .png, .svg, or .html for an interactive chart.\n\n\
    Examples:\n  tracewise workflows draw run.csv --out run.html\n  \
    tracewise workflows draw run.csv --style paper --size 224 --out run.png"
)]
pub struct DrawArgs {
    /// A file or a submit directory
    pub run: PathBuf,
    #[arg(long, value_enum, default_value = "named")]
    pub style: DrawStyle,
    /// The side (paper) or the width (named), in pixels
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub size: u32,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Settings of a training.
#[derive(Debug, Clone, ClapArgs)]
pub struct TrainingArgs {
    /// Pre-trained weights of a network: .pth or .safetensors
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Train all layers of a pre-trained network, not only the last one
    #[arg(long)]
    pub fine_tune: bool,
    /// Vary the charts of the training set at random
    #[arg(long)]
    pub augment: bool,
    /// Epochs of training, for networks
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Train for finished runs only: a quarter of the time for table classifiers; unfinished runs are rejected
    #[arg(long)]
    pub finished: bool,
    /// The random seed
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Runs are files <label>/<workflow>[-<batch>]-runNNNN.csv in a directory, a .tar or a .tar.zst.\n\nExamples:\n  \
    tracewise workflows train --classifier best --runs runs.tar.zst --out model --seed 1\n  \
    tracewise workflows train --classifier cnn --augment --runs runs --split splits.csv --out cnn\n  \
    tracewise workflows train --classifier resnet18 --weights resnet18.pth --runs runs --out resnet18\n  \
    tracewise workflows train --classifier best --runs runs --add hdd_50=yesterday.csv --out model"
)]
pub struct TrainRunsArgs {
    #[arg(long, value_parser = classifier_parser(), default_value = "best")]
    pub classifier: WhichClassifier,
    /// Labelled runs: a directory, a .tar or a .tar.zst
    #[arg(long, value_name = "DIR_OR_TAR")]
    pub runs: PathBuf,
    /// The directory of the trained model
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Training and validation runs: a table with the columns split,label,main_label,run
    #[arg(long, value_name = "FILE")]
    pub split: Option<PathBuf>,
    /// Another labelled run; can be repeated. It replaces the label of a run that is there already
    #[arg(long, value_name = "LABEL=FILE", value_parser = parse_labelled)]
    pub add: Vec<(String, PathBuf)>,
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "A run is rejected if it is of another workflow than the training set, if too few of its tasks are over, or \
    if it has neither CPU times nor staging times. The exit code is then 1.\n\nExamples:\n  \
    tracewise workflows classify --model model run.csv\n  \
    tracewise workflows classify --model model runs/*.csv --json"
)]
pub struct ClassifyArgs {
    /// The directory of a trained model
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Files or submit directories
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Print verdicts as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "A task is compared with the baseline and its machine with the other machines of the run. Runs shortly before and \
    after count too, because a faulty machine stays faulty: give all recent runs. The baseline is that of the model, or the median \
    of the given runs, of which most should be healthy.\n\nExamples:\n  \
    tracewise workflows tasks runs/*.csv --top 10\n  \
    tracewise workflows tasks --model model submit/run0001 --json"
)]
pub struct RankTasksArgs {
    /// Files or submit directories
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The directory of a trained model: use its baseline
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// How many tasks to print
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub top: usize,
    /// Print the tasks as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Without --protocol, all protocols that the runs allow: authors (needs --split), random, leave-batch-out \
    (needs batches).\n\nExamples:\n  \
    tracewise workflows evaluate --classifier best --runs runs.tar.zst --split splits.csv\n  \
    tracewise workflows evaluate --classifier trees --runs runs.tar.zst --protocol leave-batch-out --json\n  \
    tracewise workflows evaluate --runs 1000-genome.tar.zst --per-job --json"
)]
pub struct EvaluateRunsArgs {
    #[arg(long, value_parser = classifier_parser(), default_value = "best")]
    pub classifier: WhichClassifier,
    /// Labelled runs: a directory, a .tar or a .tar.zst
    #[arg(long, value_name = "DIR_OR_TAR")]
    pub runs: PathBuf,
    #[arg(long, value_parser = protocol_parser())]
    pub protocol: Option<Protocol>,
    /// The authors' split: a table with the columns split,label,main_label,run
    #[arg(long, value_name = "FILE")]
    pub split: Option<PathBuf>,
    /// Rank single tasks instead, where tasks have labels
    #[arg(long)]
    pub per_job: bool,
    /// Tune the hyper-parameters of slowdown by leave-one-batch-out cross-validation within each fold
    #[arg(long)]
    pub nested: bool,
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Write a report with training curves and confusion matrices
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print metrics as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Follows jobstate.log, *.dagman.out, an HTCondor event log (such as *.nodes.log), Nextflow's trace.txt, a \
    stampede database, or a submit directory with its sub-workflows. Of logs, only what was appended is read. Ends with the \
    run or with Ctrl-C; HTCondor event logs and traces of Nextflow do not say when a workflow is over.\n\nExamples:\n  \
    tracewise workflows follow submit/run0001\n  tracewise workflows follow trace.txt --every 30s\n  \
    tracewise workflows follow --model model submit/run0001 --every 30s --json"
)]
pub struct FollowArgs {
    /// A log, a database or a submit directory
    pub log: PathBuf,
    /// The directory of a trained model: classify the run as it goes on
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// How often to look for changes
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = workload::units::parse_duration)]
    pub every: std::time::Duration,
    /// Read what is there and end
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Faults: cpu_K takes K cores from a machine, hdd_K caps disk writes at K MB/s and reads at 2 K MB/s, loss_P \
    loses P per cent of packets. docs/workflows.md describes the model. Injected faults do not replace recorded ones.\n\n\
    Examples:\n  tracewise workflows inject run.csv --fault loss_1 --out injected/\n  \
    tracewise workflows inject normal/*.csv --fault cpu_2 --fault hdd_100 --cores 8 --machines 0.3 --out injected/"
)]
pub struct InjectRunArgs {
    /// Tables, logs or submit directories
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The fault; can be repeated
    #[arg(long, required = true, value_name = "FAULT")]
    pub fault: Vec<String>,
    /// Cores of every machine
    #[arg(long, default_value_t = workflows::inject::Machine::default().cores)]
    pub cores: u32,
    /// The rate of disk writes without a fault, in MB/s; reads are assumed to be twice as fast
    #[arg(long, value_name = "MB_PER_S", default_value_t = workflows::inject::Machine::default().disk_write_mb_per_second)]
    pub disk_write_rate: f64,
    /// TCP connections of a transfer, which share the effect of packet loss
    #[arg(long, value_name = "N", default_value_t = workflows::inject::Machine::default().connections, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub connections: u32,
    /// The fraction of the machines of a run that have the fault, drawn at random; at least one has it
    #[arg(long, value_name = "FRACTION", default_value_t = workflows::inject::Machine::default().affected_fraction, value_parser = parse_fraction)]
    pub machines: f64,
    /// The directory to write <fault>/<run>.csv to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The random seed
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "For every task, shows the delay that changed most.\n\nExamples:\n  \
    tracewise workflows compare yesterday.csv today.csv\n  \
    tracewise workflows compare yesterday.csv today.csv --json")]
pub struct CompareRunsArgs {
    /// The run to compare with
    pub before: PathBuf,
    pub after: PathBuf,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Faults are real: cpu_K keeps K threads busy, hdd_K writes to the disk with more threads the lower K is (the cap \
    of K MB/s is not enforced), loss_P loses P per cent of packets on the loopback interface, which needs tc and \
    CAP_NET_ADMIN.\n\nExamples:\n  tracewise workflows record --runs 20 --out runs\n  \
    tracewise workflows record --fault cpu_2 --runs 20 --out runs"
)]
pub struct RecordRunsArgs {
    /// normal, cpu_K, hdd_K or loss_P
    #[arg(long, default_value = "normal")]
    pub fault: String,
    /// How many runs to record
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The directory to write <fault>/<run>.csv to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}
