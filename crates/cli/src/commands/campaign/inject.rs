//! `tracewise campaign inject`

use std::process::ExitCode;

use anyhow::bail;
use archive::Selection;
use detect::inject::{CopySettings, copy};
use report::text::show_count;
use workload::Control;

use crate::args::InjectArgs;
use crate::commands::open_or_create;
use crate::config::Config;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &InjectArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if !(args.strength > 0.0 && args.strength <= 1.0) {
        bail!("--strength must be greater than 0 and at most 1");
    }
    let from = args.data.open(config)?;
    let into = open_or_create(&args.into, config)?;
    if !into.snapshot(Selection::default())?.nodes().is_empty() {
        bail!("{} is not empty; faults are injected into a new copy", args.into);
    }
    let settings = CopySettings {
        fault: args.fault,
        strength: args.strength,
        probability: args.probability,
        length: args.length.into(),
        seed: args.seed,
    };
    let progress = Progress::new(format!("copying {}", from.address()));
    let stop = stop_on_signals(None)?;
    let report = |done, total| progress.update(done, total);
    let injections = copy(&from, &into, &settings, Control::new(&stop, &report))?;
    drop(progress);
    if args.json {
        print_json(&injections)?;
    } else {
        let count = show_count(injections.len() as u64);
        print(&format!(
            "{}: a copy of {} with {} injected into {count} stretches of jobs",
            args.into,
            from.address(),
            args.fault
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
