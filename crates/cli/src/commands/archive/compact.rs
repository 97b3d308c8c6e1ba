//! `tracewise archive compact`

use std::process::ExitCode;
use std::time::SystemTime;

use archive::Retention;
use report::text::show_bytes;
use serde_json::json;
use workload::{Control, Millis, Timestamp};

use crate::args::CompactArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json};
use crate::progress::Progress;
use crate::signals::stop_on_signals;

pub fn run(args: &CompactArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let stop = stop_on_signals(None)?;
    let archive = args.data.open_to_write(config)?.with_stop(&stop);
    let now = Timestamp::from(SystemTime::now());
    let merged = if args.dry_run {
        None
    } else {
        let progress = Progress::new("merging");
        let grace = args.grace.map_or(Millis(0), Millis::from);
        let tell = |done, total| progress.update(done, total);
        Some(archive.compact(now, grace, &Control::new(&stop, &tell))?)
    };
    let configured = config.retention();
    let retention = Retention {
        max_age: args.max_age.map(Millis::from).or(configured.max_age),
        max_bytes: args.max_size.or(configured.max_bytes),
    };
    let pruned = archive.prune(&retention, now, args.dry_run)?;
    let problems = merged.as_ref().map_or(&[][..], |merged| &merged.problems);
    for problem in problems {
        eprint_note(&format!("error: {problem}"));
    }
    let code = if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if args.json {
        print_json(&json!({ "merged": merged, "removed": pruned.removed, "dry_run": args.dry_run,
            "files": pruned.files_after, "bytes": pruned.bytes_after }))?;
        return Ok(code);
    }
    if let Some(merged) = &merged {
        print(&format!(
            "merged {} files into {}: {} before, {} after",
            merged.files_before,
            merged.files_after,
            show_bytes(merged.bytes_before),
            show_bytes(merged.bytes_after)
        ))?;
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    pruned.removed.iter().try_for_each(|path| print(&format!("{verb} {path}")))?;
    if retention != Retention::default() {
        let freed = pruned.bytes_before - pruned.bytes_after;
        print(&format!("{verb} {} files, {}", pruned.removed.len(), show_bytes(freed)))?;
    }
    Ok(code)
}
