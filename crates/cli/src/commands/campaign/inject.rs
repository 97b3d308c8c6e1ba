//! `tracewise campaign inject`

use std::process::ExitCode;

use anyhow::bail;
use archive::{Archive, Selection};
use detect::inject::{CopySettings, copy};
use report::text::show_count;

use crate::args::InjectArgs;
use crate::config::Config;
use crate::output::{print, print_json};
use crate::progress::Progress;

pub fn run(args: &InjectArgs, config: &Config) -> anyhow::Result<ExitCode> {
    if !(args.strength > 0.0 && args.strength <= 1.0) {
        bail!("--strength is a share: above zero, and one at most");
    }
    let from = args.data.open(config)?;
    let into = Archive::open_or_create(&args.into, &config.archive_settings())?;
    if !into.snapshot(Selection::default())?.nodes().is_empty() {
        bail!("{} is not empty; what is injected goes into a copy of its own", args.into);
    }
    let settings = CopySettings {
        trouble: args.trouble,
        strength: args.strength,
        chance: args.chance,
        length: args.length.into(),
        seed: args.seed,
    };
    let progress = Progress::new(format!("copying {}", from.address()));
    let injections = copy(&from, &into, &settings, |done, total| progress.update(done, total))?;
    drop(progress);
    if args.json {
        print_json(&injections)?;
    } else {
        let count = show_count(injections.len() as u64);
        print(&format!(
            "{}: {} with {} put into {count} stretches of jobs",
            args.into,
            from.address(),
            args.trouble
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
