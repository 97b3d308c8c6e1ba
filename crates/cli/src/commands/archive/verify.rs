//! `tracewise archive verify`

use report::text::{show_bytes, show_count};
use std::process::ExitCode;

use crate::args::VerifyArgs;
use crate::config::Config;
use crate::output::{complain, say, say_json};
use crate::progress::Progress;

pub fn run(args: &VerifyArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = args.place.open(config)?;
    let progress = Progress::new("checking");
    let report = archive.verify(|done, total| progress.update(done as u64, total as u64))?;
    drop(progress);
    if args.json {
        say_json(&report)?;
    } else {
        for finding in &report.leftovers {
            say(&format!("leftover: {}: {}", finding.path, finding.problem))?;
        }
        for finding in &report.problems {
            complain(&format!("error: {}", finding.problem));
        }
        say(&format!(
            "{}: {} files with {} readings in {} are sound, {} are not; {} journal segments",
            archive.address(),
            report.files,
            show_count(report.readings),
            show_bytes(report.bytes),
            report.problems.len(),
            report.journal_segments
        ))?;
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
