//! Follows an archive that is being written: the newest window of every thread, node by node.
//!
//! Nodes have their own clocks. Most of them agree; their windows form one batch that ends when all of
//! them have been read. A node whose clock is ahead or behind gets a batch of its own, so that it neither
//! holds up nor hides the others.

use std::collections::BTreeMap;

use archive::{Archive, Selection};
use serde::Serialize;
use workload::{Millis, NodeName, Timestamp};

use crate::archive_windows::batch_at;
use crate::window::{WindowBatch, WindowSpec};

/// Nodes whose last readings are within this of the median are taken to agree.
const TOLERANCE: Millis = Millis(10_000);

/// A node whose readings end at another time than those of most nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClockDifference {
    pub node: NodeName,
    /// Positive if its readings end later than those of most nodes.
    pub ahead_seconds: f64,
}

/// What is new in an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWindows {
    /// The batch of the nodes that agree, then one for each other node.
    pub batches: Vec<WindowBatch>,
    /// Nodes that are ahead, behind or silent.
    pub differences: Vec<ClockDifference>,
}

/// Reads the newest windows of an archive, each once.
#[derive(Debug)]
pub struct ArchiveFollower<'a> {
    archive: &'a Archive,
    spec: &'a WindowSpec,
    /// The start of the last window of each node.
    last: BTreeMap<NodeName, Timestamp>,
}

impl<'a> ArchiveFollower<'a> {
    pub fn new(archive: &'a Archive, spec: &'a WindowSpec) -> Self {
        Self { archive, spec, last: BTreeMap::new() }
    }

    /// The windows that end with the newest readings, of nodes that have new ones.
    pub fn poll(&mut self) -> archive::Result<NewWindows> {
        let snapshot = self.archive.snapshot(Selection::default())?;
        let mut ends = BTreeMap::new();
        for node in snapshot.nodes() {
            if let Some((_, last)) = snapshot.bounds(&node) {
                // The step of the last reading may still be incomplete.
                ends.insert(node, last.floor(self.spec.period));
            }
        }
        let groups = group_by_clock(&ends);
        let mut batches = Vec::new();
        for (nodes, end) in groups.batches {
            let start = end - self.spec.length();
            let is_new = |node: &NodeName| self.last.get(node).is_none_or(|last| *last < start);
            let nodes: Vec<NodeName> = nodes.into_iter().filter(is_new).collect();
            if let Some(batch) = batch_at(self.archive, &nodes, self.spec, start)? {
                self.last.extend(nodes.into_iter().map(|node| (node, start)));
                batches.push(batch);
            }
        }
        Ok(NewWindows { batches, differences: groups.differences })
    }
}

struct ClockGroups {
    /// Nodes, and when the windows of all of them end.
    batches: Vec<(Vec<NodeName>, Timestamp)>,
    differences: Vec<ClockDifference>,
}

/// Puts nodes that agree into one group, and each other node into its own.
fn group_by_clock(ends: &BTreeMap<NodeName, Timestamp>) -> ClockGroups {
    let mut sorted: Vec<Timestamp> = ends.values().copied().collect();
    sorted.sort_unstable();
    let Some(median) = sorted.get(sorted.len().saturating_sub(1) / 2).copied() else {
        return ClockGroups { batches: Vec::new(), differences: Vec::new() };
    };
    let agrees = |end: Timestamp| (end - median).0.abs() <= TOLERANCE.0;
    let common_end = sorted.into_iter().filter(|end| agrees(*end)).min().unwrap_or(median);
    let mut common = Vec::new();
    let (mut own, mut differences) = (Vec::new(), Vec::new());
    for (node, end) in ends {
        if agrees(*end) {
            common.push(node.clone());
        } else {
            own.push((vec![node.clone()], *end));
            differences
                .push(ClockDifference { node: node.clone(), ahead_seconds: (*end - median).as_seconds() });
        }
    }
    let mut batches = vec![(common, common_end)];
    batches.extend(own);
    ClockGroups { batches, differences }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_archive::{START, TestArchive};

    fn ends(ends: &[(&str, i64)]) -> BTreeMap<NodeName, Timestamp> {
        let end =
            |(node, second): &(&str, i64)| (NodeName::new(*node).unwrap(), Timestamp::from_seconds(*second));
        ends.iter().map(end).collect()
    }

    #[test]
    fn a_fast_or_late_node_gets_a_batch_of_its_own() {
        let groups =
            group_by_clock(&ends(&[("a", 100), ("b", 102), ("c", 99), ("fast", 3_700), ("dead", 7)]));
        let shown: Vec<(Vec<&str>, i64)> = groups
            .batches
            .iter()
            .map(|(nodes, end)| (nodes.iter().map(NodeName::as_str).collect(), end.0 / 1_000))
            .collect();
        assert_eq!(shown, [(vec!["a", "b", "c"], 99), (vec!["dead"], 7), (vec!["fast"], 3_700)]);
        let off: Vec<f64> = groups.differences.iter().map(|one| one.ahead_seconds).collect();
        assert_eq!(off, [-93.0, 3_600.0]);
        assert!(group_by_clock(&BTreeMap::new()).batches.is_empty());
    }

    #[test]
    fn a_node_with_a_fast_clock_does_not_silence_the_others() {
        let mut test = TestArchive::new();
        let archive = test.archive.clone();
        let mut write =
            |node: &str, seconds: std::ops::Range<i64>| test.write(node, seconds, 1, |_, _| Some("1"));
        let now = START;
        write("n1", now..now + 60);
        write("n2", now..now + 59);
        write("n3", now..now + 60);
        write("fast", now + 400..now + 460);
        let spec = WindowSpec { period: Millis::SECOND, n_steps: 20, stride: 1, job_channels: Vec::new() };
        let mut follower = ArchiveFollower::new(&archive, &spec);
        let found = follower.poll().unwrap();
        let nodes = |batch: &WindowBatch| -> Vec<String> {
            batch.threads().iter().map(|thread| thread.node.to_string()).collect()
        };
        let shown: Vec<Vec<String>> = found.batches.iter().map(nodes).collect();
        assert_eq!(shown, [vec!["n1", "n2", "n3"], vec!["fast"]]);
        assert_eq!(found.differences.len(), 1);
        assert!((found.differences[0].ahead_seconds - 400.0).abs() <= 1.0);
        assert!(follower.poll().unwrap().batches.is_empty(), "nothing is scored twice");
        write("n2", now + 59..now + 80);
        write("n1", now + 60..now + 80);
        let found = follower.poll().unwrap();
        let shown: Vec<Vec<String>> = found.batches.iter().map(nodes).collect();
        // The last second of n3 is scored once, by its own clock.
        assert_eq!(shown, [vec!["n1", "n2"], vec!["n3"]], "a silent node does not hold up the others");
        let silent = found.differences.iter().find(|one| one.node.as_str() == "n3").unwrap();
        assert_eq!(silent.ahead_seconds, -20.0);
        assert!(follower.poll().unwrap().batches.is_empty());
    }
}
