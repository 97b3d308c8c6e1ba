//! `tracewise workflows read`

use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;

use files::Limits;
use report::text::show_count;
use serde_json::json;
use workflows::Recording;
use workflows::read::RunState;
use workflows::workflow::{TaskAttempt, TaskName, WorkflowRun};

use super::warn;
use crate::args::ReadArgs;
use crate::output::{print, print_json, print_table};

pub fn run(args: &ReadArgs, limits: &Limits) -> anyhow::Result<ExitCode> {
    let recordings = workflows::read::read(&args.run, limits)?;
    for recording in &recordings {
        warn(&args.run, &recording.warnings);
    }
    if args.json {
        let runs: Vec<_> = recordings.iter().map(as_json).collect();
        match &runs[..] {
            [one] => print_json(one)?,
            several => print_json(&several)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    for (at, recording) in recordings.iter().enumerate() {
        if at > 0 {
            print("")?;
        }
        show(recording)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(recording: &Recording) -> serde_json::Value {
    let Recording { run, state, labels, .. } = recording;
    let attempts: Vec<_> = run
        .attempts
        .iter()
        .zip(run.delays())
        .enumerate()
        .map(|(at, (attempt, delays))| {
            let mut one = json!({
                "task": attempt.task, "kind": attempt.kind, "role": attempt.role, "attempt": attempt.attempt,
                "host": attempt.host, "ready": attempt.ready, "submitted": attempt.submitted,
                "execution": attempt.execution, "cpu_seconds": attempt.cpu_seconds,
                "stage_in_bytes": attempt.stage_in_bytes, "stage_out_bytes": attempt.stage_out_bytes,
                "interruptions": attempt.n_interruptions, "holds": attempt.holds,
                "held_seconds": attempt.held_seconds(), "held_since": attempt.held_since,
                "removed": attempt.removed, "exit_code": attempt.exit_code, "delays": delays,
            });
            if let Some(label) = labels.get(at) {
                one["label"] = json!(label);
            }
            one
        })
        .collect();
    json!({
        "run": run.name, "state": state, "start": run.start(), "makespan": run.makespan(), "attempts": attempts,
    })
}

/// The places of the attempts of each kind, in the order of the first of each.
fn by_kind(run: &WorkflowRun) -> Vec<(&str, Vec<usize>)> {
    let mut found: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut place_of: HashMap<&str, usize> = HashMap::new();
    for (at, attempt) in run.attempts.iter().enumerate() {
        let place = *place_of.entry(&attempt.kind).or_insert(found.len());
        if place == found.len() {
            found.push((&attempt.kind, Vec::new()));
        }
        found[place].1.push(at);
    }
    found
}

/// One row per kind: the number of tasks and their mean delays.
fn show(recording: &Recording) -> anyhow::Result<()> {
    let run = &recording.run;
    let delays = run.delays();
    let rows: Vec<Vec<String>> = by_kind(run)
        .into_iter()
        .map(|(kind, of)| {
            let mean = |value: &dyn Fn(usize) -> f64| {
                format!("{:.1}", of.iter().map(|at| value(*at)).sum::<f64>() / of.len().max(1) as f64)
            };
            let count =
                |is_such: &dyn Fn(usize) -> bool| of.iter().filter(|at| is_such(**at)).count().to_string();
            vec![
                kind.to_owned(),
                count(&|at| run.attempts[at].attempt == 1),
                count(&|at| run.attempts[at].attempt > 1),
                count(&|at| run.attempts[at].exit_code.is_some_and(|code| code != 0)),
                count(&|at| run.attempts[at].removed.is_some()),
                mean(&|at| delays[at].wms_delay),
                mean(&|at| delays[at].pre_script),
                mean(&|at| delays[at].queue),
                mean(&|at| run.attempts[at].held_seconds()),
                mean(&|at| delays[at].stage_in),
                mean(&|at| delays[at].runtime),
                mean(&|at| run.attempts[at].cpu_seconds.unwrap_or_default()),
                mean(&|at| delays[at].stage_out),
                mean(&|at| delays[at].post_script),
            ]
        })
        .collect();
    let header = [
        "KIND",
        ">TASKS",
        ">RETRIES",
        ">FAILED",
        ">REMOVED",
        ">WMS_DELAY",
        ">PRE_SCRIPT",
        ">QUEUE",
        ">HELD",
        ">STAGE_IN",
        ">RUNTIME",
        ">CPU_TIME",
        ">STAGE_OUT",
        ">POST_SCRIPT",
    ];
    print_table(&header, &rows)?;
    let count =
        |is_such: &dyn Fn(&TaskAttempt) -> bool| run.attempts.iter().filter(|one| is_such(one)).count();
    let n_held = count(&|attempt| attempt.held_since.is_some());
    let n_open = count(&|attempt| !attempt.is_over());
    let started: BTreeSet<&TaskName> = run.attempts.iter().map(|attempt| &attempt.task).collect();
    let planned: BTreeSet<&TaskName> = run.graph.tasks().collect();
    let n_never = planned.difference(&started).count();
    let is_running = recording.state == RunState::Running;
    let mut open = String::new();
    if n_open > 0 {
        open += &format!(", {n_open} not over");
    }
    if n_held > 0 {
        open += &format!(", {n_held} held now");
    }
    if n_never > 0 {
        let not_started = if is_running { "have not started" } else { "never started" };
        open += &format!(", {n_never} of {} tasks {not_started}", planned.len());
    }
    let state = if is_running { "still running, " } else { "" };
    print(&format!(
        "\n{}: {state}{} attempts{open} in {:.0} s; delays are means in seconds",
        run.name,
        show_count(run.attempts.len() as u64),
        run.makespan()
    ))
}
