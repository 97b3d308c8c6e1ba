//! `tracewise jobs replay`

use std::num::NonZeroU64;
use std::process::ExitCode;

use files::Limits;
use jobs::generators::LoadFactor;
use jobs::replay::{POLICIES, Policy, ReplayTrace, UTILISATION, replay};
use report::text::{show_count, show_duration};
use serde_json::json;

use super::with_hint;
use crate::args::ReplayTraceArgs;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::signals::stop_on_signals;

pub fn run(args: &ReplayTraceArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let n_nodes = args.nodes.map(NonZeroU64::try_from).transpose();
    let n_nodes = n_nodes.map_err(|_| anyhow::anyhow!("--nodes has to be at least 1"))?;
    let stop = stop_on_signals(None)?;
    let features = args.reading.read(&args.input, limits)?.features()?;
    let trace = ReplayTrace::from_features(&features).map_err(|error| with_hint(error.into()))?;
    let n_jobs = trace.jobs().len();
    if n_jobs < features.n_jobs() {
        let n_unknown = show_count((features.n_jobs() - n_jobs) as u64);
        eprint_note(&format!("{n_unknown} jobs without a run time were left out"));
    }
    let n_nodes = n_nodes.unwrap_or_else(|| trace.machine_size(UTILISATION));
    let n_large = trace.jobs().iter().filter(|job| job.n_nodes > n_nodes.get()).count();
    if n_large > 0 {
        eprint_note(&format!(
            "{} jobs request more than {} nodes and get the whole machine",
            show_count(n_large as u64),
            show_count(n_nodes.get())
        ));
    }
    let is_wanted = |policy: &&&dyn Policy| {
        args.policy.is_empty() || args.policy.iter().any(|name| name == policy.name())
    };
    let mut outcomes = Vec::new();
    for scale in &args.scale {
        let scaled = trace.at_load(LoadFactor::new(*scale)?);
        for policy in POLICIES.iter().filter(is_wanted) {
            outcomes.push((policy.name(), *scale, replay(&scaled, n_nodes, *policy, &stop)?));
        }
    }
    if args.json {
        let named: Vec<_> = outcomes
            .iter()
            .map(|(policy, scale, outcome)| json!({ "policy": policy, "scale": scale, "outcome": outcome }))
            .collect();
        print_json(&json!({ "jobs": n_jobs, "nodes": n_nodes, "policies": named }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = outcomes.iter().map(|(policy, scale, outcome)| {
        vec![
            (*policy).to_owned(),
            format!("{scale}x"),
            show_duration(outcome.mean_wait_seconds),
            format!("{:.1}", outcome.mean_bounded_slowdown),
            format!("{:.1} %", outcome.utilisation * 100.0),
        ]
    });
    let header = ["POLICY", ">LOAD", ">MEAN WAIT", ">BOUNDED SLOWDOWN", ">UTILISATION"];
    print_table(&header, &rows.collect::<Vec<_>>())?;
    print(&format!("\n{} jobs on {} nodes", show_count(n_jobs as u64), show_count(n_nodes.get())))?;
    Ok(ExitCode::SUCCESS)
}
