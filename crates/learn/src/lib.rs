//! What all learning shares. These modules need no tensor framework: spectra, principal components,
//! and how well groups of points are told apart.

pub mod artifact;
pub mod boost;
pub mod extra_trees;
pub mod kmeans;
pub mod matrix;
pub mod metrics;
pub mod mixture;
pub mod modes;
pub mod moments;
pub mod nn;
pub mod pca;
pub mod silhouette;
pub mod spectrum;
pub mod tail;
pub mod umap;
pub mod weights;

pub use kmeans::KMeans;
pub use matrix::Matrix;
pub use pca::{Pca, PcaError};
pub use silhouette::{SilhouetteError, silhouette};
pub use spectrum::{Peak, Spectrum, SpectrumError, Welch};
