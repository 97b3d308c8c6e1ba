//! Numerical methods for learning, without a tensor framework: neural networks with automatic
//! differentiation ([`nn`]), tree ensembles, clustering, mixtures, principal components, UMAP, spectra,
//! metrics; and how trained models are stored ([`artifact`], [`family`]).
//!
//! Parallel work runs on the current rayon pool, so a caller can confine it with
//! `rayon::ThreadPool::install`. Long operations take a [`workload::Stop`].

pub mod artifact;
pub mod bayesian_mixture;
pub mod boost;
mod digamma;
pub mod extra_trees;
pub mod family;
pub mod kmeans;
pub mod matrix;
pub mod metrics;
pub mod mixture;
pub mod nn;
pub mod pca;
pub mod silhouette;
pub mod spectrum;
pub mod stats;
mod trees;
pub mod umap;
pub mod weights;

pub use kmeans::KMeans;
pub use matrix::Matrix;
pub use pca::{Pca, PcaError};
pub use silhouette::{SilhouetteError, silhouette};
pub use spectrum::{Peak, Spectrum, SpectrumError, Welch};
pub use trees::TreesError;

/// A sample that is too small to fit anything to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{n_points} points are too few; at least {needed} are needed")]
pub struct TooFewPoints {
    pub n_points: usize,
    pub needed: usize,
}

impl TooFewPoints {
    fn check(n_points: usize, needed: usize) -> Result<(), Self> {
        if n_points < needed { Err(Self { n_points, needed }) } else { Ok(()) }
    }
}
