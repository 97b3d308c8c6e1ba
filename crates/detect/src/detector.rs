//! The interface of a detector: windows in, findings out.

use learn::artifact::Tensors;
use learn::moments::mean;
use serde::{Deserialize, Serialize};

use crate::window::Moment;

/// What has learnt from normal windows.
pub trait Detector: Send + Sync {
    /// What it makes of the windows of a moment, in their order.
    fn examine(&self, moment: &Moment) -> Vec<Finding>;

    /// All that it has learnt.
    fn tensors(&self) -> Tensors;
}

/// What a detector makes of one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Higher is stranger.
    pub score: f64,
    /// The mean squared error of each channel over the steps.
    pub errors: Vec<f64>,
    pub embedding: Vec<f32>,
    /// The window as the detector would have expected it.
    pub expected: Vec<f32>,
    pub uncertainty: Option<Uncertainty>,
    /// Where it is strange, for detectors that look at more than the thread: see `hierarchy`.
    pub level: Option<&'static str>,
}

/// How sure a variational autoencoder is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Uncertainty {
    /// The variance of what it expects, over draws of the embedding.
    pub reconstruction: f64,
    /// The variance of the embedding itself.
    pub latent: f64,
}

impl Finding {
    /// The reconstruction error: the mean over all channels and steps.
    pub fn error(&self) -> f64 {
        mean(&self.errors)
    }

    /// The finding of a window that was expected otherwise: its score is the reconstruction error.
    pub fn of_expected(window: &[f32], expected: Vec<f32>, embedding: Vec<f32>, n_channels: usize) -> Self {
        let errors = channel_errors(window, &expected, n_channels);
        let score = mean(&errors);
        Self { score, errors, embedding, expected, uncertainty: None, level: None }
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
    errors.iter_mut().for_each(|error| *error /= n_steps);
    errors
}

/// The detectors there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    Ae,
    NodeGnn,
    JobGnn,
    Vae,
    Pca,
    Nearest,
    Hierarchy,
}

impl Model {
    pub const ALL: [Self; 7] =
        [Self::Ae, Self::NodeGnn, Self::JobGnn, Self::Vae, Self::Pca, Self::Nearest, Self::Hierarchy];

    /// The one that measurements recommend: `docs/results/detectors.md`.
    pub const BEST: Self = Self::Hierarchy;

    /// Whether training begins somewhere at random, so that one says little of the next.
    pub const fn is_random(self) -> bool {
        !matches!(self, Self::Pca | Self::Nearest)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ae => "ae",
            Self::NodeGnn => "node-gnn",
            Self::JobGnn => "job-gnn",
            Self::Vae => "vae",
            Self::Pca => "pca",
            Self::Nearest => "nearest",
            Self::Hierarchy => "hierarchy",
        }
    }

    pub const fn description(self) -> &'static str {
        match self {
            Self::Ae => "Autoencoder of single threads",
            Self::NodeGnn => "Autoencoder in which all threads of a node exchange a message",
            Self::JobGnn => "Autoencoder in which the threads of a job on a node exchange a message",
            Self::Vae => "Variational autoencoder, which says how sure it is",
            Self::Pca => "Principal components: a baseline",
            Self::Nearest => "The nearest window of the training data: a baseline",
            Self::Hierarchy => {
                "Deviations from groups of normal windows, pooled over threads, jobs, nodes and the cluster"
            }
        }
    }
}
