//! The state of the cluster now: scores of threads, jobs and nodes, as the last windows gave them.

use std::collections::BTreeMap;

use detect::{Finding, Subject, WindowBatch};
use serde::Serialize;
use workload::{Cpu, JobId, Millis, NodeName, Timestamp};

/// A node without new windows for this long has no scores.
const FORGOTTEN_AFTER: Millis = Millis(300_000);

/// The scores of a cluster. A score is evidence in units of its threshold: above 1 is anomalous.
#[derive(Debug, Clone, Default)]
pub struct Live {
    pub nodes: BTreeMap<NodeName, NodeScores>,
    /// The end of the newest windows.
    pub time: Option<Timestamp>,
}

/// The scores of one node.
#[derive(Debug, Clone)]
pub struct NodeScores {
    /// The end of its last windows.
    pub time: Timestamp,
    pub threads: Vec<ThreadScore>,
    pub jobs: BTreeMap<JobId, JobScore>,
    /// The evidence about the node as a whole, and about its threads without a job.
    pub common: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadScore {
    pub cpu: Cpu,
    pub score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobScore {
    pub score: f64,
    /// The mean reconstruction error of its threads.
    pub error: f64,
    pub n_threads: usize,
}

/// A node in a few numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeSummary {
    pub node: NodeName,
    pub time: Timestamp,
    pub n_threads: usize,
    pub n_jobs: usize,
    /// The largest score of a thread, a job or the node itself.
    pub max_score: f64,
    pub p99_score: f64,
    /// Threads with a score above 1.
    pub n_anomalous: usize,
}

impl Live {
    /// Takes the scores of a batch. `strengths` are those of subjects, `score` is that of a single window.
    pub fn update(
        &mut self,
        batch: &WindowBatch,
        length: Millis,
        findings: &[Finding],
        scores: &[f64],
        strengths: &BTreeMap<Subject, f64>,
    ) {
        let time = batch.start() + length;
        self.time = self.time.max(Some(time));
        for windows in batch.nodes() {
            let mut node = NodeScores { time, threads: Vec::new(), jobs: BTreeMap::new(), common: 0.0 };
            let name = batch.threads()[windows.start].node.clone();
            for window in windows {
                let thread = &batch.threads()[window];
                let job = thread.job().cloned();
                node.threads.push(ThreadScore { cpu: thread.cpu, score: scores[window], job: job.clone() });
                if let Some(job) = job {
                    let empty = JobScore { score: 0.0, error: 0.0, n_threads: 0 };
                    let of_job = node.jobs.entry(job).or_insert(empty);
                    of_job.score = of_job.score.max(scores[window]);
                    of_job.error += findings[window].error();
                    of_job.n_threads += 1;
                }
            }
            node.threads.sort_by_key(|thread| thread.cpu);
            for job in node.jobs.values_mut() {
                job.error /= job.n_threads.max(1) as f64;
            }
            self.nodes.insert(name, node);
        }
        for (subject, strength) in strengths {
            let Some(node) = subject.node().and_then(|node| self.nodes.get_mut(node)) else { continue };
            match subject.job().and_then(|job| node.jobs.get_mut(job)) {
                Some(job) => job.score = job.score.max(*strength),
                None => node.common = node.common.max(*strength),
            }
        }
        self.nodes.retain(|_, node| time - node.time <= FORGOTTEN_AFTER);
    }

    /// All nodes in a few numbers.
    pub fn summaries(&self) -> Vec<NodeSummary> {
        self.nodes.iter().map(|(name, node)| node.summary(name)).collect()
    }
}

impl NodeScores {
    pub fn summary(&self, name: &NodeName) -> NodeSummary {
        let mut scores: Vec<f64> = self.threads.iter().map(|thread| thread.score).collect();
        scores.sort_by(f64::total_cmp);
        let p99 = scores.get((scores.len() * 99 / 100).min(scores.len().saturating_sub(1)));
        let of_jobs = self.jobs.values().map(|job| job.score).fold(self.common, f64::max);
        NodeSummary {
            node: name.clone(),
            time: self.time,
            n_threads: self.threads.len(),
            n_jobs: self.jobs.len(),
            max_score: scores.last().copied().unwrap_or(0.0).max(of_jobs),
            p99_score: p99.copied().unwrap_or(0.0),
            n_anomalous: scores.iter().filter(|score| **score > 1.0).count(),
        }
    }
}

/// The byte of a score in the plane of the heat map: 100 is the threshold, 255 is far above it.
pub fn score_byte(score: f64) -> u8 {
    let scaled = if score <= 1.0 { 100.0 * score } else { 100.0 + 50.0 * score.ln() };
    scaled.clamp(0.0, 255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_scores_keep_their_order() {
        let scores = [0.0, 0.3, 0.99, 1.0, 1.2, 3.0, 20.0, 1e9];
        let bytes = scores.map(score_byte);
        assert!(bytes.is_sorted() && bytes[3] == 100 && bytes[7] == 255, "{bytes:?}");
        assert_eq!(score_byte(f64::NAN), 0);
    }
}
