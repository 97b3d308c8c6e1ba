//! The interface of a detector: window batches in, one finding per window out.

use std::fmt;

use learn::artifact::Tensors;
use learn::stats::mean;
use serde::{Deserialize, Serialize};

use crate::explain::{Explanation, explain_error};
use crate::window::{WindowBatch, WindowSpec};

/// A detector that has been fitted to normal windows.
pub trait Detector: Send + Sync {
    /// One finding for each window of a batch, in the order of the batch.
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding>;

    /// Explains some windows of a batch, given the findings of the whole batch. The explanation comes
    /// from the part of the detector that determined the score.
    fn explain(
        &self,
        batch: &WindowBatch,
        findings: &[Finding],
        windows: &[usize],
        spec: &WindowSpec,
    ) -> Vec<Explanation> {
        windows.iter().map(|window| explain_error(batch, &findings[*window], *window, spec)).collect()
    }

    /// All fitted parameters.
    fn tensors(&self) -> Tensors;
}

/// The result of examining one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Higher is more anomalous. See [`DetectorKind::score_scale`].
    pub score: f64,
    /// The mean squared error of each channel over the steps.
    pub errors: Vec<f64>,
    pub embedding: Vec<f32>,
    /// The window as the detector reconstructs it.
    pub expected: Vec<f32>,
    pub uncertainty: Option<Uncertainty>,
    /// The level that determined the score, for detectors that look at more than one.
    pub level: Option<Level>,
    /// The distance from normal on each level, in the order of [`Level::ALL`]; empty for detectors with one level.
    pub distances: Vec<f64>,
    /// The standard deviation of these distances over the members of an ensemble; empty otherwise.
    pub distance_spread: Vec<f64>,
}

/// Where a deviation was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The reconstruction error of the thread is higher than that of similar windows.
    Reconstruction,
    /// The thread differs from every group of normal windows.
    Thread,
    /// The thread differs from the other threads of its job.
    Peers,
    /// All threads of the job differ in the same way.
    Job,
    /// The jobs of the node differ in the same way.
    Node,
    /// The jobs of the whole cluster differ in the same way.
    Cluster,
    /// The first four levels together: each is unusual, perhaps none is on its own.
    Combined,
}

impl Level {
    pub const ALL: [Self; 7] = [
        Self::Reconstruction,
        Self::Thread,
        Self::Peers,
        Self::Job,
        Self::Node,
        Self::Cluster,
        Self::Combined,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Reconstruction => "reconstruction",
            Self::Thread => "thread",
            Self::Peers => "peers",
            Self::Job => "job",
            Self::Node => "node",
            Self::Cluster => "cluster",
            Self::Combined => "combined",
        }
    }

    /// What the level compares, as a sentence about a window.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Reconstruction => "its reconstruction error is higher than that of similar windows",
            Self::Thread => "the thread differs from every group of normal windows",
            Self::Peers => "the thread differs from the other threads of its job",
            Self::Job => "all threads of the job differ in the same way",
            Self::Node => "the jobs of the node differ in the same way",
            Self::Cluster => "the jobs of the cluster differ in the same way",
            Self::Combined => "the thread and its job are unusual in several ways at once",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How uncertain a variational autoencoder is about a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Uncertainty {
    /// The variance of the reconstruction over samples of the embedding.
    pub reconstruction: f64,
    /// The variance of the embedding.
    pub latent: f64,
}

impl Finding {
    /// The reconstruction error: the mean squared error over all channels and steps.
    pub fn error(&self) -> f64 {
        mean(&self.errors)
    }

    /// The finding of a detector whose score is the reconstruction error.
    pub fn from_reconstruction(
        window: &[f32],
        expected: Vec<f32>,
        embedding: Vec<f32>,
        n_channels: usize,
    ) -> Self {
        let errors = channel_errors(window, &expected, n_channels);
        let score = mean(&errors);
        Self {
            score,
            errors,
            embedding,
            expected,
            uncertainty: None,
            level: None,
            distances: Vec::new(),
            distance_spread: Vec::new(),
        }
    }
}

/// The mean squared difference of each channel.
pub fn channel_errors(window: &[f32], expected: &[f32], n_channels: usize) -> Vec<f64> {
    let mut errors = vec![0.0; n_channels];
    for (step, expected) in window.chunks_exact(n_channels).zip(expected.chunks_exact(n_channels)) {
        for ((error, value), expected) in errors.iter_mut().zip(step).zip(expected) {
            *error += f64::from(value - expected).powi(2);
        }
    }
    let n_steps = (window.len() / n_channels) as f64;
    for error in &mut errors {
        *error /= n_steps;
    }
    errors
}

learn::family! {
    /// The kinds of detectors.
    pub enum DetectorKind("detector", domain "detect", formerly ["threads"]) {
        Ae = "ae": "Autoencoder of single threads",
        NodeGnn = "node-gnn": "Autoencoder with one message pass between all threads of a node",
        JobGnn = "job-gnn": "Autoencoder with one message pass between the threads of a job on a node",
        Vae = "vae": "Variational autoencoder; also estimates its uncertainty",
        Pca = "pca": "Principal component analysis (baseline)",
        Nearest = "nearest": "Nearest neighbour in the training data (baseline)",
        Hierarchy = "hierarchy":
            "Deviations from clusters of normal windows, pooled over threads, jobs, nodes and the cluster",
    }
    best Hierarchy
}

/// The unit of a detector's scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreScale {
    /// A mean squared error.
    SquaredError,
    /// −log10 of an estimated tail probability, the largest over all levels.
    MinusLog10P,
}

impl DetectorKind {
    /// Whether training starts from random weights, so that two runs with different seeds differ.
    pub const fn is_random(self) -> bool {
        !matches!(self, Self::Pca | Self::Nearest)
    }

    pub const fn score_scale(self) -> ScoreScale {
        match self {
            Self::Hierarchy => ScoreScale::MinusLog10P,
            _ => ScoreScale::SquaredError,
        }
    }
}
