//! WfCommons' WfFormat 1.4 and 1.5: tasks, their parents and their runtimes. If an instance has no start times, a task
//! is assumed to start when its parents are over.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::graph::Dependency;
use crate::workflow::{Span, TaskAttempt, TaskName, TaskRole};
use chrono::{DateTime, NaiveDateTime};
use serde_json::Value;

use super::values::{self, MAX_SECONDS};
use super::{Recording, kind};

struct Task {
    name: String,
    parents: Vec<String>,
    role: TaskRole,
    kind: String,
    seconds: f64,
    cpu_percent: Option<f64>,
    at: Option<f64>,
    host: Option<String>,
    bytes: [Option<f64>; 2],
}

fn parse_time(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => {
            let zoned = DateTime::parse_from_rfc3339(text)
                .or_else(|_| DateTime::parse_from_str(text, "%Y%m%dT%H%M%S%z"))
                .map(|parsed| parsed.timestamp_millis());
            // A time without a zone is read as UTC.
            let plain = || {
                let parsed = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f");
                parsed.map(|parsed| parsed.and_utc().timestamp_millis())
            };
            values::time(zoned.or_else(|_| plain()).ok()? as f64 / 1e3)
        }
        other => other.as_f64().and_then(values::time),
    }
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub fn read(text: &str) -> Result<Recording, String> {
    let root: Value = serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}"))?;
    let version = root["schemaVersion"].as_str().unwrap_or_default().to_owned();
    let workflow = &root["workflow"];
    let sizes: HashMap<String, f64> = workflow["specification"]["files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|file| Some((file["id"].as_str()?.to_owned(), file["sizeInBytes"].as_f64()?)))
        .collect();
    let specified = workflow["specification"]["tasks"].as_array().or(workflow["tasks"].as_array());
    let specified =
        specified.ok_or_else(|| format!("not WfFormat (version {version:?}): it has no tasks"))?;
    let executed: HashMap<&str, &Value> = workflow["execution"]["tasks"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|task| Some((task["id"].as_str()?, task)))
        .collect();
    let started =
        parse_time(&workflow["execution"]["executedAt"]).or_else(|| parse_time(&workflow["executedAt"]));
    let name = root["name"].as_str().unwrap_or("workflow").to_owned();
    let mut recording = Recording::new(&name);
    let mut tasks: BTreeMap<String, Task> = BTreeMap::new();
    let mut order = Vec::new();
    for one in specified {
        let Some(name) = one["name"].as_str() else {
            recording.warn("a task without a name is skipped".into());
            continue;
        };
        let id = one["id"].as_str().unwrap_or(name);
        let run = executed.get(id).copied().unwrap_or(one);
        let Some(seconds) = run["runtimeInSeconds"].as_f64().or(run["runtime"].as_f64()) else {
            recording.warn(format!("{name} is skipped: it has no runtime"));
            continue;
        };
        if !(0.0..MAX_SECONDS).contains(&seconds) {
            recording.warn(format!("{name} is skipped: a runtime of {seconds} s is impossible"));
            continue;
        }
        let at = parse_time(&run["executedAt"]);
        if at.is_none() && !run["executedAt"].is_null() {
            recording.warn(format!("{name}: executedAt is {}, which is not a time", run["executedAt"]));
        }
        let (role, kind) = kind::from_name(name);
        let kind = one["category"].as_str().map_or(kind, str::to_owned);
        let sum = |link: &str, list: &str| -> Option<f64> {
            let old = one["files"].as_array().into_iter().flatten().filter(|file| file["link"] == link);
            let old: Vec<f64> = old.filter_map(|file| file["sizeInBytes"].as_f64()).collect();
            let new: Vec<f64> = words(&one[list]).iter().filter_map(|id| sizes.get(id).copied()).collect();
            let all: Vec<f64> = old.into_iter().chain(new).collect();
            (!all.is_empty()).then(|| all.iter().sum()).and_then(values::bytes)
        };
        let task = Task {
            name: name.to_owned(),
            parents: words(&one["parents"]),
            role,
            kind,
            seconds,
            cpu_percent: run["avgCPU"].as_f64(),
            at,
            host: run["machines"][0].as_str().or(run["machine"].as_str()).map(str::to_owned),
            bytes: [sum("input", "inputFiles"), sum("output", "outputFiles")],
        };
        order.push(id.to_owned());
        if tasks.insert(id.to_owned(), task).is_some() {
            recording.warn(format!("several tasks have the id {id}; the last one is used"));
        }
    }
    if tasks.is_empty() {
        return Err("no task has a runtime".into());
    }
    // Parents are named by id in one version and by name in the other.
    let ids: HashMap<String, String> =
        tasks.iter().map(|(id, task)| (task.name.clone(), id.clone())).collect();
    let first = || tasks.values().filter_map(|task| task.at).min_by(f64::total_cmp);
    let started = started.or_else(first).unwrap_or(0.0);
    // Tasks are shown by name if names are unique.
    let has_names = ids.len() == tasks.len();
    let called = |id: &str| TaskName(if has_names { tasks[id].name.clone() } else { id.to_owned() });
    let n_unscheduled = tasks.values().filter(|task| task.at.is_none()).count();
    if n_unscheduled > 0 {
        let which =
            if n_unscheduled == tasks.len() { "tasks".into() } else { format!("{n_unscheduled} tasks") };
        recording.warn(format!(
            "{which} have no start time; they are assumed to start when their parents are over"
        ));
    }
    let mut ends: HashMap<String, f64> = HashMap::new();
    let (mut going, mut cut) = (HashSet::new(), HashSet::new());
    for id in &order {
        find_end(id, &tasks, &ids, started, &mut ends, &mut going, &mut cut);
    }
    let mut edges: Vec<&(String, String)> = cut.iter().collect();
    edges.sort();
    for (child, parent) in edges {
        recording.warn(format!(
            "{} depends on itself through {}; that edge is removed",
            called(child).0,
            called(parent).0
        ));
    }
    let mut placed = HashSet::new();
    for id in order {
        let Some(task) = tasks.get(&id).filter(|_| placed.insert(id.clone())) else { continue };
        let parents: Vec<&String> = task
            .parents
            .iter()
            .filter_map(|parent| tasks.get_key_value(parent).map(|(id, _)| id).or(ids.get(parent)))
            .filter(|parent| !cut.contains(&(id.clone(), (*parent).clone())))
            .collect();
        let ready = parents.iter().filter_map(|parent| ends.get(*parent)).copied().max_by(f64::total_cmp);
        let ready = ready.unwrap_or(started);
        let start = task.at.unwrap_or(ready);
        let (parents, children) = (parents.into_iter().map(|id| called(id)).collect(), vec![called(&id)]);
        recording.run.graph.add(Dependency { parents, children });
        recording.run.attempts.push(TaskAttempt {
            host: task.host.clone(),
            ready: Some(ready.min(start)),
            submitted: Some(ready.min(start)),
            execution: Span::new(start, start + task.seconds).ok(),
            cpu_seconds: task
                .cpu_percent
                .and_then(|percent| values::cpu_time(percent / 100.0 * task.seconds)),
            stage_in_bytes: task.bytes[0],
            stage_out_bytes: task.bytes[1],
            ..TaskAttempt::new(called(&id).0, task.role, task.kind.clone(), 1)
        });
    }
    kind::settle(&mut recording.run);
    Ok(recording)
}

