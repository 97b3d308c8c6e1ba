//! The nearest-neighbour baseline: the score is the mean squared difference from the nearest training window. The
//! embedding is that of the principal components.

use learn::Matrix;
use learn::artifact::restore::{RestoreError, expect_rows};
use learn::artifact::{Tensor, Tensors};
use learn::pca::PcaError;
use learn::stats::squared_distance;
use rand::SeedableRng;
use rand::seq::IteratorRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use crate::detector::{Detector, Finding};
use crate::pca::Components;
use crate::sample::Sample;
use crate::window::WindowBatch;

const TENSOR: &str = "remembered";

#[derive(Debug, Clone)]
pub struct Nearest {
    stored: Matrix,
    components: Components,
}

impl Nearest {
    /// Stores a random subset of `n_stored` windows.
    pub fn fit(sample: &Sample, n_stored: usize, n_components: usize, seed: u64) -> Result<Self, PcaError> {
        let windows = sample.windows().map(|thread| &thread.values);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let chosen: Vec<&Vec<f32>> = windows.sample(&mut rng, n_stored);
        let size = chosen.first().map_or(1, |window| window.len());
        let stored = Matrix::new(chosen.into_iter().flatten().copied().collect(), size);
        Ok(Self { stored, components: Components::fit(sample, n_components)? })
    }

    /// `size` is the number of values of a window.
    pub fn restore(tensors: &Tensors, n_components: usize, size: usize) -> Result<Self, RestoreError> {
        let components = Components::restore(tensors, n_components, size)?;
        let stored = expect_rows(tensors, TENSOR, size)?;
        Ok(Self { stored: Matrix::new(stored.to_vec(), size), components })
    }

    fn nearest(&self, window: &[f32]) -> &[f32] {
        let rows = self.stored.rows().map(|row| (squared_distance(window, row), row));
        rows.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(&[], |(_, row)| row)
    }
}

impl Detector for Nearest {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let along = self.components.examine(batch);
        let pairs: Vec<_> = batch.threads().iter().zip(along).collect();
        pairs
            .into_par_iter()
            .map(|(thread, along)| {
                let expected = self.nearest(&thread.values).to_vec();
                Finding::from_reconstruction(&thread.values, expected, along.embedding, batch.n_channels())
            })
            .collect()
    }

    fn tensors(&self) -> Tensors {
        let shape = vec![self.stored.n_rows(), self.stored.n_columns()];
        let mut tensors = self.components.tensors();
        tensors.insert(TENSOR.into(), Tensor::new(shape, self.stored.as_slice().to_vec()));
        tensors
    }
}
