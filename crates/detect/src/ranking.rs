//! The most anomalous windows, whether they exceed a threshold or not.

use workload::{Cpu, NodeName, Owner};

use crate::detector::Finding;
use crate::explain::Explanation;
use crate::trained::TrainedDetector;
use crate::usage::JobUsage;
use crate::window::{ThreadWindow, WindowBatch};

/// The most anomalous window of a thread while it had one owner.
#[derive(Debug, Clone)]
pub struct RankedWindow {
    pub node: NodeName,
    pub cpu: Cpu,
    pub owner: Owner,
    pub finding: Finding,
    /// What is known about the job.
    pub usage: Option<JobUsage>,
    pub explanation: Explanation,
}

/// Keeps the windows with the highest scores, one for each thread and owner.
#[derive(Debug)]
pub struct Ranking {
    max_windows: usize,
    windows: Vec<RankedWindow>,
}

impl Ranking {
    pub fn new(max_windows: usize) -> Self {
        Self { max_windows, windows: Vec::new() }
    }

    /// The ranked windows, highest score first.
    pub fn into_windows(self) -> Vec<RankedWindow> {
        self.windows
    }

    /// Adds the windows of a batch that pass a filter.
    pub fn add(
        &mut self,
        detector: &TrainedDetector,
        batch: &WindowBatch,
        is_wanted: impl Fn(&ThreadWindow) -> bool,
    ) {
        let findings = detector.examine(batch);
        let is_full = self.windows.len() >= self.max_windows;
        let lowest = self.windows.last().map_or(f64::MIN, |window| window.finding.score);
        // At most as many windows of one batch can be ranked; they are explained in one call.
        let mut candidates: Vec<usize> = Vec::new();
        for (index, (thread, finding)) in batch.threads().iter().zip(&findings).enumerate() {
            if is_wanted(thread) && (!is_full || finding.score > lowest) {
                candidates.push(index);
            }
        }
        candidates.sort_by(|a, b| findings[*b].score.total_cmp(&findings[*a].score));
        candidates.truncate(self.max_windows);
        let explanations = detector.explain(batch, &findings, &candidates);
        for (index, explanation) in candidates.into_iter().zip(explanations) {
            let thread = &batch.threads()[index];
            self.insert(RankedWindow {
                node: thread.node.clone(),
                cpu: thread.cpu,
                owner: thread.owner.clone(),
                finding: findings[index].clone(),
                usage: batch.usage_of(thread).cloned(),
                explanation,
            });
        }
    }

    /// Inserts a window in order, unless its thread has a ranked window with at least the same score.
    fn insert(&mut self, window: RankedWindow) {
        let same = |one: &RankedWindow| {
            (&one.node, one.cpu, &one.owner) == (&window.node, window.cpu, &window.owner)
        };
        if let Some(known) = self.windows.iter().position(same) {
            if self.windows[known].finding.score >= window.finding.score {
                return;
            }
            self.windows.remove(known);
        }
        let place = self.windows.partition_point(|one| one.finding.score >= window.finding.score);
        self.windows.insert(place, window);
        self.windows.truncate(self.max_windows);
    }
}
