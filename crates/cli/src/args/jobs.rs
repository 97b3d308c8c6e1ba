//! Arguments of `tracewise jobs`.

use std::path::PathBuf;

use ::jobs::generators::GeneratorKind;
use ::jobs::replay::POLICIES;
use ::jobs::{Preset, Role};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand};
use workload::Timestamp;

use super::model_names;
use crate::times::parse_time;

#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Show the columns of a job trace: roles, types, ranges and constraints
    Inspect(InspectArgs),
    /// Train a generator on a job trace
    Train(TrainGeneratorArgs),
    /// Sample a synthetic trace from a trained generator
    Sample(SampleArgs),
    /// Compare a synthetic trace with the real one: distributions, sequence, copies, schedulers
    Compare(CompareTracesArgs),
    /// Replay a trace under several scheduling policies: waits, slowdown, utilisation
    Replay(ReplayTraceArgs),
}

fn preset_parser() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::ALL.map(Preset::name))
        .map(|name| Preset::ALL.into_iter().find(|preset| preset.name() == name).unwrap_or(Preset::Csv))
}

fn generator_parser() -> impl TypedValueParser<Value = GeneratorKind> {
    let best = format!("The generator with the best results: {}", GeneratorKind::BEST.name());
    model_names(&GeneratorKind::ALL, |kind| (kind.name(), kind.description()), best).map(|name| {
        GeneratorKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or(GeneratorKind::BEST)
    })
}

fn policy_parser() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(POLICIES.map(|policy| policy.name())).map(|name| name)
}

/// `role=column`
fn parse_role(text: &str) -> Result<(String, Role), String> {
    let (role, column) = text.split_once('=').ok_or("write role=column, such as submit=time_submit")?;
    let found = Role::ALL.into_iter().find(|known| known.name() == role);
    let names = Role::ALL.map(Role::name).join(", ");
    found
        .map(|role| (column.to_owned(), role))
        .ok_or_else(|| format!("there is no role {role}; the roles are {names}"))
}

/// `column=value`
fn parse_condition(text: &str) -> Result<(String, String), String> {
    let (name, cell) = text.split_once('=').ok_or("write column=value, such as user=12,nodes=64")?;
    Ok((name.trim().to_owned(), cell.trim().to_owned()))
}

/// `2x`, or `2`
fn parse_scale(text: &str) -> Result<f64, String> {
    let scale: Option<f64> = text.strip_suffix('x').unwrap_or(text).parse().ok();
    scale
        .filter(|scale| *scale > 0.0 && scale.is_finite())
        .ok_or_else(|| "write a positive factor, such as 2x".into())
}

/// How to read the columns of a trace.
#[derive(Debug, Clone, ClapArgs)]
pub struct Reading {
    /// Layout of the file [default: recognised by its columns]
    #[arg(long, value_parser = preset_parser())]
    pub preset: Option<Preset>,
    /// Roles of columns, in addition to those of the preset: submit=time_submit,run-time=seconds
    #[arg(long, value_name = "ROLE=COLUMN", value_delimiter = ',', value_parser = parse_role)]
    pub columns: Vec<(String, Role)>,
    /// Column types and constraints, as written by `jobs inspect --write-schema` and edited by you
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  tracewise jobs inspect --preset dirlab --input theta.csv.zst\n  \
    tracewise jobs inspect --columns submit=submitted,run-time=seconds,user=who --input jobs.csv --write-schema schema.toml")]
pub struct InspectArgs {
    /// Trace: plain, .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// Write the inferred schema to a file, to edit and pass to --schema
    #[arg(long, value_name = "FILE")]
    pub write_schema: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    name = "train",
    after_help = "Examples:\n  tracewise jobs train --generator best --preset swf --input CTC-SP2.swf.gz --out model --seed 1\n  \
    tracewise jobs train --generator ctgan --preset dirlab --input theta.csv --out model --seed 1 --epochs 100"
)]
pub struct TrainGeneratorArgs {
    /// Generator to train
    #[arg(long, value_parser = generator_parser(), default_value = "best")]
    pub generator: GeneratorKind,
    /// Training trace: plain, .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// Directory to write the model to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Random seed: the same seed gives the same model
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Epochs, for generators that are networks [default: 300]
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    name = "sample",
    after_help = "The output has the columns of the training trace, in the same order.\n\n\
    Examples:\n  tracewise jobs sample --model model --jobs 15000 --seed 1 --out synthetic.csv\n  \
    tracewise jobs sample --model model --from 2026-11-16 --to 2026-11-23 --scale 2x --out week.swf\n  \
    tracewise jobs sample --model model --jobs 100 --condition user=12,nodes=64 --out some.parquet"
)]
pub struct SampleArgs {
    /// Directory of a trained model, as written by `jobs train`
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Number of jobs [default: as many as the training trace has]
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    pub jobs: Option<usize>,
    /// Start of the time span: epoch seconds, RFC 3339 or a day
    #[arg(long, value_name = "T", value_parser = parse_time, requires = "to")]
    pub from: Option<Timestamp>,
    /// End of the time span (exclusive)
    #[arg(long, value_name = "T", value_parser = parse_time, requires = "from")]
    pub to: Option<Timestamp>,
    /// Load factor: 2x doubles the arrival rate
    #[arg(long, value_name = "2x", value_parser = parse_scale)]
    pub scale: Option<f64>,
    /// Keep only jobs with these values, by column or role
    #[arg(long, value_name = "COLUMN=VALUE", value_delimiter = ',', value_parser = parse_condition)]
    pub condition: Vec<(String, String)>,
    /// Random seed: the same seed gives the same trace
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// File to write: .csv, .swf, .parquet, or .json for Batsim
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    name = "compare",
    after_help = "Every figure is also computed between two halves of the real trace, split at random and by time: a \
    synthetic trace cannot be expected to do better.\n\n\
    Example:\n  tracewise jobs compare --real theta.csv --synthetic synthetic.csv --preset dirlab --out report"
)]
pub struct CompareTracesArgs {
    /// Real trace
    #[arg(long, value_name = "FILE")]
    pub real: PathBuf,
    /// Synthetic trace, with the same columns
    #[arg(long, value_name = "FILE")]
    pub synthetic: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// Nodes of the machine that both traces are replayed on [default: sized for 90 % utilisation by the real trace]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u64>,
    /// Directory to write a report to: HTML, charts, JSON, Markdown
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Random seed of the halves and of the classifier
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    name = "replay",
    after_help = "Examples:\n  tracewise jobs replay --input CTC-SP2.swf.gz --preset swf\n  \
    tracewise jobs replay --input synthetic.swf --preset swf --policy easy,fcfs --nodes 430\n  \
    tracewise jobs replay --input synthetic.swf --preset swf --scale 0.8x,1x,1.2x"
)]
pub struct ReplayTraceArgs {
    /// Trace: plain, .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// Nodes of the machine [default: sized for 90 % utilisation]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u64>,
    /// Policies to compare [default: all]
    #[arg(long, value_delimiter = ',', value_parser = policy_parser())]
    pub policy: Vec<String>,
    /// Load factors to compare: 1.2x submits the same jobs 1.2 times as fast to the same machine
    #[arg(long, value_name = "1x", value_delimiter = ',', value_parser = parse_scale, default_value = "1x")]
    pub scale: Vec<f64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
