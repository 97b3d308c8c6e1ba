//! The nearest neighbour: the other trivial baseline. What is like no window that was seen in training is strange;
//! the embedding is that of the principal components.

use learn::Matrix;
use learn::artifact::{Tensor, Tensors};
use learn::pca::PcaError;
use rand::SeedableRng;
use rand::seq::IteratorRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

use super::pca::Components;
use super::{Detector, Finding, Moment, Sample};

const TENSOR: &str = "remembered";

#[derive(Debug, Clone)]
pub struct Nearest {
    remembered: Matrix,
    components: Components,
}

impl Nearest {
    /// Remembers `n_remembered` windows of a sample.
    pub fn fit(
        sample: &Sample,
        n_remembered: usize,
        n_components: usize,
        seed: u64,
    ) -> Result<Self, PcaError> {
        let windows = sample.moments.iter().flat_map(|moment| &moment.threads).map(|thread| &thread.values);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let chosen: Vec<&Vec<f32>> = windows.sample(&mut rng, n_remembered);
        let size = chosen.first().map_or(1, |window| window.len());
        let remembered = Matrix::new(chosen.into_iter().flatten().copied().collect(), size);
        Ok(Self { remembered, components: Components::fit(sample, n_components)? })
    }

    pub fn from_tensors(tensors: &Tensors) -> Option<Self> {
        let remembered = tensors.get(TENSOR)?;
        let [_, n_columns] = remembered.shape[..] else { return None };
        let components = Components::from_tensors(tensors)?;
        Some(Self { remembered: Matrix::new(remembered.values.clone(), n_columns), components })
    }

    fn nearest(&self, window: &[f32]) -> &[f32] {
        let distance = |other: &[f32]| window.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        let rows = self.remembered.rows().map(|row| (distance(row), row));
        rows.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(&[], |(_, row)| row)
    }
}

impl Detector for Nearest {
    fn examine(&self, moment: &Moment) -> Vec<Finding> {
        let along = self.components.examine(moment);
        let pairs: Vec<_> = moment.threads.iter().zip(along).collect();
        pairs
            .into_par_iter()
            .map(|(thread, along)| {
                let expected = self.nearest(&thread.values).to_vec();
                Finding::of_expected(&thread.values, expected, along.embedding, moment.n_channels)
            })
            .collect()
    }

    fn tensors(&self) -> Tensors {
        let shape = vec![self.remembered.n_rows(), self.remembered.n_columns()];
        let mut tensors = self.components.tensors();
        tensors.insert(TENSOR.into(), Tensor { shape, values: self.remembered.as_slice().to_vec() });
        tensors
    }
}
