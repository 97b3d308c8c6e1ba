//! The parameters of a network: named tensors in one flat array, so that optimisers, checkpoints and sums
//! of gradients need not know their structure.

use std::ops::Range;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

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
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("there is no parameter {0}")]
    Missing(String),
    #[error("parameter {name} has the shape {found:?}, not {expected:?}")]
    Shape { name: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("parameter {0} is not stored as f32")]
    Type(String),
}

impl Parameters {
    /// Adds a parameter, drawn uniformly between ±1/√`fan_in`, as PyTorch initialises linear layers and
    /// convolutions.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        fan_in: usize,
        rng: &mut Xoshiro256PlusPlus,
    ) -> ParameterId {
        let bound = 1.0 / (fan_in as f32).sqrt();
        let start = self.values.len();
        let n_values = shape.iter().product();
        self.values.extend((0..n_values).map(|_| rng.random_range(-bound..bound)));
        let range = start..self.values.len();
        self.known.push(Parameter { name: name.into(), shape: shape.to_vec(), range });
        ParameterId(self.known.len() - 1)
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
    pub fn load(&mut self, tensors: &Tensors) -> Result<(), ParameterError> {
        let mut values = Vec::with_capacity(self.values.len());
        for one in &self.known {
            let found = tensors.get(&one.name).ok_or_else(|| ParameterError::Missing(one.name.clone()))?;
            let found_values = found.as_f32().ok_or_else(|| ParameterError::Type(one.name.clone()))?;
            if found.shape() != one.shape || found_values.len() != one.range.len() {
                let (name, expected) = (one.name.clone(), one.shape.clone());
                return Err(ParameterError::Shape { name, found: found.shape().to_vec(), expected });
            }
            values.extend_from_slice(found_values);
        }
        self.values = values;
        Ok(())
    }
}
