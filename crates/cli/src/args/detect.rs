//! Arguments of `tracewise detect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand};
use detect::DetectorKind;
use workload::units::parse_duration;
use workload::{JobId, NodeName, Set};

use super::{DataArgs, model_names};

#[derive(Debug, Subcommand)]
pub enum DetectCommand {
    /// Train a detector on normal windows of CPU traces
    Train(TrainArgs),
    /// Find the events of an archive: what deviates, since when, where and why
    Events(EventsArgs),
    /// Score the windows of an archive; higher is more anomalous
    #[command(
        after_help = "Columns: node, cpu, job, window_start (epoch seconds; a timestamp in Parquet), window_seconds, score, \
    strength\n(above 1, the window exceeds a threshold of events), user_error, system_error, iowait_error, other_error; an error for each further channel; for the vae \
    also\nreconstruction_variance and latent_variance.\n\n\
    Example:\n  tracewise detect score --model model --data traces --set test --out scores.parquet"
    )]
    Score(TableArgs),
    /// Write the embeddings of the windows of an archive
    #[command(after_help = "Columns: node, cpu, job, window_start, window_seconds, then z0, z1, …\n\n\
    Example:\n  tracewise detect embed --model model --data traces --out embeddings.parquet")]
    Embed(TableArgs),
    /// Watch an archive while it is being written, and print events
    Watch(WatchArgs),
    /// Explain the most anomalous windows: level, channels or features, time, and similar known kinds
    Explain(ExplainArgs),
    /// Compare detectors on the test set of an archive and on injected faults
    Evaluate(EvaluateArgs),
}

/// Detectors by name; `best` is the recommended one.
fn detector_parser() -> impl TypedValueParser<Value = DetectorKind> {
    let best = format!("The recommended detector: {}", DetectorKind::BEST.name());
    model_names(&DetectorKind::ALL, |kind| (kind.name(), kind.description()), best).map(|name| {
        DetectorKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or(DetectorKind::BEST)
    })
}

fn set_parser() -> impl TypedValueParser<Value = Set> {
    PossibleValuesParser::new(Set::ALL.map(Set::name))
        .try_map(|name| Set::ALL.into_iter().find(|set| set.name() == name).ok_or("there is no such set"))
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The window, channels, network and budget of false events are settings: [detector] in the file of \
    --config; see\n`tracewise config example`. The result shows what the budget costs: the share of each known kind of \
    anomaly that is\nfound at 0.1, 1 and 10 false events per day, on labelled jobs of the test set and on injected \
    faults.\n\n\
    If training is interrupted, the same command continues from OUT.checkpoint.\n\n\
    Examples:\n  tracewise detect train --detector best --data traces --out model\n  \
    tracewise detect train --detector ae --data traces --out model --seed 3 --config detector.toml"
)]
pub struct TrainArgs {
    /// The kind of detector
    #[arg(long, value_parser = detector_parser())]
    pub detector: DetectorKind,
    /// Trained on its train set, thresholds from its validation set. Without labels: the jobs with the first 60 % and
    /// the following 20 % of the data
    #[command(flatten)]
    pub data: DataArgs,
    /// The directory to write the model to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The random seed; the same seed gives the same model [default: detector.train.seed of the settings]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// A model, and the jobs it is applied to.
#[derive(Debug, ClapArgs)]
pub struct ModelArgs {
    /// The directory of a trained model
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    #[command(flatten)]
    pub data: DataArgs,
    /// Only the jobs of one set [default: all jobs]
    #[arg(long, value_parser = set_parser())]
    pub set: Option<Set>,
}

/// A model, and the windows it is applied to.
#[derive(Debug, ClapArgs)]
pub struct WindowArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Seconds from one window to the next [default: half a window]
    #[arg(long, value_name = "SECONDS")]
    pub stride: Option<u64>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "The events are those that `tracewise detect watch` would have reported. JSON: an array of {id, subject \
    (job, node or\ncluster), node, nodes, jobs (the responsible one first), threads, start, end (null while open), opened, \
    strength (above 1),\nlevel, channels, kinds [{kind, confidence, distance, is_inside}], certainty, why}; times are epoch \
    seconds.\n\n\
    Examples:\n  tracewise detect events --model model --data traces --set test\n  \
    tracewise detect events --model model --data traces --reference labelled --json"
)]
pub struct EventsArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// An archive with labelled jobs to compare with [default: the archive itself, without the jobs of --set]
    #[arg(long, value_name = "ARCHIVE")]
    pub reference: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// A command that writes a table.
#[derive(Debug, ClapArgs)]
pub struct TableArgs {
    #[command(flatten)]
    pub windows: WindowArgs,
    /// The file to write, .parquet or .csv
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Each detector is trained on the train set as often as --ensemble says, its threshold is set on the \
    validation set,\nand it is evaluated on the test set: on its labelled anomalies, and on faults injected into its \
    normal windows.\n\n\
    Example:\n  tracewise detect evaluate --data traces --detectors ae,pca,best --ensemble 3 --out report"
)]
pub struct EvaluateArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// The detectors to compare
    #[arg(long, value_parser = detector_parser(), value_delimiter = ',',
        default_value = "ae,node-gnn,job-gnn,vae,pca,nearest,hierarchy")]
    pub detectors: Vec<DetectorKind>,
    /// How often each detector is trained, with consecutive seeds
    #[arg(long, default_value = "10")]
    pub ensemble: usize,
    /// The directory to write the report to: HTML, SVG, PNG, JSON, Markdown
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The fraction of training windows to inject unlabelled faults into before training
    #[arg(long, value_name = "FRACTION", default_value = "0")]
    pub contaminate: f64,
    /// The random seed of the first member of each ensemble [default: detector.train.seed of the settings]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print the figures as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "A window is compared with the kinds of labelled jobs: those of --reference, or of the archive itself. \
    The job being\nexplained is left out.\n\n\
    Examples:\n  tracewise detect explain --model model --data traces --set test --top 3\n  \
    tracewise detect explain --model model --data traces --job 4711 --reference labelled"
)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub windows: WindowArgs,
    /// Only windows of this job
    #[arg(long, value_name = "ID")]
    pub job: Option<JobId>,
    /// Only windows of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    /// The number of threads to explain, by their most anomalous window
    #[arg(long, default_value = "5")]
    pub top: usize,
    /// An archive with labelled jobs to compare with [default: the archive itself]
    #[arg(long, value_name = "ARCHIVE")]
    pub reference: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Runs until Ctrl-C. Something has to write to the archive meanwhile: `tracewise record`, or `tracewise \
    campaign\nsimulate --live`.\n\n\
    Example:\n  tracewise detect watch --model model --data traces"
)]
pub struct WatchArgs {
    /// The directory of a trained model
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    #[command(flatten)]
    pub data: DataArgs,
    /// An archive with labelled jobs to compare with [default: the archive itself]
    #[arg(long, value_name = "ARCHIVE")]
    pub reference: Option<String>,
    /// The time between two looks at the archive
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10s")]
    pub every: Duration,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Print one line of JSON for every change of an event
    #[arg(long)]
    pub json: bool,
}
