//! `tracewise campaign compare`

use std::process::ExitCode;

use archive::Archive;
use campaign::job_trace::{self, JobTrace};
use campaign::simulate::compare::{CompareSettings, Comparison, compare, write};
use workload::Control;

use crate::args::CompareArgs;
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &CompareArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let stop = stop_on_signals(None)?;
    let read = |address: &str| -> anyhow::Result<Vec<JobTrace>> {
        let archive = Archive::open(address, &config.archive_settings())?;
        let progress = Progress::new(format!("reading {address}"));
        let update = |done, total| progress.update(done, total);
        Ok(job_trace::read(&archive, &archive.labels()?, &Control::new(&stop, &update))?)
    };
    let (recorded, simulated) = (read(&args.recorded)?, read(&args.simulated)?);
    let settings = CompareSettings { window_seconds: args.window, seed: args.seed };
    let comparison = compare(&recorded, &simulated, &settings, &stop)?;
    let origin = format!("tracewise campaign compare, windows of {} s, seed {}", args.window, args.seed);
    let page = write(&comparison, &args.out, &origin)?;
    if args.json {
        print_json(&comparison)?;
    } else {
        show(&comparison)?;
        print(&page.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(comparison: &Comparison) -> anyhow::Result<()> {
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
        "\na classifier separates simulated from recorded windows with an AUC of {} (0.5: not at all, 1: always); \
         for recorded windows with shuffled seconds it is {}",
        shown(comparison.auc),
        shown(comparison.auc_of_shuffled),
    ))
}
