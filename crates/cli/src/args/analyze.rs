//! What can be typed after `tracewise analyze`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::DataArgs;

#[derive(Debug, Subcommand)]
pub enum AnalyzeCommand {
    /// How long to look: spectra of each kind of job, and the window that they ask for
    Spectrum(SpectrumArgs),
    /// How often to look: how well kinds of jobs separate at each sampling interval
    Sampling(SamplingArgs),
}

/// What is analysed, and where the report goes.
#[derive(Debug, ClapArgs)]
pub struct Analysis {
    #[command(flatten)]
    pub data: DataArgs,
    /// The folder to write the report to: HTML, SVG, PNG, JSON
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Labelled jobs of these sets; what is kept for tests decides nothing
    #[arg(long, value_enum, value_delimiter = ',', default_value = "train,validation")]
    pub set: Vec<WhichSet>,
    /// Names of jobs, as CSV with the columns job,name: jobs of one name are one kind
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// Print the numbers as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhichSet {
    Train,
    Validation,
    Test,
    All,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Without labels or --names, each job is a kind of its own.\n\n\
    Example:\n  tracewise analyze spectrum --data traces --out report")]
pub struct SpectrumArgs {
    #[command(flatten)]
    pub analysis: Analysis,
    /// Samples in each segment that is averaged [default: the longest that every kind has enough of]
    #[arg(long, value_name = "SAMPLES")]
    pub segment: Option<usize>,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Without labels or --names, each job is a kind of its own.\n\n\
    Example:\n  tracewise analyze sampling --data traces --out report --json")]
pub struct SamplingArgs {
    #[command(flatten)]
    pub analysis: Analysis,
    /// Seconds that a window spans
    #[arg(long, value_name = "SECONDS", default_value = "120")]
    pub window: u64,
    /// Sampling intervals to compare, in seconds
    #[arg(long, value_name = "SECONDS,…", value_delimiter = ',', default_value = "1,2,5,10,15,30,60")]
    pub intervals: Vec<u64>,
    /// Random subsets for each interval
    #[arg(long, default_value = "30")]
    pub repeats: usize,
    /// The same seed draws the same subsets
    #[arg(long, default_value = "0")]
    pub seed: u64,
}
