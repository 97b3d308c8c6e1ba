//! What can be typed after `tracewise jobs`.

use std::path::PathBuf;

use ::jobs::generators::Model;
use ::jobs::replay::POLICIES;
use ::jobs::{Preset, Role};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand};
use workload::Timestamp;

use super::model_names;
use crate::times::parse_time;

#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// What the columns of a job trace are, and what is in them
    Inspect(InspectArgs),
    /// Learn to make traces like one
    Fit(FitArgs),
    /// Make a synthetic trace
    Sample(SampleArgs),
    /// How faithful a synthetic trace is to a real one
    Score(ScoreArgs),
    /// What a scheduler makes of a trace: waits, slowdown, utilisation under several policies
    Simulate(SimulateJobsArgs),
}

fn preset_parser() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::ALL.map(Preset::name))
        .map(|name| Preset::ALL.into_iter().find(|preset| preset.name() == name).unwrap_or(Preset::Csv))
}

fn model_parser() -> impl TypedValueParser<Value = Model> {
    let best = format!("The one that measurements recommend: {}", Model::BEST.name());
    model_names(&Model::ALL, |model| (model.name(), model.description()), best)
        .map(|name| Model::ALL.into_iter().find(|model| model.name() == name).unwrap_or(Model::BEST))
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
        .ok_or_else(|| format!("there is no role {role}; there are {names}"))
}

/// `column=cell`
fn parse_condition(text: &str) -> Result<(String, String), String> {
    let (name, cell) = text.split_once('=').ok_or("write column=value, such as user=12,nodes=64")?;
    Ok((name.trim().to_owned(), cell.trim().to_owned()))
}

/// `2x`, or `2`
fn parse_scale(text: &str) -> Result<f64, String> {
    let scale: Option<f64> = text.trim_end_matches('x').parse().ok();
    scale
        .filter(|scale| *scale > 0.0 && scale.is_finite())
        .ok_or_else(|| "write how many times the load, such as 2x".into())
}

/// How a file is to be read.
#[derive(Debug, Clone, ClapArgs)]
pub struct Reading {
    /// The layout of the file
    #[arg(long, value_parser = preset_parser(), default_value = "csv")]
    pub preset: Preset,
    /// What columns mean, beside what the preset knows: submit=time_submit,run-time=seconds
    #[arg(long, value_name = "ROLE=COLUMN", value_delimiter = ',', value_parser = parse_role)]
    pub columns: Vec<(String, Role)>,
    /// What columns are, as `inspect --write-schema` wrote it and you corrected it
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  tracewise jobs inspect --preset dirlab --input theta.csv.zst\n  \
    tracewise jobs inspect --columns submit=submitted,run-time=seconds,user=who --input jobs.csv --write-schema schema.toml")]
pub struct InspectArgs {
    /// The trace: plain, .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// Write what was found, to be corrected and given to --schema
    #[arg(long, value_name = "FILE")]
    pub write_schema: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  tracewise jobs fit --model best --preset swf --input CTC-SP2.swf.gz --out model --seed 1\n  \
    tracewise jobs fit --model ctgan --preset dirlab --input theta.csv --out model --seed 1 --epochs 100"
)]
pub struct FitArgs {
    /// The kind of generator
    #[arg(long, value_parser = model_parser(), default_value = "best")]
    pub model: Model,
    /// The trace to learn from: plain, .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// The folder to write the model to
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// The same seed makes the same model
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How often every job is looked at, for models that are networks
    #[arg(long, value_name = "N")]
    pub epochs: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "The columns are those of the trace that was learnt from, in their order.\n\n\
    Examples:\n  tracewise jobs sample --model model --jobs 15000 --seed 1 --out synthetic.csv\n  \
    tracewise jobs sample --model model --from 2026-11-16 --to 2026-11-23 --scale 2x --out week.swf\n  \
    tracewise jobs sample --model model --jobs 100 --condition user=12,nodes=64 --out some.parquet")]
pub struct SampleArgs {
    /// What `jobs fit` wrote
    #[arg(long, value_name = "FOLDER")]
    pub model: PathBuf,
    /// How many jobs [default: as many as were learnt from]
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    pub jobs: Option<usize>,
    /// Not before this moment: epoch seconds, RFC 3339 or a day
    #[arg(long, value_name = "T", value_parser = parse_time, requires = "to")]
    pub from: Option<Timestamp>,
    /// Before this moment
    #[arg(long, value_name = "T", value_parser = parse_time, requires = "from")]
    pub to: Option<Timestamp>,
    /// How many times the load: jobs come that much faster
    #[arg(long, value_name = "2x", value_parser = parse_scale)]
    pub scale: Option<f64>,
    /// Only jobs like this: columns or roles with their values
    #[arg(long, value_name = "COLUMN=VALUE", value_delimiter = ',', value_parser = parse_condition)]
    pub condition: Vec<(String, String)>,
    /// The same seed makes the same trace
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The file to write: .csv, .swf, .parquet, or .json for Batsim
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Beside every figure stands what one half of the real trace has against the other, at random and by time.\n\n\
    Example:\n  tracewise jobs score --real theta.csv --synthetic synthetic.csv --preset dirlab --out report"
)]
pub struct ScoreArgs {
    /// The real trace
    #[arg(long, value_name = "FILE")]
    pub real: PathBuf,
    /// The synthetic one, of the same layout
    #[arg(long, value_name = "FILE")]
    pub synthetic: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// Nodes of the machine that both are replayed on [default: so many that the real trace uses 90 %]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u64>,
    /// The folder to write the report to: HTML, charts, JSON, Markdown
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// The seed of what is chosen at random
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(
    name = "simulate",
    after_help = "Example:\n  tracewise jobs simulate --input CTC-SP2.swf.gz --preset swf --policy easy,fcfs"
)]
pub struct SimulateJobsArgs {
    /// The trace: plain, .gz or .zst
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    #[command(flatten)]
    pub reading: Reading,
    /// Nodes of the machine [default: so many that 90 % are in use]
    #[arg(long, value_name = "N")]
    pub nodes: Option<u64>,
    /// Policies to compare [default: all]
    #[arg(long, value_delimiter = ',', value_parser = policy_parser())]
    pub policy: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
