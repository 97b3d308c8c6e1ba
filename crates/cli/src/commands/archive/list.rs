//! `tracewise archive list`

use std::process::ExitCode;

use archive::Selection;
use report::text::{show_bytes, show_count};
use serde_json::json;

use crate::args::ListArgs;
use crate::config::Config;
use crate::output::{print, print_json, print_table};
use crate::times::show_time;

const JOBS_SHOWN: usize = 20;

pub fn run(args: &ListArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let catalog = args.data.open(config)?.catalog(Selection::default())?;
    if args.json {
        let nodes: Vec<_> = catalog
            .nodes
            .iter()
            .map(|node| {
                json!({
                    "node": node.node, "threads": node.threads, "from": node.first,
                    "to": node.last, "readings": node.readings,
                    "period_seconds": node.period_ms as f64 / 1e3, "jobs": node.jobs,
                    "sources": node.sources, "files": node.files, "bytes": node.bytes,
                })
            })
            .collect();
        let jobs: Vec<_> = catalog
            .jobs
            .iter()
            .map(|job| json!({ "job": job.job, "from": job.first, "to": job.last, "nodes": job.nodes }))
            .collect();
        print_json(&json!({
            "archive": catalog.archive, "readings": catalog.readings(), "bytes": catalog.bytes(),
            "nodes": nodes, "jobs": jobs,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = catalog
        .nodes
        .iter()
        .map(|node| {
            vec![
                node.node.to_string(),
                node.threads.to_string(),
                show_time(node.first),
                show_time(node.last),
                show_count(node.readings),
                node.jobs.len().to_string(),
                node.files.to_string(),
                show_bytes(node.bytes),
            ]
        })
        .collect();
    print_table(&["node", ">threads", "from", "to", ">readings", ">jobs", ">files", ">size"], &rows)?;
    if !catalog.jobs.is_empty() {
        let rows: Vec<Vec<String>> = catalog
            .jobs
            .iter()
            .take(JOBS_SHOWN)
            .map(|job| {
                vec![
                    job.job.to_string(),
                    show_time(job.first),
                    show_time(job.last),
                    job.nodes.len().to_string(),
                ]
            })
            .collect();
        print("")?;
        print_table(&["job", "from", "to", ">nodes"], &rows)?;
        if catalog.jobs.len() > JOBS_SHOWN {
            print(&format!("… and {} more jobs; --json prints all", catalog.jobs.len() - JOBS_SHOWN))?;
        }
    }
    print("")?;
    let (readings, bytes) = (catalog.readings(), catalog.bytes());
    print(&format!(
        "{}: {} readings in {}, {:.2} bytes each",
        catalog.archive,
        show_count(readings),
        show_bytes(bytes),
        bytes as f64 / readings.max(1) as f64
    ))?;
    Ok(ExitCode::SUCCESS)
}
