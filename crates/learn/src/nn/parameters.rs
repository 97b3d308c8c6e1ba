//! The parameters of a network: named tensors in one flat array, so that optimisers, checkpoints and sums
//! of gradients need not know their structure.

use std::ops::Range;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::artifact::restore::{RestoreError, expect};
use crate::artifact::{Tensor, Tensors};

/// A parameter tensor of a [`Parameters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParameterId(usize);

#[derive(Debug, Clone, PartialEq)]
struct Parameter {
    name: String,
    shape: Vec<usize>,
    range: Range<usize>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    values: Vec<f32>,
    known: Vec<Parameter>,
    /// Whether parameters are only listed so far, and have no values.
    is_outline: bool,
}

impl Parameters {
    /// Builds a network whose parameters are stored. `build` only lists them; memory is allocated after
    /// every one was found with the right shape, so settings cannot ask for more than the file contains.
    pub fn restore<N>(
        tensors: &Tensors,
        build: impl FnOnce(&mut Self) -> N,
    ) -> Result<(N, Self), RestoreError> {
        let mut parameters = Self { is_outline: true, ..Self::default() };
        let network = build(&mut parameters);
        parameters.load(tensors)?;
        Ok((network, parameters))
    }

    /// The number of values of a network, without building it. Sizes that overflow count as the largest
    /// number.
    pub fn count<N>(build: impl FnOnce(&mut Self) -> N) -> usize {
        let mut parameters = Self { is_outline: true, ..Self::default() };
        build(&mut parameters);
        parameters.end()
    }

    /// Where the range of the last parameter ends.
    fn end(&self) -> usize {
        self.known.last().map_or(0, |last| last.range.end)
    }

    /// Adds a parameter, drawn uniformly between ±1/√`fan_in`, as PyTorch initialises linear layers and
    /// convolutions.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        fan_in: usize,
        rng: &mut Xoshiro256PlusPlus,
    ) -> ParameterId {
        let start = self.end();
        let n_values = shape.iter().fold(1usize, |product, size| product.saturating_mul(*size));
        let range = start..start.saturating_add(n_values);
        if !self.is_outline {
            let bound = 1.0 / (fan_in as f32).sqrt();
            self.values.extend((0..n_values).map(|_| rng.random_range(-bound..bound)));
        }
        self.known.push(Parameter { name: name.into(), shape: shape.to_vec(), range });
        ParameterId(self.known.len() - 1)
    }

    /// Sets all values of a parameter that was just added.
    pub fn fill(&mut self, id: ParameterId, value: f32) {
        if !self.is_outline {
            self.get_mut(id).fill(value);
        }
    }

    pub fn get(&self, id: ParameterId) -> &[f32] {
        &self.values[self.range(id)]
    }

    pub fn get_mut(&mut self, id: ParameterId) -> &mut [f32] {
        let range = self.range(id);
        &mut self.values[range]
    }

    pub fn shape(&self, id: ParameterId) -> &[usize] {
        &self.known[id.0].shape
    }

    /// The range of a parameter within [`Self::values`].
    pub fn range(&self, id: ParameterId) -> Range<usize> {
        self.known[id.0].range.clone()
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// The name, shape and values of every parameter.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[usize], &[f32])> {
        self.known
            .iter()
            .map(|one| (one.name.as_str(), one.shape.as_slice(), &self.values[one.range.clone()]))
    }

    /// Every parameter, by name.
    pub fn to_tensors(&self) -> Tensors {
        let tensor = |(name, shape, values): (&str, &[usize], &[f32])| {
            (name.to_owned(), Tensor::new(shape.to_vec(), values.to_vec()))
        };
        self.iter().map(tensor).collect()
    }

    /// Sets every parameter from a tensor of the same name and shape. Changes nothing if one does not fit.
    pub fn load(&mut self, tensors: &Tensors) -> Result<(), RestoreError> {
        let found: Result<Vec<&[f32]>, RestoreError> =
            self.known.iter().map(|one| expect(tensors, &one.name, &one.shape)).collect();
        self.values = found?.concat();
        self.is_outline = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn build(parameters: &mut Parameters, sizes: [usize; 2]) -> [ParameterId; 2] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let weight = parameters.add("weight", &sizes, sizes[0], &mut rng);
        let bias = parameters.add("bias", &[sizes[1]], sizes[0], &mut rng);
        parameters.fill(bias, 0.5);
        [weight, bias]
    }

    #[test]
    fn restored_parameters_are_those_that_were_stored() {
        let mut drawn = Parameters::default();
        let ids = build(&mut drawn, [3, 2]);
        drawn.get_mut(ids[1]).copy_from_slice(&[1.0, 2.0]);
        let (restored_ids, restored) =
            Parameters::restore(&drawn.to_tensors(), |parameters| build(parameters, [3, 2])).unwrap();
        assert_eq!((restored_ids, &restored), (ids, &drawn));
        assert_eq!(Parameters::count(|parameters| build(parameters, [3, 2])), drawn.values().len());
    }

    #[test]
    fn sizes_that_are_not_stored_are_an_error_and_not_an_allocation() {
        let mut drawn = Parameters::default();
        build(&mut drawn, [3, 2]);
        let tensors = drawn.to_tensors();
        for sizes in [[2, 3], [0, 2], [1 << 40, 1 << 40], [usize::MAX, 2], [3, usize::MAX]] {
            let error = Parameters::restore(&tensors, |parameters| build(parameters, sizes)).unwrap_err();
            assert!(matches!(error, RestoreError::Shape { .. }), "{error}");
        }
        assert_eq!(Parameters::count(|parameters| build(parameters, [1 << 40, 1 << 40])), usize::MAX);
        let missing = Parameters::restore(&Tensors::new(), |parameters| build(parameters, [3, 2]));
        assert_eq!(missing.unwrap_err(), RestoreError::Missing("weight".into()));
    }
}
