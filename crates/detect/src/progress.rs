//! How far the data of a cluster has advanced, whatever the clocks of its nodes say.

use std::collections::BTreeMap;

use workload::{Millis, NodeName, Timestamp};

/// The clock is that of the node at this place when nodes are sorted by their progress: neither one node that
/// delivers what it has kept nor many that stopped move it.
const PLACE: f64 = 0.75;

/// A clock that counts how much data came, node by node.
#[derive(Debug)]
pub struct Progress {
    nodes: BTreeMap<NodeName, NodeProgress>,
    now: Millis,
    /// A jump of a node's clock counts as at most this.
    max_step: Millis,
}

#[derive(Debug, Clone, Copy)]
struct NodeProgress {
    /// The node's own time.
    last: Timestamp,
    elapsed: Millis,
}

impl Progress {
    pub fn new(max_step: Millis) -> Self {
        Self { nodes: BTreeMap::new(), now: Millis(0), max_step }
    }

    /// Notes data of a node, up to a time of its own clock.
    pub fn advance(&mut self, node: &NodeName, time: Timestamp) {
        let now = self.now;
        let known = self.nodes.entry(node.clone()).or_insert(NodeProgress { last: time, elapsed: now });
        let step = (time - known.last).0.clamp(0, self.max_step.0);
        // A node that was silent is back.
        known.elapsed = Millis((known.elapsed.0 + step).max(now.0));
        known.last = time;
    }

    /// Moves the clock to where most nodes are.
    pub fn update(&mut self) {
        let mut elapsed: Vec<Millis> = self.nodes.values().map(|node| node.elapsed).collect();
        elapsed.sort_unstable();
        let place = (elapsed.len().saturating_sub(1) as f64 * PLACE).round() as usize;
        self.now = self.now.max(elapsed.get(place).copied().unwrap_or(self.now));
    }

    /// The last time of a node's own clock.
    pub fn last(&self, node: &NodeName) -> Option<Timestamp> {
        self.nodes.get(node).map(|node| node.last)
    }

    /// For how long other nodes have gone on without a node.
    pub fn silent_for(&self, node: &NodeName) -> Millis {
        self.nodes.get(node).map_or(Millis(0), |node| Millis((self.now.0 - node.elapsed.0).max(0)))
    }

    /// Forgets nodes that have been silent for longer than this; returns them.
    pub fn forget(&mut self, longest: Millis) -> Vec<NodeName> {
        let is_gone = |node: &NodeProgress| self.now.0 - node.elapsed.0 > longest.0;
        let gone = self.nodes.iter().filter(|(_, node)| is_gone(node)).map(|(name, _)| name.clone());
        let gone: Vec<NodeName> = gone.collect();
        for name in &gone {
            self.nodes.remove(name);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[test]
    fn clocks_that_are_wrong_and_data_that_comes_late_do_not_move_the_clock() {
        let mut progress = Progress::new(Millis(10_000));
        for second in 0..100 {
            for (name, offset) in [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("fast", 9_999), ("slow", -9_999)]
            {
                progress.advance(&node(name), Timestamp::from_seconds(1_000_000 + second + offset));
            }
            progress.update();
        }
        assert_eq!(progress.now, Millis(99_000));
        // One delivers ten minutes at once, another jumps by a day.
        for second in 100..700 {
            progress.advance(&node("slow"), Timestamp::from_seconds(990_001 + second));
            progress.update();
        }
        progress.advance(&node("fast"), Timestamp::from_seconds(2_000_000));
        progress.update();
        assert!(progress.now <= Millis(109_000), "{:?}", progress.now);
    }

    #[test]
    fn nodes_that_stop_are_silent_also_if_they_are_the_majority() {
        let mut progress = Progress::new(Millis(10_000));
        for second in 0..200 {
            for (name, end) in [("a", 200), ("b", 50), ("c", 50)] {
                if second < end {
                    progress.advance(&node(name), Timestamp::from_seconds(second));
                }
            }
            progress.update();
        }
        assert_eq!(progress.silent_for(&node("a")), Millis(0));
        assert_eq!(progress.silent_for(&node("b")), Millis(150_000));
        assert_eq!(progress.forget(Millis(100_000)), [node("b"), node("c")]);
    }
}
