//! `tracewise detect score`

use std::collections::BTreeMap;
use std::process::ExitCode;

use ::detect::{DetectorKind, KnownJobs, Monitor, ScoreScale};
use files::table::{Cell, CellKind, TableWriter};
use report::text::show_count;
use serde_json::json;
use workload::{JobId, NodeName};

use super::{Applied, KEY, key};
use crate::args::TableArgs;
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::signals::stop_on_signals;

/// The number of jobs that are listed on the terminal.
const MAX_SHOWN: usize = 10;

/// The scores of one job on one node.
#[derive(Default)]
struct JobScores {
    n_windows: usize,
    n_alarms: usize,
    highest: f64,
    threshold: f64,
}

pub fn run(args: &TableArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let applied = Applied::open(&args.model, config)?;
    let detector = &applied.detector;
    let known = KnownJobs::new(&applied.archive.labels()?);
    let monitor = Monitor { detector, known: &known, classifier: None };
    let mut names = vec!["score".to_owned(), "threshold".to_owned()];
    names.extend(detector.channels().iter().map(|channel| format!("{channel}_error")));
    if detector.kind == DetectorKind::Vae {
        names.extend(["reconstruction_variance", "latent_variance"].map(str::to_owned));
    }
    let mut columns = KEY.to_vec();
    columns.extend(names.iter().map(|name| (name.as_str(), CellKind::Float)));
    let mut table = TableWriter::create(&args.out, &columns)?;
    let mut jobs: BTreeMap<(JobId, NodeName), JobScores> = BTreeMap::new();
    applied.for_each(&stop_on_signals(None)?, |batch| {
        for (thread, finding) in batch.threads().iter().zip(detector.examine(&batch)) {
            let threshold = monitor.threshold(&thread.job);
            let of_job = jobs.entry((thread.job.clone(), thread.node.clone())).or_default();
            of_job.n_windows += 1;
            of_job.n_alarms += usize::from(monitor.is_alarm(&thread.job, &finding));
            of_job.highest = of_job.highest.max(finding.score);
            of_job.threshold = threshold;
            let mut values = vec![finding.score, threshold];
            values.extend(&finding.errors);
            values.extend(finding.uncertainty.iter().flat_map(|one| [one.reconstruction, one.latent]));
            let mut row = key(&batch, thread, detector);
            row.extend(values.into_iter().map(Cell::Float));
            table.push(&row)?;
        }
        Ok(())
    })?;
    table.finish()?;
    let n_windows: usize = jobs.values().map(|job| job.n_windows).sum();
    let n_alarms: usize = jobs.values().map(|job| job.n_alarms).sum();
    let mut ranked: Vec<_> = jobs.iter().filter(|(_, job)| job.n_alarms > 0).collect();
    // Errors are compared by ratio, logarithms by difference.
    let excess = |scores: &JobScores| match detector.kind.score_scale() {
        ScoreScale::SquaredError => scores.highest / scores.threshold,
        ScoreScale::MinusLog10P => scores.highest - scores.threshold,
    };
    ranked.sort_by(|a, b| excess(b.1).total_cmp(&excess(a.1)));
    if args.json {
        let jobs: Vec<_> = ranked
            .iter()
            .map(|((job, node), scores)| {
                json!({ "job": job, "node": node, "kind": known.kind(job), "windows": scores.n_windows,
                    "alarms": scores.n_alarms, "highest_score": scores.highest, "threshold": scores.threshold })
            })
            .collect();
        print_json(&json!({ "out": args.out, "windows": n_windows, "alarms": n_alarms, "jobs": jobs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !ranked.is_empty() {
        let rows: Vec<Vec<String>> = ranked
            .iter()
            .take(MAX_SHOWN)
            .map(|((job, node), scores)| {
                vec![
                    job.to_string(),
                    node.to_string(),
                    known.kind(job).unwrap_or_default().to_owned(),
                    format!("{} of {}", scores.n_alarms, scores.n_windows),
                    format!("{:.4}", scores.highest),
                    format!("{:.4}", scores.threshold),
                ]
            })
            .collect();
        let header = ["JOB", "NODE", "LABEL", ">WINDOWS ABOVE", ">HIGHEST SCORE", ">THRESHOLD"];
        print_table(&header, &rows)?;
        if ranked.len() > MAX_SHOWN {
            print(&format!("… and {} more jobs", ranked.len() - MAX_SHOWN))?;
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
