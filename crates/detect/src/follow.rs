//! Follows an archive that is being written: the newest window of every thread, node by node.
//!
//! Nodes have their own clocks. The windows of the largest group of nodes that agree form one batch, which
//! ends when all of them have been read. A node whose clock is ahead or behind gets a batch of its own
//! whenever it has new readings, so that it neither holds up nor hides the others. Nodes that stopped
//! writing are reported, but not scored again.

use std::collections::BTreeMap;

use archive::{Archive, Selection};
use serde::Serialize;
use workload::{Millis, NodeName, Timestamp};

use crate::archive_windows::{batch_at, read_again};
use crate::window::{WindowBatch, WindowSpec};

/// Nodes whose last readings are within this, or within two sampling periods, of each other agree.
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
    /// The last readings at the previous poll.
    ends: BTreeMap<NodeName, Timestamp>,
}

impl<'a> ArchiveFollower<'a> {
    pub fn new(archive: &'a Archive, spec: &'a WindowSpec) -> Self {
        Self { archive, spec, last: BTreeMap::new(), ends: BTreeMap::new() }
    }

    /// The windows that end with the newest readings, of nodes that have new ones.
    pub fn poll(&mut self) -> archive::Result<NewWindows> {
        let snapshot = read_again(|| self.archive.snapshot(Selection::default()))?;
        let mut ends = BTreeMap::new();
        for node in snapshot.nodes() {
            if let Some((_, last)) = snapshot.bounds(&node) {
                // The step of the last reading may still be incomplete.
                ends.insert(node, last.floor(self.spec.period));
            }
        }
        let tolerance = Millis(TOLERANCE.0.max(2 * self.spec.period.0));
        let has_new = |node: &NodeName, end: Timestamp| self.ends.get(node).is_some_and(|last| *last < end);
        let groups = group_by_clock(&ends, tolerance, has_new);
        self.ends = ends;
        let mut batches = Vec::new();
        for (nodes, end) in groups.batches {
            let start = end - self.spec.length();
            let is_new = |node: &NodeName| self.last.get(node).is_none_or(|last| *last < start);
            let nodes: Vec<NodeName> = nodes.into_iter().filter(is_new).collect();
            if let Some(batch) = read_again(|| batch_at(self.archive, &nodes, self.spec, start))? {
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

/// Puts the largest group of nodes that agree into one batch, and each other node with new readings into its own. If
/// some nodes have new readings, only they count for the size of a group.
fn group_by_clock(
    ends: &BTreeMap<NodeName, Timestamp>,
    tolerance: Millis,
    has_new: impl Fn(&NodeName, Timestamp) -> bool,
) -> ClockGroups {
    let agree = |one: Timestamp, other: Timestamp| (one - other).0.abs() <= tolerance.0;
    let live: Vec<Timestamp> =
        ends.iter().filter(|(node, end)| has_new(node, **end)).map(|(_, end)| *end).collect();
    let counted: Vec<Timestamp> = if live.is_empty() { ends.values().copied().collect() } else { live };
    let size = |end: Timestamp| counted.iter().filter(|other| agree(**other, end)).count();
    // Of groups of the same size, the latest.
    let Some(reference) = counted.iter().copied().max_by_key(|end| (size(*end), *end)) else {
        return ClockGroups { batches: Vec::new(), differences: Vec::new() };
    };
    let mut common = Vec::new();
    let mut common_end = reference;
    let (mut own, mut differences) = (Vec::new(), Vec::new());
    for (node, end) in ends {
        if agree(*end, reference) {
            common.push(node.clone());
            common_end = common_end.min(*end);
            continue;
        }
        if has_new(node, *end) {
            own.push((vec![node.clone()], *end));
        }
        let ahead_seconds = (*end - reference).as_seconds();
        differences.push(ClockDifference { node: node.clone(), ahead_seconds });
    }
    let mut batches = vec![(common, common_end)];
    batches.extend(own);
    ClockGroups { batches, differences }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::JobChannel;
    use crate::test_archive::{START, TestArchive};

    fn ends(ends: &[(&str, i64)]) -> BTreeMap<NodeName, Timestamp> {
        let end =
            |(node, second): &(&str, i64)| (NodeName::new(*node).unwrap(), Timestamp::from_seconds(*second));
        ends.iter().map(end).collect()
    }

    fn shown(groups: &ClockGroups) -> Vec<(Vec<&str>, i64)> {
        let mut shown = Vec::new();
        for (nodes, end) in &groups.batches {
            shown.push((nodes.iter().map(NodeName::as_str).collect(), end.0 / 1_000));
        }
        shown
    }

    #[test]
    fn a_fast_node_gets_a_batch_of_its_own_and_a_silent_one_none() {
        let ends = ends(&[("a", 100), ("b", 102), ("c", 99), ("fast", 3_700), ("dead", 7)]);
        let groups = group_by_clock(&ends, TOLERANCE, |node, _| node.as_str() != "dead");
        assert_eq!(shown(&groups), [(vec!["a", "b", "c"], 99), (vec!["fast"], 3_700)]);
        let off: Vec<f64> = groups.differences.iter().map(|one| one.ahead_seconds).collect();
        assert_eq!(off, [-95.0, 3_598.0]);
        assert!(group_by_clock(&BTreeMap::new(), TOLERANCE, |_, _| true).batches.is_empty());
    }

    #[test]
    fn retired_nodes_do_not_outvote_those_that_write() {
        let ends = ends(&[("old1", 10), ("old2", 11), ("old3", 12), ("a", 100), ("b", 101)]);
        let groups = group_by_clock(&ends, TOLERANCE, |node, _| !node.as_str().starts_with("old"));
        assert_eq!(shown(&groups), [(vec!["a", "b"], 100)]);
    }

    #[test]
    fn a_window_of_a_detector_with_a_job_channel_is_complete() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 60, 1, |_, _| Some("a"));
        test.write_pressure("n1", START - 1..START + 60, "a");
        let job_channels = vec![JobChannel::IoPressure];
        let spec = WindowSpec { period: Millis::SECOND, n_steps: 20, stride: 1, job_channels };
        let found = ArchiveFollower::new(&test.archive, &spec).poll().unwrap();
        assert_eq!(found.batches.len(), 1);
        assert!(found.batches[0].values().chunks_exact(5).all(|step| step[4] == 0.5));
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
        let nodes = |batch: &WindowBatch| -> Vec<String> {
            batch.threads().iter().map(|thread| thread.node.to_string()).collect()
        };
        let found = follower.poll().unwrap();
        let shown: Vec<Vec<String>> = found.batches.iter().map(nodes).collect();
        assert_eq!(shown, [vec!["n1", "n2", "n3"]]);
        assert_eq!(found.differences.len(), 1);
        assert!((found.differences[0].ahead_seconds - 400.0).abs() <= 1.0);
        assert!(follower.poll().unwrap().batches.is_empty(), "nothing is scored twice");
        write("n2", now + 59..now + 80);
        write("n1", now + 60..now + 80);
        write("fast", now + 460..now + 480);
        let found = follower.poll().unwrap();
        let shown: Vec<Vec<String>> = found.batches.iter().map(nodes).collect();
        assert_eq!(shown, [vec!["n1", "n2"], vec!["fast"]], "a silent node does not hold up the others");
        let silent = found.differences.iter().find(|one| one.node.as_str() == "n3").unwrap();
        assert_eq!(silent.ahead_seconds, -20.0);
        assert!(follower.poll().unwrap().batches.is_empty());
    }
}
