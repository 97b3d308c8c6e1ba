//! `tracewise detect score`

use std::collections::BTreeMap;
use std::process::ExitCode;

use ::detect::{DetectorKind, KnownJobs};
use files::table::{Cell, CellKind, TableWriter};
use report::text::show_count;
use serde_json::json;
use workload::{JobId, NodeName};

use super::{Applied, KEY, key};
use crate::args::TableArgs;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::signals::stop_on_signals;

/// The number of jobs that are listed on the terminal.
const MAX_SHOWN: usize = 10;

/// The scores of one job on one node.
#[derive(Default)]
struct JobScores {
    n_windows: usize,
    n_above: usize,
    strongest: f64,
}

pub fn run(args: &TableArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let applied = Applied::open(&args.windows, config)?;
    let detector = &applied.detector;
    let known = KnownJobs::new(&applied.archive.labels()?);
    if detector.calibration.is_none() {
        eprint_note(
            "warning: the model was trained by an earlier version and has no thresholds; strengths are 0",
        );
    }
    let mut names = vec!["score".to_owned(), "strength".to_owned()];
    names.extend(detector.channels().iter().map(|channel| format!("{channel}_error")));
    if detector.kind == DetectorKind::Vae {
        names.extend(["reconstruction_variance", "latent_variance"].map(str::to_owned));
    }
    let mut columns = KEY.to_vec();
    columns.extend(names.iter().map(|name| (name.as_str(), CellKind::Float)));
    let mut table = TableWriter::create(&args.out, &columns)?;
    let mut jobs: BTreeMap<(Option<JobId>, NodeName), JobScores> = BTreeMap::new();
    applied.for_each(&stop_on_signals(None)?, |batch| {
        for (thread, finding) in batch.threads().iter().zip(detector.examine(&batch)) {
            let kind = thread.job().and_then(|job| known.kind_of_job(job));
            let strength = detector.strength(&finding, kind).unwrap_or(0.0);
            let of_job = jobs.entry((thread.job().cloned(), thread.node.clone())).or_default();
            of_job.n_windows += 1;
            of_job.n_above += usize::from(strength > 1.0);
            of_job.strongest = of_job.strongest.max(strength);
            let mut values = vec![finding.score, strength];
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
    let n_above: usize = jobs.values().map(|job| job.n_above).sum();
    let mut ranked: Vec<_> = jobs.iter().filter(|(_, job)| job.n_above > 0).collect();
    ranked.sort_by(|a, b| b.1.strongest.total_cmp(&a.1.strongest));
    let kind_of = |job: &Option<JobId>| job.as_ref().and_then(|job| known.kind_of_job(job));
    if args.json {
        let jobs: Vec<_> = ranked
            .iter()
            .map(|((job, node), scores)| {
                json!({ "job": job, "node": node, "kind": kind_of(job), "windows": scores.n_windows,
                    "above": scores.n_above, "strongest": scores.strongest })
            })
            .collect();
        print_json(&json!({ "out": args.out, "windows": n_windows, "above": n_above, "jobs": jobs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !ranked.is_empty() {
        let rows: Vec<Vec<String>> = ranked
            .iter()
            .take(MAX_SHOWN)
            .map(|((job, node), scores)| {
                vec![
                    job.as_ref().map_or("–".to_owned(), ToString::to_string),
                    node.to_string(),
                    kind_of(job).unwrap_or_default().to_owned(),
                    format!("{} of {}", scores.n_above, scores.n_windows),
                    format!("{:.2}", scores.strongest),
                ]
            })
            .collect();
        print_table(&["JOB", "NODE", "LABEL", ">WINDOWS ABOVE", ">STRONGEST"], &rows)?;
        if ranked.len() > MAX_SHOWN {
            print(&format!("… and {} more jobs", ranked.len() - MAX_SHOWN))?;
        }
        print("")?;
    }
    print(&format!(
        "{}: {} windows, {} above a threshold; `tracewise detect events` lists the events",
        args.out.display(),
        show_count(n_windows as u64),
        show_count(n_above as u64)
    ))?;
    Ok(ExitCode::SUCCESS)
}
