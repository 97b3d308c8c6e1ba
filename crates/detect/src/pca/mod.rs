//! The PCA baseline: the score is the error of the reconstruction from the first principal components.

use learn::artifact::Tensors;
use learn::artifact::restore::RestoreError;
use learn::pca::PcaError;
use learn::{Matrix, Pca};

use crate::detector::{Detector, Finding};
use crate::sample::Sample;
use crate::window::WindowBatch;

const TENSOR: &str = "pca";

#[derive(Debug, Clone)]
pub struct Components {
    pca: Pca,
}

impl Components {
    pub fn fit(sample: &Sample, n_components: usize) -> Result<Self, PcaError> {
        let windows = sample.matrix().ok_or(PcaError::TooFew { n_points: 0 })?;
        Ok(Self { pca: Pca::fit(&windows, n_components)? })
    }

    /// `size` is the number of values of a window.
    pub fn restore(tensors: &Tensors, n_components: usize, size: usize) -> Result<Self, RestoreError> {
        Ok(Self { pca: Pca::restore(tensors, TENSOR, n_components, size)? })
    }
}

impl Detector for Components {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let size = batch.threads().first().map_or(1, |thread| thread.values.len());
        let windows = Matrix::new(batch.values(), size);
        let along = self.pca.transform(&windows);
        let expected = self.pca.reconstruct(along.as_slice());
        let rows = windows.rows().zip(expected.chunks_exact(size)).zip(along.rows());
        rows.map(|((window, expected), along)| {
            Finding::from_reconstruction(window, expected.to_vec(), along.to_vec(), batch.n_channels())
        })
        .collect()
    }

    fn tensors(&self) -> Tensors {
        [(TENSOR.to_owned(), self.pca.to_tensor())].into()
    }
}
