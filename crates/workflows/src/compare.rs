//! Compares two runs task by task.

use std::collections::{BTreeMap, HashMap};

use crate::workflow::{Delays, TaskRole, WorkflowRun};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Seconds.
    pub makespan_before: f64,
    pub makespan_after: f64,
    /// The largest change first.
    pub tasks: Vec<TaskChange>,
    pub only_before: Vec<String>,
    pub only_after: Vec<String>,
}

/// The delay of a task that changed most, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskChange {
    pub task: String,
    pub kind: String,
    pub delay: &'static str,
    pub before: f64,
    pub after: f64,
}

/// Compares the last attempts at each task.
pub fn compare(before: &WorkflowRun, after: &WorkflowRun) -> Comparison {
    let (first, second) = (by_task(before), by_task(after));
    let mut tasks = Vec::new();
    for (task, (kind, delays)) in &first {
        let Some((_, other)) = second.get(task) else { continue };
        let pairs = delays.parts().into_iter().zip(other.parts());
        // When a task became ready depends on other tasks.
        let own = pairs.filter(|((name, _), _)| *name != "ready");
        let largest = own.max_by(|a, b| (a.1.1 - a.0.1).abs().total_cmp(&(b.1.1 - b.0.1).abs()));
        if let Some(((delay, before), (_, after))) = largest {
            tasks.push(TaskChange { task: task.clone(), kind: kind.clone(), delay, before, after });
        }
    }
    tasks.sort_by(|a, b| {
        (b.after - b.before).abs().total_cmp(&(a.after - a.before).abs()).then(a.task.cmp(&b.task))
    });
    let missing = |these: &BTreeMap<String, (String, Delays)>,
                   others: &BTreeMap<String, (String, Delays)>| {
        these.keys().filter(|task| !others.contains_key(*task)).cloned().collect()
    };
    Comparison {
        makespan_before: before.makespan(),
        makespan_after: after.makespan(),
        only_before: missing(&first, &second),
        only_after: missing(&second, &first),
        tasks,
    }
}

fn by_task(run: &WorkflowRun) -> BTreeMap<String, (String, Delays)> {
    let mut found = BTreeMap::new();
    let mut n_of_kind: HashMap<&str, usize> = HashMap::new();
    for (attempt, delays) in run.attempts.iter().zip(run.delays()) {
        // Names of tasks that Pegasus adds contain the time of planning, so they are matched by kind and order.
        let name = match attempt.role {
            TaskRole::Compute => attempt.task.0.clone(),
            TaskRole::Transfer | TaskRole::Auxiliary => {
                let number = n_of_kind.entry(&attempt.kind).or_default();
                *number += 1;
                format!("{} {number}", attempt.kind)
            }
        };
        found.insert(name, (attempt.kind.clone(), delays));
    }
    found
}
