//! `slowdown`: a fault makes tasks slower, in whatever batch.
//!
//! The classifier has two views of a run.
//!
//! - [`BatchInvariant`] uses quantities that are comparable between batches: runtime relative to CPU time, staging time
//!   relative to bytes. Monotone boosted trees separate each fault from healthy runs: a longer delay can only be
//!   evidence for a fault. Extra trees trained on faulty runs choose between faults.
//! - [`Memory`] uses all statistics of all delays, with boosted and extra trees. It is better for runs like those of the
//!   training set.
//!
//! Memory decides if a run is near the training set. Otherwise the batch-invariant view decides if its largest
//! probability is high enough. Evidence comes from the view that decided. See `docs/adr/0015-slowdown.md`.

mod batch_invariant;
mod memory;

use learn::artifact::restore::{self, RestoreError, ensure};
use learn::artifact::{Tensors, part_of, within};
use serde::{Deserialize, Serialize};
use workload::Stop;

pub use self::batch_invariant::BatchInvariant;
pub use self::memory::Memory;
use super::{Classifier, Evidence, TrainingSet, most_likely};
use crate::error::Result;
use crate::features::RunSummary;

/// Hyper-parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlowdownSettings {
    pub n_trees: usize,
    pub depth: usize,
    /// Interpolated runs between a healthy and a faulty one, for each faulty training run.
    pub n_weaker: usize,
    /// Runs with a novelty percentile up to this are classified by memory.
    pub novelty: f64,
    /// The smallest probability with which the batch-invariant view decides.
    #[serde(rename = "sureness")]
    pub min_probability: f64,
}

impl Default for SlowdownSettings {
    fn default() -> Self {
        Self { n_trees: 60, depth: 3, n_weaker: 2, novelty: 0.7, min_probability: 0.8 }
    }
}

impl SlowdownSettings {
    /// Whether a run is too far from the training set for memory.
    pub fn is_novel(&self, novelty: f64) -> bool {
        novelty > self.novelty
    }

    /// Whether the batch-invariant view is certain enough to decide about a novel run.
    pub fn is_certain(&self, probabilities: &[f64]) -> bool {
        probabilities.iter().any(|probability| *probability >= self.min_probability)
    }
}

/// Which part of the classifier decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    BatchInvariant,
    Memory,
}

pub struct Slowdown {
    settings: SlowdownSettings,
    batch_invariant: BatchInvariant,
    memory: Memory,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    settings: SlowdownSettings,
    #[serde(rename = "weekless")]
    batch_invariant: serde_json::Value,
    memory: serde_json::Value,
}

/// The names of the views in stored models.
const BATCH_INVARIANT: &str = "weekless";
const MEMORY: &str = "memory";

impl Slowdown {
    pub fn fit(
        training: &TrainingSet<'_>,
        settings: SlowdownSettings,
        seed: u64,
        stop: &Stop,
    ) -> Result<Self> {
        let batch_invariant = BatchInvariant::fit(training, settings, seed, stop)?;
        Ok(Self { settings, batch_invariant, memory: Memory::fit(training, seed, stop)? })
    }

    pub fn restore(
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> std::result::Result<Self, RestoreError> {
        let stored: Stored = restore::settings(settings)?;
        let batch_invariant =
            BatchInvariant::restore(&stored.batch_invariant, &part_of(tensors, BATCH_INVARIANT))?;
        let memory = Memory::restore(&stored.memory, &part_of(tensors, MEMORY))?;
        let n_classes = [batch_invariant.n_classes(), memory.n_classes()];
        ensure(n_classes[0] == n_classes[1], "its views are for different classes")?;
        Ok(Self { settings: stored.settings, batch_invariant, memory })
    }

    /// The probabilities of the view that decides about a run.
    pub fn decide(&self, run: &RunSummary<'_>) -> (View, Vec<f64>) {
        if self.settings.is_novel(self.memory.novelty(run)) {
            let probabilities = self.batch_invariant.probabilities(run);
            if self.settings.is_certain(&probabilities) {
                return (View::BatchInvariant, probabilities);
            }
        }
        (View::Memory, self.memory.probabilities(run))
    }
}

impl Classifier for Slowdown {
    fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64> {
        self.decide(run).1
    }

    /// The mean of the probabilities that the view that decides and the batch-invariant view give to the class. It is low for
    /// runs of known batches too, if the delays that are comparable between batches do not support the verdict.
    fn confidence(&self, run: &RunSummary<'_>) -> f64 {
        let decided = self.decide(run).1;
        let class = most_likely(&decided);
        (decided[class] + self.batch_invariant.probabilities(run)[class]) / 2.0
    }

    fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Evidence {
        Evidence::Features(match self.decide(run).0 {
            View::BatchInvariant => self.batch_invariant.evidence(run, class),
            View::Memory => self.memory.evidence(run, class),
        })
    }

    fn n_classes(&self) -> usize {
        self.batch_invariant.n_classes()
    }

    fn tensors(&self) -> Tensors {
        within(BATCH_INVARIANT, self.batch_invariant.tensors())
            .chain(within(MEMORY, self.memory.tensors()))
            .collect()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::json!(Stored {
            settings: self.settings,
            batch_invariant: self.batch_invariant.settings(),
            memory: self.memory.settings(),
        })
    }
}
