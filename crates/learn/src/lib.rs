//! What all learning shares. These modules need no tensor framework: spectra, principal components,
//! and how well groups of points are told apart.

pub mod matrix;
pub mod pca;
pub mod silhouette;
pub mod spectrum;

pub use matrix::Matrix;
pub use pca::{Pca, PcaError};
pub use silhouette::{SilhouetteError, silhouette};
pub use spectrum::{Peak, Spectrum, SpectrumError, Welch};
