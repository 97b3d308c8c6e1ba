//! `tracewise detect embed`

use std::process::ExitCode;

use files::table::{Cell, CellKind, TableWriter};
use report::text::show_count;
use serde_json::json;

use super::{Applied, KEY, key};
use crate::args::TableArgs;
use crate::config::Config;
use crate::output::{print, print_json};
use crate::signals::stop_on_signals;

pub fn run(args: &TableArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let applied = Applied::open(&args.windows, config)?;
    let detector = &applied.detector;
    let names: Vec<String> = (0..detector.n_embedding()).map(|axis| format!("z{axis}")).collect();
    let mut columns = KEY.to_vec();
    columns.extend(names.iter().map(|name| (name.as_str(), CellKind::Float)));
    let mut table = TableWriter::create(&args.out, &columns)?;
    let mut n_windows = 0;
    applied.for_each(&stop_on_signals(None)?, |batch| {
        for (thread, finding) in batch.threads().iter().zip(detector.examine(&batch)) {
            let mut row = key(&batch, thread, detector);
            row.extend(finding.embedding.iter().map(|value| Cell::Float(f64::from(*value))));
            table.push(&row)?;
            n_windows += 1;
        }
        Ok(())
    })?;
    table.finish()?;
    if args.json {
        print_json(&json!({ "out": args.out, "windows": n_windows, "dimensions": names.len() }))?;
    } else {
        let windows = show_count(n_windows);
        print(&format!("{}: {windows} windows in {} dimensions", args.out.display(), names.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}
