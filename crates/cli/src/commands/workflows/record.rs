//! `tracewise workflows record`

use std::process::ExitCode;

use workflows::dataset::NORMAL;
use workflows::inject::Fault;
use workflows::local::{LocalSettings, run as run_local};

use super::write_run;
use crate::args::RecordRunsArgs;
use crate::output::print;
use crate::signals::stop_on_signals;

pub fn run(args: &RecordRunsArgs) -> anyhow::Result<ExitCode> {
    let fault = match args.fault.as_str() {
        NORMAL => None,
        fault => Some(Fault::parse(fault)?),
    };
    let directory = args.out.join(fault.map_or(NORMAL.to_owned(), Fault::label));
    files::create_dirs(&directory)?;
    let batch = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now())
        .format("%Y%m%dT%H%M%SZ")
        .to_string();
    let stop = stop_on_signals(None)?;
    for number in 1..=args.runs {
        let name = format!("local-{batch}-run{number:04}");
        let recorded = run_local(&name, &args.out, fault, LocalSettings::default(), &stop)?;
        let path = directory.join(format!("{name}.csv"));
        write_run(&recorded, &path)?;
        let (n_tasks, seconds) = (recorded.attempts.len(), recorded.makespan());
        print(&format!("{}: {n_tasks} tasks in {seconds:.1} s", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
