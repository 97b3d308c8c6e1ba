//! `tracewise detect score`

use std::collections::BTreeMap;
use std::process::ExitCode;

use detect::kinds_of;
use files::table::{Cell, CellKind, TableWriter};
use report::text::show_count;
use serde_json::json;
use workload::{JobId, NodeName};

use super::{KEY, key};
use crate::args::TableArgs;
use crate::config::Config;
use crate::output::{print, print_json, print_table};

/// Jobs that the terminal has room for.
const MOST_SHOWN: usize = 10;

#[derive(Default)]
struct JobScores {
    n_windows: usize,
    n_alarms: usize,
    highest: f64,
}

pub fn run(args: &TableArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let (trained, archive) = args.look.open(config)?;
    let kinds = kinds_of(&archive.labels()?);
    let errors: Vec<String> = trained.channels().iter().map(|channel| format!("{channel}_error")).collect();
    let mut columns = KEY.to_vec();
    columns.extend([("score", CellKind::Float), ("threshold", CellKind::Float)]);
    columns.extend(errors.iter().map(|name| (name.as_str(), CellKind::Float)));
    let mut table = TableWriter::create(&args.out, &columns)?;
    let mut jobs: BTreeMap<(JobId, NodeName), JobScores> = BTreeMap::new();
    args.look.for_each(&trained, &archive, |moment| {
        for (thread, finding) in moment.threads.iter().zip(trained.examine(&moment)) {
            let kind = kinds.get(&thread.job).map(String::as_str);
            let threshold = trained.thresholds.of(kind).score;
            let mut row = key(&moment, thread, &trained);
            row.extend([finding.score, threshold].into_iter().chain(finding.errors).map(Cell::Float));
            table.push(&row)?;
            let of_job = jobs.entry((thread.job.clone(), thread.node.clone())).or_default();
            of_job.n_windows += 1;
            of_job.n_alarms += usize::from(finding.score >= threshold);
            of_job.highest = of_job.highest.max(finding.score / threshold);
        }
        Ok(())
    })?;
    table.finish()?;
    let n_windows: usize = jobs.values().map(|job| job.n_windows).sum();
    let n_alarms: usize = jobs.values().map(|job| job.n_alarms).sum();
    let mut ranked: Vec<_> = jobs.iter().filter(|(_, job)| job.n_alarms > 0).collect();
    ranked.sort_by(|a, b| b.1.highest.total_cmp(&a.1.highest));
    if args.json {
        let jobs: Vec<_> = ranked
            .iter()
            .map(|((job, node), scores)| {
                json!({ "job": job, "node": node, "kind": kinds.get(job), "windows": scores.n_windows,
                    "alarms": scores.n_alarms, "highest_over_threshold": scores.highest })
            })
            .collect();
        print_json(&json!({ "out": args.out, "windows": n_windows, "alarms": n_alarms, "jobs": jobs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !ranked.is_empty() {
        let rows: Vec<Vec<String>> = ranked
            .iter()
            .take(MOST_SHOWN)
            .map(|((job, node), scores)| {
                vec![
                    job.to_string(),
                    node.to_string(),
                    kinds.get(job).cloned().unwrap_or_default(),
                    format!("{} of {}", scores.n_alarms, scores.n_windows),
                    format!("{:.1} ×", scores.highest),
                ]
            })
            .collect();
        print_table(&["JOB", "NODE", "KNOWN AS", ">WINDOWS ABOVE", ">HIGHEST OVER THRESHOLD"], &rows)?;
        if ranked.len() > MOST_SHOWN {
            print(&format!("… and {} jobs more", ranked.len() - MOST_SHOWN))?;
        }
        print("")?;
    }
    print(&format!(
        "{}: {} windows, {} above the threshold",
        args.out.display(),
        show_count(n_windows as u64),
        show_count(n_alarms as u64)
    ))?;
    Ok(ExitCode::SUCCESS)
}
