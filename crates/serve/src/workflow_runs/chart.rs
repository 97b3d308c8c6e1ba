//! The Gantt chart of a run in columns.

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;
use workflows::Recording;
use workflows::draw::{Gantt, Part};
use workflows::workflow::TaskRole;

/// The parts of a row in a chart: all but the last, which is the time after the task.
const N_PARTS: usize = Part::ALL.len() - 1;
/// Times in charts are rounded to so many parts of a second.
const ROUNDING: f64 = 1_000.0;

/// A chart in columns, one entry for each attempt.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RunChart {
    /// In seconds since 1970.
    pub start: f64,
    pub seconds: f64,
    #[schema(value_type = Vec<String>)]
    pub parts: [&'static str; N_PARTS],
    pub kinds: Vec<String>,
    /// The nodes that are sub-workflows; the workflow itself is the first and has an empty name.
    pub workflows: Vec<String>,
    pub task: Vec<String>,
    /// Places in `kinds` and `workflows`.
    pub kind: Vec<usize>,
    pub workflow: Vec<usize>,
    /// 0 for tasks that compute, 1 for transfers, 2 for others.
    #[schema(value_type = Vec<u32>)]
    pub role: Vec<u8>,
    pub attempt: Vec<u32>,
    /// 0 or 1.
    #[schema(value_type = Vec<u32>)]
    pub failed: Vec<u8>,
    #[schema(value_type = Vec<u32>)]
    pub critical: Vec<u8>,
    /// For each part, when it ends, in seconds since the start of the run.
    #[schema(value_type = Vec<Vec<f64>>)]
    pub ends: [Vec<f64>; N_PARTS],
}

impl RunChart {
    pub fn new(recording: &Recording) -> Self {
        let gantt = Gantt::new(&recording.run);
        let rows = &gantt.rows;
        let tasks: BTreeSet<&str> = rows.iter().map(|row| row.task.as_str()).collect();
        // Tasks of a sub-workflow are called `node/task`. Names with a slash may also mean something else.
        let workflow_of = |task: &str| match task.rsplit_once('/') {
            Some((node, _)) if tasks.contains(node) => node.to_owned(),
            _ => String::new(),
        };
        let of_rows: Vec<String> = rows.iter().map(|row| workflow_of(&row.task)).collect();
        let kinds = distinct(rows.iter().map(|row| row.kind.clone()));
        let workflows = distinct(of_rows.iter().cloned().chain([String::new()]));
        let role = |role: TaskRole| match role {
            TaskRole::Compute => 0,
            TaskRole::Transfer => 1,
            TaskRole::Auxiliary => 2,
        };
        let end =
            |part: usize| rows.iter().map(|row| (row.ends[part] * ROUNDING).round() / ROUNDING).collect();
        Self {
            start: recording.run.start().unwrap_or(0.0),
            seconds: gantt.seconds,
            parts: std::array::from_fn(|part| Part::ALL[part].name()),
            task: rows.iter().map(|row| row.task.clone()).collect(),
            kind: rows.iter().map(|row| place(&kinds, &row.kind)).collect(),
            workflow: of_rows.iter().map(|name| place(&workflows, name)).collect(),
            role: rows.iter().map(|row| role(row.role)).collect(),
            attempt: rows.iter().map(|row| row.attempt).collect(),
            failed: rows.iter().map(|row| u8::from(row.has_failed)).collect(),
            critical: rows.iter().map(|row| u8::from(row.is_critical)).collect(),
            ends: std::array::from_fn(end),
            kinds,
            workflows,
        }
    }
}

/// The names in order, each once.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    names.collect::<BTreeSet<String>>().into_iter().collect()
}

fn place(names: &[String], name: &str) -> usize {
    names.binary_search_by(|one| one.as_str().cmp(name)).unwrap_or(0)
}
