//! `tracewise workflows record`

use std::fs::{self, File};
use std::process::ExitCode;

use anyhow::{Context, bail};
use workflows::dataset::NORMAL;
use workflows::inject::Trouble;
use workflows::local::{LocalSettings, run as run_local};
use workflows::read::table;

use crate::args::RecordRunsArgs;
use crate::output::print;

pub fn run(args: &RecordRunsArgs) -> anyhow::Result<ExitCode> {
    if args.runs == 0 {
        bail!("--runs is at least one");
    }
    let trouble = match args.trouble.as_str() {
        NORMAL => None,
        trouble => Some(Trouble::parse(trouble)?),
    };
    let folder = args.out.join(trouble.map_or(NORMAL.to_owned(), Trouble::label));
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let batch = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now())
        .format("%Y%m%dT%H%M%SZ")
        .to_string();
    for number in 1..=args.runs {
        let name = format!("local-{batch}-run{number:04}");
        let made = run_local(&name, &args.out, trouble, LocalSettings::default())?;
        let path = folder.join(format!("{name}.csv"));
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        table::write(&made, &[], file).with_context(|| path.display().to_string())?;
        print(&format!("{}: {} tasks in {:.1} s", path.display(), made.attempts.len(), made.makespan()))?;
    }
    Ok(ExitCode::SUCCESS)
}
