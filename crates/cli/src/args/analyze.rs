//! Arguments of `tracewise analyze`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use workload::units::parse_duration;

use super::DataArgs;

#[derive(Debug, Subcommand)]
pub enum AnalyzeCommand {
    /// The window: spectra of each kind of job, and the window that contains what repeats most slowly
    Spectrum(SpectrumArgs),
    /// The sampling interval: how well kinds of jobs separate at each interval
    Sampling(SamplingArgs),
}

/// What is analyzed, and where the report goes.
#[derive(Debug, ClapArgs)]
pub struct Analysis {
    #[command(flatten)]
    pub data: DataArgs,
    /// The directory to write the report to: HTML, SVG, PNG, JSON
    #[arg(long, value_name = "DIRECTORY")]
    pub out: PathBuf,
    /// Use only labelled jobs of these sets; test data is left out, so that it decides nothing
    #[arg(long, value_enum, value_delimiter = ',', default_value = "train,validation")]
    pub set: Vec<WhichSet>,
    /// Job names instead of labels: CSV with the columns job,name; jobs with the same name are one kind
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
#[command(after_help = "Without labels and without --names, each job is a kind of its own.\n\n\
    Examples:\n  tracewise analyze spectrum --data traces --out report\n  \
    tracewise analyze spectrum --data traces --out report --names jobs.csv --segment 512")]
pub struct SpectrumArgs {
    #[command(flatten)]
    pub analysis: Analysis,
    /// Samples per segment of Welch's method [default: the longest of 64 to 1024 that every kind has eight of]
    #[arg(long, value_name = "SAMPLES")]
    pub segment: Option<usize>,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Intervals and the window are durations such as 100ms, 0.5s or 2m; plain numbers are seconds.\n\
    Without labels and without --names, each job is a kind of its own.\n\n\
    Examples:\n  tracewise analyze sampling --data traces --out report --json\n  \
    tracewise analyze sampling --data traces --out report --window 10s --intervals 100ms,0.5s,1,5"
)]
pub struct SamplingArgs {
    #[command(flatten)]
    pub analysis: Analysis,
    /// The length of a window [default: 120s, or 120 samples if the archive has more than one per second]
    #[arg(long, value_name = "DURATION", value_parser = parse_interval)]
    pub window: Option<Duration>,
    /// Sampling intervals to compare [default: the archive's own, and multiples of it up to 60s]
    #[arg(long, value_name = "DURATION,…", value_delimiter = ',', value_parser = parse_interval)]
    pub intervals: Option<Vec<Duration>>,
    /// Random subsets per interval
    #[arg(long, default_value = "30", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeats: u32,
    /// Random seed; the same seed selects the same subsets
    #[arg(long, default_value = "0")]
    pub seed: u64,
}

/// A duration, or a number of seconds; a fraction of a second is allowed in both.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').filter(|rest| !rest.ends_with('m')).unwrap_or(text);
    match number.parse::<f64>() {
        Ok(seconds) if (0.001..=1e6).contains(&seconds) => {
            Ok(Duration::from_millis((seconds * 1e3).round() as u64))
        }
        Ok(_) => Err("it has to be between 1ms and 1000000s".into()),
        Err(_) => parse_duration(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_durations_or_seconds_with_fractions() {
        let millis = |text: &str| parse_interval(text).map(|length| length.as_millis());
        assert_eq!(millis("100ms"), Ok(100));
        assert_eq!(millis("0.5s"), Ok(500));
        assert_eq!(millis("0.1"), Ok(100));
        assert_eq!(millis("15"), Ok(15_000));
        assert_eq!(millis("2m"), Ok(120_000));
        for bad in ["", "0", "-1", "nan", "1e9", "s", "0.0001s", "fast"] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }
}
