//! `tracewise analyze`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use archive::Archive;
use detect::Kinds;
use detect::analysis::sampling::{self, SamplingSettings};
use detect::analysis::spectrum::{self, SpectrumSettings};
use report::text::{show_bytes, show_count};
use serde::{Deserialize, Serialize};
use workload::{JobId, Set};

use crate::args::{Analysis, AnalyzeCommand, WhichSet};
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::progress::Progress;

pub fn run(command: AnalyzeCommand, config: &Config) -> anyhow::Result<ExitCode> {
    match command {
        AnalyzeCommand::Spectrum(args) => {
            let (archive, kinds) = open(&args.analysis, config)?;
            let settings = SpectrumSettings { segment: args.segment };
            let progress = Progress::new(format!("reading {}", archive.address()));
            let report =
                spectrum::analyse(&archive, &kinds, &settings, |done, total| progress.update(done, total))?;
            drop(progress);
            let origin = format!("tracewise analyze spectrum {}", archive.address());
            let page = spectrum::write(&report, &args.analysis.out, &origin)?;
            if args.analysis.json {
                return say_numbers(&report, &page);
            }
            let mut rows = Vec::new();
            for kind in &report.kinds {
                let lowest = |channel: &spectrum::ChannelSpectrum| match (
                    channel.is_constant,
                    channel.dominant.first(),
                ) {
                    (true, _) => "constant".to_owned(),
                    (_, Some(peak)) => format!("{:.4} Hz ({:.0} s)", peak.hz, peak.seconds),
                    (_, None) => "–".to_owned(),
                };
                let mut row = vec![kind.kind.clone(), kind.jobs.to_string()];
                row.extend(kind.channels.iter().map(lowest));
                rows.push(row);
            }
            print_table(&["KIND", ">JOBS", ">USER", ">SYSTEM", ">IOWAIT"], &rows)?;
            print(&format!(
                "\nlook at {} s at a time: {}\n{}",
                report.advice.window_seconds,
                report.advice.reason,
                page.display()
            ))?;
        }
        AnalyzeCommand::Sampling(args) => {
            if args.repeats == 0 || args.window == 0 || args.intervals.contains(&0) {
                bail!("--repeats, --window and --intervals are at least one");
            }
            let (archive, kinds) = open(&args.analysis, config)?;
            let settings = SamplingSettings {
                window_seconds: args.window,
                intervals: args.intervals.clone(),
                repeats: args.repeats,
                seed: args.seed,
                ..SamplingSettings::default()
            };
            let progress = Progress::new(format!("reading {}", archive.address()));
            let report =
                sampling::analyse(&archive, &kinds, &settings, |done, total| progress.update(done, total))?;
            drop(progress);
            let origin = format!("tracewise analyze sampling {}, seed {}", archive.address(), args.seed);
            let page = sampling::write(&report, &args.analysis.out, &origin)?;
            if args.analysis.json {
                return say_numbers(&report, &page);
            }
            let rows: Vec<Vec<String>> = report
                .intervals
                .iter()
                .map(|interval| {
                    vec![
                        format!("{} s", interval.seconds),
                        format!("{:.3} ± {:.3}", interval.silhouette, interval.spread),
                        show_count(interval.samples_a_day),
                        show_bytes(interval.bytes_a_day),
                    ]
                })
                .collect();
            print_table(&[">INTERVAL", ">SILHOUETTE", ">SAMPLES A THREAD'S DAY", ">BYTES"], &rows)?;
            print(&format!(
                "\nsample every {} s: {}\n{}",
                report.advice.interval_seconds,
                report.advice.reason,
                page.display()
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say_numbers(report: &impl Serialize, page: &Path) -> anyhow::Result<ExitCode> {
    eprint_note(&page.display().to_string());
    print_json(report)?;
    Ok(ExitCode::SUCCESS)
}

/// The archive, and what is known of its jobs.
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
        bail!("{}: there is no job in it; write the columns job,name", shown());
    }
    Ok(names.into_iter().map(|named| (named.job, named.name)).collect())
}
