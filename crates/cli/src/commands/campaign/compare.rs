//! `tracewise campaign compare`

use std::process::ExitCode;

use archive::Archive;
use campaign::job_trace::{self, JobTrace};
use campaign::simulate::compare::{compare, write};

use crate::args::CompareArgs;
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::progress::Progress;

pub fn run(args: &CompareArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let read = |address: &str| -> anyhow::Result<Vec<JobTrace>> {
        let archive = Archive::open(address, &config.archive_settings())?;
        let progress = Progress::new(format!("reading {address}"));
        Ok(job_trace::read(&archive, &archive.labels()?, |done, total| progress.update(done, total))?)
    };
    let (recorded, simulated) = (read(&args.recorded)?, read(&args.simulated)?);
    let comparison = compare(&recorded, &simulated, args.window, args.seed)?;
    let origin = format!("tracewise campaign compare, windows of {} s, seed {}", args.window, args.seed);
    let page = write(&comparison, &args.out, &origin)?;
    if args.json {
        print_json(&comparison)?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = |auc: Option<f64>| auc.map_or_else(|| "–".into(), |auc| format!("{auc:.3}"));
    let rows: Vec<Vec<String>> = comparison
        .kinds
        .iter()
        .map(|kind| {
            let [threads, jobs] = [kind.threads, kind.recorded_jobs].map(|count| count.to_string());
            vec![kind.kind.clone(), threads, jobs, shown(kind.auc), shown(kind.auc_of_shuffled)]
        })
        .collect();
    print_table(&["KIND", ">THREADS", ">RECORDED JOBS", ">AUC SIMULATED", ">AUC SHUFFLED"], &rows)?;
    print(&format!(
        "\na classifier tells simulated windows from recorded ones with an AUC of {} (0.5: not at all), and recorded \
         seconds in random order with {}\n{}",
        shown(comparison.auc),
        shown(comparison.auc_of_shuffled),
        page.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}
