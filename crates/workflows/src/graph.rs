//! The graph of a workflow: which tasks wait for which.
//!
//! Edges are kept in groups, as DAGMan writes them: `PARENT a b CHILD c d` is one [`Dependency`] and not four edges.
//! The memory of a graph is proportional to its file, and so is the time of everything that is computed with it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::workflow::TaskName;

/// Every child waits for every parent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dependency {
    pub parents: Vec<TaskName>,
    pub children: Vec<TaskName>,
}

impl Dependency {
    pub fn new<P: Into<String>, C: Into<String>>(
        parents: impl IntoIterator<Item = P>,
        children: impl IntoIterator<Item = C>,
    ) -> Self {
        let parents = parents.into_iter().map(|name| TaskName(name.into())).collect();
        Self { parents, children: children.into_iter().map(|name| TaskName(name.into())).collect() }
    }
}

/// The dependencies of a workflow; empty if they are unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Graph {
    dependencies: Vec<Dependency>,
}

/// The dependencies that a task is part of, by their places in [`Graph::dependencies`].
pub type PlacesByTask<'a> = HashMap<&'a TaskName, Vec<usize>>;

impl Graph {
    /// Adds a dependency, unless one of its sides is empty.
    pub fn add(&mut self, dependency: Dependency) {
        if !dependency.parents.is_empty() && !dependency.children.is_empty() {
            self.dependencies.push(dependency);
        }
    }

    /// Adds one edge. Edges with the same parent that are added one after another share a dependency.
    pub fn add_edge(&mut self, parent: &str, child: &str) {
        if let Some(last) = self.dependencies.last_mut()
            && matches!(&last.parents[..], [only] if only.0 == parent)
        {
            last.children.push(TaskName(child.to_owned()));
        } else {
            self.add(Dependency::new([parent], [child]));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.dependencies.is_empty()
    }

    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    pub fn dependencies_mut(&mut self) -> &mut [Dependency] {
        &mut self.dependencies
    }

    /// Every task as often as it is named.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskName> {
        self.dependencies.iter().flat_map(|one| one.parents.iter().chain(&one.children))
    }

    /// What each task waits for.
    pub fn places_by_child(&self) -> PlacesByTask<'_> {
        places(&self.dependencies, |one| &one.children)
    }

    /// What waits for each task.
    pub fn places_by_parent(&self) -> PlacesByTask<'_> {
        places(&self.dependencies, |one| &one.parents)
    }

    /// The largest value over the parents of each task. Tasks without a value for any parent are left out.
    pub fn largest_of_parents<T: Copy>(
        &self,
        value_of: impl Fn(&TaskName) -> Option<T>,
        larger: impl Fn(T, T) -> T,
    ) -> HashMap<&TaskName, T> {
        let mut largest: HashMap<&TaskName, T> = HashMap::new();
        for one in &self.dependencies {
            let Some(value) = one.parents.iter().filter_map(&value_of).reduce(&larger) else { continue };
            for child in &one.children {
                largest.entry(child).and_modify(|known| *known = larger(*known, value)).or_insert(value);
            }
        }
        largest
    }

    /// A task that depends on itself, if there is one.
    pub fn find_cycle(&self) -> Option<&TaskName> {
        let (by_parent, by_child) = (self.places_by_parent(), self.places_by_child());
        // Tasks whose parents are all removed are removed until none is left. Cycles remain, and what depends on them.
        let mut n_waiting: HashMap<&TaskName, usize> =
            by_child.iter().map(|(task, of)| (*task, of.len())).collect();
        let mut n_parents: Vec<usize> = self.dependencies.iter().map(|one| one.parents.len()).collect();
        let mut free: Vec<&TaskName> = self.tasks().filter(|task| !by_child.contains_key(task)).collect();
        free.sort_unstable();
        free.dedup();
        while let Some(task) = free.pop() {
            for place in by_parent.get(task).into_iter().flatten() {
                n_parents[*place] -= 1;
                if n_parents[*place] > 0 {
                    continue;
                }
                for child in &self.dependencies[*place].children {
                    if let Some(n) = n_waiting.get_mut(child) {
                        *n -= 1;
                        if *n == 0 {
                            n_waiting.remove(child);
                            free.push(child);
                        }
                    }
                }
            }
        }
        // Every task that remains has a parent that remains, so following parents long enough ends in a cycle.
        let mut parent_of: HashMap<&TaskName, &TaskName> = HashMap::new();
        for (one, _) in self.dependencies.iter().zip(&n_parents).filter(|(_, n)| **n > 0) {
            if let Some(parent) = one.parents.iter().find(|parent| n_waiting.contains_key(parent)) {
                parent_of.extend(one.children.iter().map(|child| (child, parent)));
            }
        }
        let first = n_waiting.keys().min().copied()?;
        Some((0..n_waiting.len()).fold(first, |task, _| parent_of.get(task).copied().unwrap_or(task)))
    }
}

fn places(dependencies: &[Dependency], side: impl Fn(&Dependency) -> &Vec<TaskName>) -> PlacesByTask<'_> {
    let mut places = PlacesByTask::new();
    for (place, one) in dependencies.iter().enumerate() {
        for task in side(one) {
            places.entry(task).or_default().push(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(dependencies: &[(&[&str], &[&str])]) -> Graph {
        let mut graph = Graph::default();
        for (parents, children) in dependencies {
            graph.add(Dependency::new(parents.iter().copied(), children.iter().copied()));
        }
        graph
    }

    #[test]
    fn the_largest_value_of_all_parents_is_found() {
        let found = graph(&[(&["a", "b"], &["c", "d"]), (&["c"], &["d"]), (&["x"], &["y"])]);
        let value = |task: &TaskName| match task.0.as_str() {
            "a" => Some(1),
            "b" => Some(5),
            "c" => Some(9),
            _ => None,
        };
        let largest = found.largest_of_parents(value, i32::max);
        let of = |task: &str| largest.get(&TaskName(task.into())).copied();
        assert_eq!([of("a"), of("c"), of("d"), of("y")], [None, Some(5), Some(9), None]);
    }

    #[test]
    fn only_a_task_in_a_cycle_is_found() {
        assert_eq!(graph(&[(&["a"], &["b", "c"]), (&["b", "c"], &["d"])]).find_cycle(), None);
        let cyclic = graph(&[(&["a"], &["b"]), (&["b"], &["c"]), (&["c"], &["b", "d"])]);
        assert!(matches!(cyclic.find_cycle(), Some(TaskName(name)) if name == "b" || name == "c"));
        let own = graph(&[(&["a", "b"], &["b", "c"])]);
        assert_eq!(own.find_cycle(), Some(&TaskName("b".into())));
        let twice = graph(&[(&["a", "a"], &["b", "b"])]);
        assert_eq!(twice.find_cycle(), None);
    }

    #[test]
    fn edges_of_one_parent_share_a_dependency() {
        let mut graph = Graph::default();
        for (parent, child) in [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d")] {
            graph.add_edge(parent, child);
        }
        let sizes: Vec<usize> = graph.dependencies().iter().map(|one| one.children.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
    }
}
