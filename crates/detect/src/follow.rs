//! Follows an archive that is being written: passes its new readings to a [`WindowBuffer`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use archive::{Archive, Replay, Replayed, Selection};
use workload::{Millis, NodeName, NodeReading, Timestamp};

use crate::archive_windows::read_again;
use crate::evidence::Confirmation;
use crate::split::WindowFilter;
use crate::window::{WindowBatch, WindowSpec};
use crate::window_buffer::{BufferStatus, WindowBuffer};

/// A node without new readings for this long is no longer waited for.
const RETIRED_AFTER: Duration = Duration::from_secs(600);
/// A node whose readings end this much earlier than those of most nodes was retired before it was followed.
const RETIRED_BEFORE: Millis = Millis::HOUR;

/// Reads the new readings of an archive, each once.
#[derive(Debug)]
pub struct ArchiveFollower<'a> {
    archive: &'a Archive,
    buffer: WindowBuffer,
    /// How far back it begins, so that the first windows are complete at once.
    lookback: Millis,
    nodes: BTreeMap<NodeName, Followed>,
}

#[derive(Debug, Clone, Copy)]
struct Followed {
    /// Its last reading that was read.
    last: Timestamp,
    /// When that was read; absent if the node was retired before.
    read_at: Option<Instant>,
}

impl<'a> ArchiveFollower<'a> {
    /// `confirmation` is how long evidence has to last: so much more is read at the beginning.
    pub fn new(archive: &'a Archive, spec: WindowSpec, confirmation: Confirmation) -> Self {
        let lookback = Millis(spec.length().0 + confirmation.lasting.0 + 2 * spec.stride_length().0);
        let buffer = WindowBuffer::new(spec, WindowFilter::All);
        Self { archive, buffer, lookback, nodes: BTreeMap::new() }
    }

    /// The batches that are complete since the last poll.
    pub fn poll(&mut self) -> archive::Result<Vec<WindowBatch>> {
        if self.nodes.is_empty() {
            self.begin()?;
        }
        let is_live = |node: &&Followed| node.read_at.is_some_and(|at| at.elapsed() < RETIRED_AFTER);
        let from = self.nodes.values().filter(is_live).map(|node| node.last).min();
        let Some(from) = from.or(self.nodes.values().map(|node| node.last).max()) else {
            return Ok(Vec::new());
        };
        let selection = Selection { from, ..Selection::default() };
        let replayed = read_again(|| {
            let snapshot = self.archive.snapshot(selection.clone())?;
            Replay::new(&snapshot, None)?.collect::<archive::Result<Vec<_>>>()
        })?;
        let before: BTreeMap<NodeName, Timestamp> =
            self.nodes.iter().map(|(name, node)| (name.clone(), node.last)).collect();
        let is_new =
            |reading: &NodeReading| before.get(&reading.node).is_none_or(|last| reading.time > *last);
        let mut new: Vec<Replayed> = replayed.into_iter().filter(|one| is_new(&one.reading)).collect();
        // Nodes take turns, also if their clocks differ.
        let mut begins = before.clone();
        for Replayed { reading, .. } in &new {
            begins.entry(reading.node.clone()).or_insert(reading.time);
        }
        new.sort_by_key(|one| begins.get(&one.reading.node).map(|begin| one.reading.time - *begin));
        let mut batches = Vec::new();
        for Replayed { reading, scale } in new {
            let followed = Followed { last: reading.time, read_at: Some(Instant::now()) };
            self.nodes.insert(reading.node.clone(), followed);
            batches.extend(self.buffer.push(&reading, scale));
        }
        Ok(batches)
    }

    /// What is late, missing or ignored.
    pub fn status(&self) -> BufferStatus {
        self.buffer.status()
    }

    fn begin(&mut self) -> archive::Result<()> {
        let snapshot = read_again(|| self.archive.snapshot(Selection::default()))?;
        let mut ends: Vec<(NodeName, Timestamp)> = Vec::new();
        for node in snapshot.nodes() {
            ends.extend(snapshot.bounds(&node).map(|(_, last)| (node, last)));
        }
        let mut sorted: Vec<Timestamp> = ends.iter().map(|(_, last)| *last).collect();
        sorted.sort_unstable();
        let Some(median) = sorted.get(sorted.len() / 2).copied() else { return Ok(()) };
        for (node, last) in ends {
            let is_retired = last < median - RETIRED_BEFORE;
            let read_at = (!is_retired).then(Instant::now);
            self.nodes.insert(node, Followed { last: last - self.lookback, read_at });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_archive::{START, TestArchive};

    fn shown(batches: &[WindowBatch]) -> Vec<(i64, Vec<&str>)> {
        batches
            .iter()
            .map(|batch| {
                let nodes = batch.threads().iter().map(|thread| thread.node.as_str()).collect();
                (batch.start().0 / 1_000 - START, nodes)
            })
            .collect()
    }

    #[test]
    fn every_window_is_seen_once_and_a_fast_clock_hides_nothing() {
        let mut test = TestArchive::new();
        let archive = test.archive.clone();
        let mut write =
            |node: &str, seconds: std::ops::Range<i64>| test.write(node, seconds, 1, |_, _| Some("1"));
        for node in ["n1", "n2", "n3"] {
            write(node, START..START + 60);
        }
        write("fast", START + 4_000..START + 4_060);
        let spec = WindowSpec { period: Millis::SECOND, n_steps: 20, stride: 5, job_channels: Vec::new() };
        let confirmation = Confirmation { brief: Millis(10_000), lasting: Millis(10_000) };
        let mut follower = ArchiveFollower::new(&archive, spec, confirmation);
        let first = follower.poll().unwrap();
        assert!(!first.is_empty());
        assert!(follower.poll().unwrap().is_empty(), "nothing is seen twice");
        write("n1", START + 60..START + 80);
        write("n2", START + 60..START + 80);
        write("fast", START + 4_060..START + 4_080);
        let second = follower.poll().unwrap();
        let seen: Vec<(i64, Vec<&str>)> = shown(&second);
        assert!(seen.contains(&(4_055, vec!["fast"])), "{seen:?}");
        assert!(
            seen.contains(&(55, vec!["n1", "n2"])),
            "a silent node does not hold up the others: {seen:?}"
        );
        let all: Vec<(i64, Vec<&str>)> = shown(&first).into_iter().chain(seen).collect();
        for node in ["n1", "n2", "fast"] {
            let mut starts: Vec<i64> =
                all.iter().filter(|(_, nodes)| nodes.contains(&node)).map(|(start, _)| *start).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 5), "{node}: {starts:?}");
        }
        let status = follower.status();
        assert_eq!(status.missing.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["n3"]);
    }
}
