//! `tracewise analyze`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use archive::Archive;
use detect::Kinds;
use detect::analysis::AnalysisError;
use detect::analysis::sampling::{self, SamplingReport, SamplingSettings};
use detect::analysis::spectrum::{self, ChannelSpectrum, SpectrumReport, SpectrumSettings};
use report::text::{show_bytes, show_count};
use serde::{Deserialize, Serialize};
use workload::{Control, JobId, Millis, Set};

use crate::args::{Analysis, AnalyzeCommand, SamplingArgs, SpectrumArgs, WhichSet};
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(command: AnalyzeCommand, config: &Config) -> anyhow::Result<ExitCode> {
    match command {
        AnalyzeCommand::Spectrum(args) => spectrum(&args, config)?,
        AnalyzeCommand::Sampling(args) => sampling(&args, config)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn spectrum(args: &SpectrumArgs, config: &Config) -> anyhow::Result<()> {
    let stop = stop_on_signals(None)?;
    let (archive, kinds) = open(&args.analysis, config)?;
    let settings = SpectrumSettings { segment: args.segment };
    let progress = Progress::new(format!("reading {}", archive.address()));
    let update = |done, total| progress.update(done, total);
    let report = spectrum::analyze(&archive, &kinds, &settings, &Control::new(&stop, &update))
        .map_err(|error| with_hint(error, "--segment"))?;
    drop(progress);
    let origin = format!("tracewise analyze spectrum --data {}", archive.address());
    let page = spectrum::write(&report, &args.analysis.out, &origin)?;
    if args.analysis.json {
        return print_numbers(&report, &page);
    }
    show_spectra(&report)?;
    let advice = &report.advice;
    print(&format!("\nuse windows of {} s: {}\n{}", advice.window_seconds, advice.reason, page.display()))
}

/// Prints the lowest dominant frequency of each kind and channel.
fn show_spectra(report: &SpectrumReport) -> anyhow::Result<()> {
    let lowest = |channel: &ChannelSpectrum| match channel.dominant.first() {
        _ if channel.is_constant => "constant".to_owned(),
        Some(peak) => format!("{:.4} Hz ({})", peak.hz, spectrum::show_period(peak.seconds)),
        None => "–".to_owned(),
    };
    let rows: Vec<Vec<String>> = report
        .kinds
        .iter()
        .map(|kind| {
            let mut row = vec![kind.kind.clone(), kind.jobs.to_string()];
            row.extend(kind.channels.iter().map(lowest));
            row
        })
        .collect();
    print_table(&["KIND", ">JOBS", ">USER", ">SYSTEM", ">IOWAIT"], &rows)
}

fn sampling(args: &SamplingArgs, config: &Config) -> anyhow::Result<()> {
    let stop = stop_on_signals(None)?;
    let (archive, kinds) = open(&args.analysis, config)?;
    let millis = |intervals: &Vec<_>| intervals.iter().copied().map(Millis::from).collect();
    let settings = SamplingSettings {
        window: args.window.map(Millis::from),
        intervals: args.intervals.as_ref().map(millis),
        repeats: args.repeats as usize,
        seed: args.seed,
        ..SamplingSettings::default()
    };
    let progress = Progress::new(format!("reading {}", archive.address()));
    let update = |done, total| progress.update(done, total);
    let report = sampling::analyze(&archive, &kinds, &settings, &Control::new(&stop, &update))
        .map_err(|error| with_hint(error, "--window"))?;
    drop(progress);
    let origin = format!("tracewise analyze sampling --data {} --seed {}", archive.address(), args.seed);
    let page = sampling::write(&report, &args.analysis.out, &origin)?;
    if args.analysis.json {
        return print_numbers(&report, &page);
    }
    show_intervals(&report)?;
    let advice = &report.advice;
    print(&format!("\nsample every {} s: {}\n{}", advice.interval_seconds, advice.reason, page.display()))
}

fn show_intervals(report: &SamplingReport) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = report
        .intervals
        .iter()
        .map(|interval| {
            vec![
                format!("{} s", interval.seconds),
                format!("{:.3} ± {:.3}", interval.silhouette, interval.spread),
                show_count(interval.samples_per_day),
                show_bytes(interval.bytes_per_day),
            ]
        })
        .collect();
    print_table(&[">INTERVAL", ">SILHOUETTE", ">SAMPLES PER THREAD AND DAY", ">BYTES"], &rows)
}

/// Adds what the user can do about an error. `length` is the flag that sets how much a stretch has to contain.
fn with_hint(error: AnalysisError, length: &str) -> anyhow::Error {
    match &error {
        AnalysisError::NoJobs => {
            anyhow!("{error}; `campaign label list` lists the labels, and --set all includes the test set")
        }
        AnalysisError::TooShort { .. } => anyhow!("{error}; use a shorter {length}, or record longer jobs"),
        AnalysisError::IntervalTooLong { .. } => anyhow!("{error}; use a longer --window"),
        AnalysisError::OneKind(_) => anyhow!("{error}; --set all includes the test set"),
        _ => error.into(),
    }
}

fn print_numbers(report: &impl Serialize, page: &Path) -> anyhow::Result<()> {
    eprint_note(&page.display().to_string());
    print_json(report)
}

/// The archive, and the kinds of its jobs.
fn open(analysis: &Analysis, config: &Config) -> anyhow::Result<(Archive, Kinds)> {
    let archive = analysis.data.open(config)?;
    let kinds = match &analysis.names {
        Some(file) => Kinds::from_names(read_names(file)?),
        None => Kinds::from_labels(&archive.labels()?).only(sets(&analysis.set)),
    };
    Ok((archive, kinds))
}

fn sets(chosen: &[WhichSet]) -> Vec<Set> {
    let of = |which: &WhichSet| match which {
        WhichSet::Train => vec![Set::Train],
        WhichSet::Validation => vec![Set::Validation],
        WhichSet::Test => vec![Set::Test],
        WhichSet::All => Set::ALL.to_vec(),
    };
    chosen.iter().flat_map(of).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    job: JobId,
    name: String,
}

fn read_names(file: &Path) -> anyhow::Result<Vec<(JobId, String)>> {
    let shown = || file.display().to_string();
    let mut reader = csv::Reader::from_path(file).with_context(shown)?;
    let names: Result<Vec<Named>, csv::Error> = reader.deserialize().collect();
    let names = names.with_context(shown)?;
    if names.is_empty() {
        bail!("{}: it has no jobs; write one row per job with the columns job,name", shown());
    }
    Ok(names.into_iter().map(|named| (named.job, named.name)).collect())
}
