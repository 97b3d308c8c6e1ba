//! Sub-workflows become part of the run that contains their nodes, under the names `<node>/<task>`.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::graph::Dependency;
use crate::workflow::{TaskAttempt, TaskName, TaskRole, WorkflowRun};

use super::kind;

/// Sub-workflows may contain sub-workflows, up to this depth.
pub const MAX_DEPTH: usize = 8;
/// Names that sub-workflows may add to the graph of a run.
const MAX_ADDED_NAMES: usize = 5_000_000;
/// The kind of a node that runs a sub-workflow.
const SUBWORKFLOW: &str = "sub-workflow";

/// Marks the attempts at nodes that run sub-workflows.
pub fn mark_nodes(run: &mut WorkflowRun, nodes: &HashSet<&str>) {
    for attempt in run.attempts.iter_mut().filter(|one| nodes.contains(one.task.0.as_str())) {
        (attempt.role, attempt.kind) = (TaskRole::Auxiliary, SUBWORKFLOW.to_owned());
    }
}

/// Adds the tasks of sub-workflows to the run that contains their nodes. Tasks without parents wait for what the node
/// waits for; what waits for the node, and the node itself, wait for tasks without children.
pub fn merge(run: &mut WorkflowRun, nested: Vec<(String, WorkflowRun)>) -> Result<(), String> {
    let mut n_attempts: HashMap<TaskName, u32> = HashMap::new();
    for attempt in &run.attempts {
        *n_attempts.entry(attempt.task.clone()).or_default() += 1;
    }
    let mut ends: HashMap<TaskName, Ends> = HashMap::new();
    let mut inner = Vec::new();
    for (node, nested) in nested {
        let inside = |task: &TaskName| TaskName(format!("{node}/{}", task.0));
        ends.entry(TaskName(node.clone())).or_default().add(&nested, inside);
        for attempt in nested.attempts {
            let task = inside(&attempt.task);
            // A sub-workflow that was planned again tries its tasks again.
            let number = n_attempts.entry(task.clone()).or_default();
            *number += 1;
            run.attempts.push(TaskAttempt { task, attempt: *number, ..attempt });
        }
        inner.extend(nested.graph.dependencies().iter().map(|one| Dependency {
            parents: one.parents.iter().map(inside).collect(),
            children: one.children.iter().map(inside).collect(),
        }));
    }
    let mut n_added = 0;
    for one in run.graph.dependencies_mut() {
        let first = |node: &TaskName| ends.get(node).map(|of| &of.first);
        let last = |node: &TaskName| ends.get(node).map(|of| &of.last);
        n_added += one.children.iter().filter_map(first).map(BTreeSet::len).sum::<usize>();
        n_added += one.parents.iter().filter_map(last).map(BTreeSet::len).sum::<usize>();
        if n_added > MAX_ADDED_NAMES {
            return Err(format!("its sub-workflows add more than {MAX_ADDED_NAMES} dependencies"));
        }
        let first: Vec<TaskName> = one.children.iter().filter_map(first).flatten().cloned().collect();
        one.children.extend(first);
        let last: Vec<TaskName> = one.parents.iter().filter_map(last).flatten().cloned().collect();
        one.parents.extend(last);
    }
    let mut nodes: Vec<(TaskName, Ends)> = ends.into_iter().collect();
    nodes.sort_by(|a, b| a.0.cmp(&b.0));
    for (node, ends) in nodes {
        run.graph.add(Dependency { parents: ends.last.into_iter().collect(), children: vec![node] });
    }
    inner.into_iter().for_each(|one| run.graph.add(one));
    kind::settle(run);
    Ok(())
}

/// The tasks of a sub-workflow that its node leads to, and those that lead back.
#[derive(Default)]
struct Ends {
    /// Without parents.
    first: BTreeSet<TaskName>,
    /// Without children.
    last: BTreeSet<TaskName>,
}

impl Ends {
    fn add(&mut self, run: &WorkflowRun, inside: impl Fn(&TaskName) -> TaskName) {
        let (by_child, by_parent) = (run.graph.places_by_child(), run.graph.places_by_parent());
        for task in run.attempts.iter().map(|attempt| &attempt.task).chain(run.graph.tasks()) {
            if !by_child.contains_key(task) {
                self.first.insert(inside(task));
            }
            if !by_parent.contains_key(task) {
                self.last.insert(inside(task));
            }
        }
    }
}