/// Finds when a task and all of its ancestors are over. A cycle is cut at the edge that closes it.
fn find_end(
    id: &str,
    tasks: &BTreeMap<String, Task>,
    ids: &HashMap<String, String>,
    started: f64,
    ends: &mut HashMap<String, f64>,
    going: &mut HashSet<String>,
    cut: &mut HashSet<(String, String)>,
) {
    // Depth first with an explicit stack: graphs may be deeper than the stack of a thread.
    let mut stack = vec![id.to_owned()];
    while let Some(id) = stack.last().cloned() {
        let Some(task) = tasks.get(&id).filter(|_| !ends.contains_key(&id)) else {
            stack.pop();
            continue;
        };
        going.insert(id.clone());
        let mut start = started;
        let mut is_waiting = false;
        for parent in &task.parents {
            let parent = if tasks.contains_key(parent) { parent } else { ids.get(parent).unwrap_or(parent) };
            match ends.get(parent) {
                Some(end) => start = start.max(*end),
                None if !tasks.contains_key(parent) => {}
                None if going.contains(parent) => {
                    cut.insert((id.clone(), parent.clone()));
                }
                None => {
                    stack.push(parent.clone());
                    is_waiting = true;
                }
            }
        }
        if !is_waiting {
            going.remove(&id);
            ends.insert(id, task.at.unwrap_or(start) + task.seconds);
            stack.pop();
        }
    }
}
