//! Alarms: which windows exceed their threshold, grouped by job and node and explained; and the most anomalous windows
//! whether they exceed it or not.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::{Cpu, JobId, NodeName, Timestamp};

use crate::data::KnownJobs;
use crate::detector::{Finding, Level};
use crate::explain::Explanation;
use crate::kind_classifier::{KindClassifier, KindMatch};
use crate::trained::TrainedDetector;
use crate::window::WindowBatch;

/// A job on a node of which at least one thread exceeds its threshold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alarm {
    pub job: JobId,
    pub node: NodeName,
    /// The threads above the threshold.
    pub threads: Vec<Cpu>,
    /// The start and end of the windows.
    pub start: Timestamp,
    pub end: Timestamp,
    /// The score of the most anomalous thread, and the threshold it exceeds.
    pub score: f64,
    pub threshold: f64,
    /// The reconstruction error of that thread.
    pub reconstruction_error: f64,
    pub level: Option<Level>,
    pub explanation: Explanation,
    /// The most similar known kinds, the most likely first; empty without labelled jobs, and for a job with a label.
    pub kinds: Vec<KindMatch>,
}

/// Turns the findings of a detector into alarms.
pub struct Monitor<'a> {
    pub detector: &'a TrainedDetector,
    /// Labels decide which threshold applies, if there are thresholds per kind.
    pub known: &'a KnownJobs,
    pub classifier: Option<&'a KindClassifier>,
}

impl Monitor<'_> {
    /// The threshold that applies to a job.
    pub fn threshold(&self, job: &JobId) -> f64 {
        self.detector.thresholds.of(self.known.kind(job)).score
    }

    /// Whether a finding of a job raises an alarm. Every command uses this rule.
    pub fn is_alarm(&self, job: &JobId, finding: &Finding) -> bool {
        self.detector.thresholds.of(self.known.kind(job)).is_exceeded_by(finding.score)
    }

    /// The alarms of a batch, one for each job and node, sorted by job and node.
    pub fn alarms(&self, batch: &WindowBatch) -> Vec<Alarm> {
        let findings = self.detector.examine(batch);
        let mut by_job: BTreeMap<(&JobId, &NodeName), Vec<usize>> = BTreeMap::new();
        for (window, (thread, finding)) in batch.threads().iter().zip(&findings).enumerate() {
            if self.is_alarm(&thread.job, finding) {
                by_job.entry((&thread.job, &thread.node)).or_default().push(window);
            }
        }
        let highest = |windows: &Vec<usize>| {
            let highest = windows.iter().copied();
            highest.max_by(|a, b| findings[*a].score.total_cmp(&findings[*b].score)).unwrap_or_default()
        };
        let explained: Vec<usize> = by_job.values().map(highest).collect();
        let explanations = self.detector.explain(batch, &findings, &explained);
        let mut alarms = Vec::new();
        for (((job, node), windows), (window, explanation)) in
            by_job.into_iter().zip(explained.into_iter().zip(explanations))
        {
            let finding = &findings[window];
            // The points of a labelled job are part of the classifier: it would vouch for itself.
            let classifier = self.classifier.filter(|_| self.known.kind(job).is_none());
            let kinds = classifier.map_or(Vec::new(), |classifier| classifier.classify(finding));
            alarms.push(Alarm {
                job: job.clone(),
                node: node.clone(),
                threads: windows.into_iter().map(|window| batch.threads()[window].cpu).collect(),
                start: batch.start(),
                end: batch.start() + self.detector.window_spec(1).length(),
                score: finding.score,
                threshold: self.threshold(job),
                reconstruction_error: finding.error(),
                level: finding.level,
                explanation,
                kinds,
            });
        }
        alarms
    }
}

/// The most anomalous window of a thread of a job.
#[derive(Debug, Clone)]
pub struct RankedWindow {
    pub node: NodeName,
    pub cpu: Cpu,
    pub job: JobId,
    pub finding: Finding,
    pub explanation: Explanation,
}

/// Keeps the windows with the highest scores, one for each thread of a job.
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

    /// Adds the windows of a batch that pass a filter by job and node.
    pub fn add(
        &mut self,
        detector: &TrainedDetector,
        batch: &WindowBatch,
        is_wanted: impl Fn(&JobId, &NodeName) -> bool,
    ) {
        let findings = detector.examine(batch);
        let is_full = self.windows.len() >= self.max_windows;
        let lowest = self.windows.last().map_or(f64::MIN, |window| window.finding.score);
        // At most as many windows of one batch can be ranked; they are explained in one call.
        let mut candidates: Vec<usize> = Vec::new();
        for (index, (thread, finding)) in batch.threads().iter().zip(&findings).enumerate() {
            if is_wanted(&thread.job, &thread.node) && (!is_full || finding.score > lowest) {
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
                job: thread.job.clone(),
                finding: findings[index].clone(),
                explanation,
            });
        }
    }

    /// Inserts a window in order, unless its thread has a ranked window with at least the same score.
    fn insert(&mut self, window: RankedWindow) {
        let same =
            |one: &RankedWindow| (&one.node, one.cpu, &one.job) == (&window.node, window.cpu, &window.job);
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
