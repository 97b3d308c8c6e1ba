//! Cycles in a task graph that should have none.

use std::collections::BTreeMap;

/// A task that depends on itself, if there is one.
pub fn find(children: &BTreeMap<String, Vec<String>>) -> Option<&str> {
    let mut n_parents: BTreeMap<&str, usize> = BTreeMap::new();
    for (parent, children) in children {
        n_parents.entry(parent).or_default();
        for child in children {
            *n_parents.entry(child).or_default() += 1;
        }
    }
    // Tasks without parents are removed until none is left. Cycles remain, and what depends on them.
    let mut free: Vec<&str> = n_parents.iter().filter(|(_, n)| **n == 0).map(|(task, _)| *task).collect();
    while let Some(task) = free.pop() {
        for child in children.get(task).into_iter().flatten() {
            if let Some(n) = n_parents.get_mut(child.as_str()) {
                *n -= 1;
                if *n == 0 {
                    free.push(child);
                }
            }
        }
        n_parents.remove(task);
    }
    // Every remaining task has a remaining parent, so following parents long enough ends in a cycle.
    let mut parent_of: BTreeMap<&str, &str> = BTreeMap::new();
    for (parent, children) in children.iter().filter(|(parent, _)| n_parents.contains_key(parent.as_str())) {
        for child in children {
            parent_of.insert(child, parent);
        }
    }
    let first = n_parents.keys().next().copied()?;
    Some((0..n_parents.len()).fold(first, |task, _| parent_of.get(task).copied().unwrap_or(task)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_task_in_a_cycle_is_found() {
        let graph = |edges: &[(&str, &str)]| {
            let mut children: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (parent, child) in edges {
                children.entry((*parent).into()).or_default().push((*child).into());
            }
            children
        };
        assert_eq!(find(&graph(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])), None);
        let cyclic = graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]);
        assert!(matches!(find(&cyclic), Some("b" | "c")));
    }
}
