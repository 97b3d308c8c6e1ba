//! What can be typed after `tracewise detect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand};
use detect::Model;
use workload::units::parse_duration;
use workload::{JobId, NodeName, Set};

use super::model_names;

#[derive(Debug, Subcommand)]
pub enum DetectCommand {
    /// Learn what normal windows of CPU threads look like
    Train(TrainArgs),
    /// Score the windows of an archive: higher is stranger
    #[command(
        after_help = "Columns: node, cpu, job, window_start (epoch seconds; a timestamp in Parquet), window_seconds, score, \
    threshold,\nuser_error, system_error, iowait_error, other_error; then an error for each further channel.\n\n\
    Example:\n  tracewise detect score --model model --data traces --set test --out scores.parquet"
    )]
    Score(TableArgs),
    /// The embeddings of the windows of an archive
    #[command(after_help = "Columns: node, cpu, job, window_start, window_seconds, then z0, z1, …\n\n\
    Example:\n  tracewise detect embed --model model --data traces --out embeddings.parquet")]
    Embed(TableArgs),
    /// Score an archive as it grows, and say what is strange
    Watch(WatchArgs),
    /// Why the strangest windows are strange: channels, seconds, and which known kind they are like
    Explain(ExplainArgs),
    /// Compare detectors on the test set of an archive, and on trouble put into it
    Evaluate(EvaluateArgs),
}

/// Detectors by name, with `best` for the one that measurements recommend.
fn model_parser() -> impl TypedValueParser<Value = Model> {
    let best = format!("The one that measurements recommend: {}", Model::BEST.name());
    model_names(&Model::ALL, |model| (model.name(), model.description()), best)
        .map(|name| Model::ALL.into_iter().find(|model| model.name() == name).unwrap_or(Model::BEST))
}

fn set_parser() -> impl TypedValueParser<Value = Set> {
    PossibleValuesParser::new(Set::ALL.map(Set::name))
        .try_map(|name| Set::ALL.into_iter().find(|set| set.name() == name).ok_or("there is no such set"))
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Depth, widths, window, channels and the rate of false alarms are settings: [detector] in the file \
    of --config; `tracewise config example` shows them.\n\n\
    Interrupted training goes on from OUT.checkpoint when the same command is given again.\n\n\
    Examples:\n  tracewise detect train --model best --data traces --out model\n  \
    tracewise detect train --model ae --data traces --out model --seed 3 --config detector.toml"
)]
pub struct TrainArgs {
    /// The kind of detector
    #[arg(long, value_parser = model_parser())]
    pub model: Model,
    /// The archive to learn from: its train set; thresholds come from its validation set. Without labels, the first
    /// six tenths of its time and the two after them
    #[arg(long, value_name = "ARCHIVE")]
    pub data: Option<String>,
    /// The folder to write the model to
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// The same seed makes the same model [default: train.seed of the settings]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

/// A model, and what it is to look at.
#[derive(Debug, Clone, ClapArgs)]
pub struct Look {
    /// The folder of a model that was trained
    #[arg(long, value_name = "FOLDER")]
    pub model: PathBuf,
    /// The archive to look at
    #[arg(long, value_name = "ARCHIVE")]
    pub data: Option<String>,
    /// Only the jobs of one set [default: all jobs]
    #[arg(long, value_parser = set_parser())]
    pub set: Option<Set>,
    /// Seconds from one window to the next [default: half a window]
    #[arg(long, value_name = "SECONDS")]
    pub stride: Option<u64>,
}

/// A look whose outcome is a table.
#[derive(Debug, ClapArgs)]
pub struct TableArgs {
    #[command(flatten)]
    pub look: Look,
    /// The file to write, .parquet or .csv
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Each detector is trained on the train set as often as --ensemble says, its threshold set on the \
    validation set,\nand judged on the test set: labelled anomalies there, and trouble of known strength put into its \
    normal windows.\n\n\
    Example:\n  tracewise detect evaluate --data traces --models ae,pca,best --ensemble 3 --out report"
)]
pub struct EvaluateArgs {
    /// The archive to train and judge with
    #[arg(long, value_name = "ARCHIVE")]
    pub data: Option<String>,
    /// Detectors to compare
    #[arg(long, value_parser = model_parser(), value_delimiter = ',',
        default_value = "ae,node-gnn,job-gnn,vae,pca,nearest,hierarchy")]
    pub models: Vec<Model>,
    /// How often each is trained, from other beginnings
    #[arg(long, default_value = "10")]
    pub ensemble: usize,
    /// The folder to write the report to: HTML, SVG, PNG, JSON, Markdown
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// The share of training windows to put trouble into first, unlabelled, as an administrator's archive may have it
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub contaminate: f64,
    /// The seed of the first of each ensemble; the others follow [default: train.seed of the settings]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print the numbers as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Kinds are known from labelled jobs: those of the archive itself without the job in question, or of \
    --known.\n\n\
    Examples:\n  tracewise detect explain --model model --data traces --set test --top 3\n  \
    tracewise detect explain --model model --data traces --job 4711 --known labelled"
)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub look: Look,
    /// Only windows of this job
    #[arg(long, value_name = "ID")]
    pub job: Option<JobId>,
    /// Only windows of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    /// How many threads to explain, the strangest window of each
    #[arg(long, default_value = "5")]
    pub top: usize,
    /// An archive with labelled jobs to compare with [default: the archive itself]
    #[arg(long, value_name = "ARCHIVE")]
    pub known: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Until Ctrl-C. Something has to be writing to the archive: `tracewise record`, or `tracewise campaign \
    simulate --live`.\n\n\
    Example:\n  tracewise detect watch --model model --data traces"
)]
pub struct WatchArgs {
    /// The folder of a model that was trained
    #[arg(long, value_name = "FOLDER")]
    pub model: PathBuf,
    /// The archive to watch
    #[arg(long, value_name = "ARCHIVE")]
    pub data: Option<String>,
    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10s")]
    pub every: Duration,
    /// Stop after so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Print a line of JSON each time
    #[arg(long)]
    pub json: bool,
}
