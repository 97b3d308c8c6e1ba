//! `tracewise archive verify`

use std::process::ExitCode;

use report::text::{show_bytes, show_count};
use workload::Control;

use crate::args::VerifyArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &VerifyArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let archive = args.data.open(config)?;
    let stop = stop_on_signals(None)?;
    let progress = Progress::new("checking");
    let tell = |done, total| progress.update(done, total);
    let report = archive.verify(&Control::new(&stop, &tell))?;
    drop(progress);
    if args.json {
        print_json(&report)?;
    } else {
        for finding in &report.leftovers {
            print(&format!("leftover: {}: {}", finding.path, finding.problem))?;
        }
        for finding in &report.problems {
            eprint_note(&format!("error: {}", finding.problem));
        }
        print(&format!(
            "{}: {} files with {} readings in {} are valid, {} are damaged; {} journal segments",
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
