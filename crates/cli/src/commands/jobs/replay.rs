//! `tracewise jobs replay`

use std::process::ExitCode;

use anyhow::bail;
use jobs::replay::{POLICIES, UTILISATION, machine_for, n_nodes_of, replay};
use report::text::{show_count, show_duration};
use serde_json::json;

use crate::args::ReplayTraceArgs;
use crate::output::{complain, say, say_json, say_table};

pub fn run(args: &ReplayTraceArgs) -> anyhow::Result<ExitCode> {
    if args.nodes == Some(0) {
        bail!("--nodes is at least one");
    }
    let all = args.reading.read(&args.input)?.jobs()?;
    let jobs = all.records()?;
    if jobs.len() < all.len() {
        eprint_note(&format!(
            "{} jobs have no run time and are left out",
            show_count((all.len() - jobs.len()) as u64)
        ));
    }
    let n_nodes = args.nodes.unwrap_or_else(|| machine_for(&jobs, UTILISATION));
    let n_large = jobs.iter().filter(|job| n_nodes_of(job, u64::MAX) > n_nodes).count();
    if n_large > 0 {
        eprint_note(&format!(
            "{} jobs ask for more than {} nodes and are given all of them",
            show_count(n_large as u64),
            show_count(n_nodes)
        ));
    }
    let wanted = POLICIES
        .into_iter()
        .filter(|policy| args.policy.is_empty() || args.policy.contains(&policy.name().to_owned()));
    let outcomes: Vec<_> = wanted.map(|policy| (policy.name(), replay(&jobs, n_nodes, policy))).collect();
    if args.json {
        let named: Vec<_> = outcomes
            .iter()
            .map(|(policy, outcome)| json!({ "policy": policy, "outcome": outcome }))
            .collect();
        print_json(&json!({ "jobs": jobs.len(), "nodes": n_nodes, "policies": named }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = outcomes.iter().map(|(policy, outcome)| {
        vec![
            (*policy).to_owned(),
            show_duration(outcome.mean_wait_seconds),
            format!("{:.1}", outcome.mean_bounded_slowdown),
            format!("{:.1} %", outcome.utilisation * 100.0),
        ]
    });
    print_table(&["POLICY", ">MEAN WAIT", ">BOUNDED SLOWDOWN", ">UTILISATION"], &rows.collect::<Vec<_>>())?;
    print(&format!("\n{} jobs on {} nodes", show_count(jobs.len() as u64), show_count(n_nodes)))?;
    Ok(ExitCode::SUCCESS)
}
