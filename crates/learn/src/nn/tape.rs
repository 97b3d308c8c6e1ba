//! Reverse-mode automatic differentiation: a tape records operations and goes back over them.
//!
//! A tape is used by one thread. Batches are split into shards, each with its own tape. The gradients of
//! the shards are added in a fixed order, so that results do not depend on the number of threads.

use super::parameters::{ParameterId, Parameters};

/// How the rows of a value are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One row per sample.
    Plain,
    /// One row per step, with `pad` rows of zeros before, between and after the samples, so that a
    /// convolution is a matrix product with overlapping rows.
    Padded { n_steps: usize, pad: usize },
    /// One row per pixel, line by line, picture by picture.
    Image { height: usize, width: usize },
}

impl Layout {
    pub fn n_rows(self, n_samples: usize) -> usize {
        match self {
            Self::Plain => n_samples,
            Self::Padded { n_steps, pad } => pad + n_samples * (n_steps + pad),
            Self::Image { height, width } => n_samples * height * width,
        }
    }

    /// The first row of a sample.
    pub fn row(self, sample: usize) -> usize {
        match self {
            Self::Plain => sample,
            Self::Padded { n_steps, pad } => pad + sample * (n_steps + pad),
            Self::Image { height, width } => sample * height * width,
        }
    }
}

/// A matrix: an input, or the result of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    pub data: Vec<f32>,
    pub n_samples: usize,
    pub n_columns: usize,
    pub layout: Layout,
}

impl Value {
    /// # Panics
    /// If the data are not whole rows.
    pub fn plain(data: Vec<f32>, n_columns: usize) -> Self {
        assert!(n_columns > 0 && data.len().is_multiple_of(n_columns), "the values are not whole rows");
        Self { n_samples: data.len() / n_columns, data, n_columns, layout: Layout::Plain }
    }

    /// Zeros in a layout.
    pub fn zeros(n_samples: usize, n_columns: usize, layout: Layout) -> Self {
        Self { data: vec![0.0; layout.n_rows(n_samples) * n_columns], n_samples, n_columns, layout }
    }

    /// Pictures, one after the other.
    ///
    /// # Panics
    /// If the data are not whole pictures.
    pub fn pictures(data: Vec<f32>, height: usize, width: usize, n_columns: usize) -> Self {
        let size = height * width * n_columns;
        assert!(size > 0 && data.len().is_multiple_of(size), "the values are not whole pictures");
        Self { n_samples: data.len() / size, data, n_columns, layout: Layout::Image { height, width } }
    }

    /// Samples of `n_steps` steps each, one after the other in `samples`, in the padded layout.
    pub fn padded(samples: &[f32], n_steps: usize, n_columns: usize, pad: usize) -> Self {
        let size = n_steps * n_columns;
        let mut value = Self::zeros(samples.len() / size, n_columns, Layout::Padded { n_steps, pad });
        for (index, sample) in samples.chunks_exact(size).enumerate() {
            let first = value.layout.row(index) * n_columns;
            value.data[first..first + size].copy_from_slice(sample);
        }
        value
    }

    /// The samples, one after the other, without the padding.
    pub fn samples(&self) -> Vec<f32> {
        let Layout::Padded { n_steps, .. } = self.layout else { return self.data.clone() };
        let size = n_steps * self.n_columns;
        let first = |sample: usize| self.layout.row(sample) * self.n_columns;
        (0..self.n_samples)
            .flat_map(|sample| &self.data[first(sample)..first(sample) + size])
            .copied()
            .collect()
    }
}

/// A value on a tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Var(pub(super) usize);

/// What a recorded operation keeps for the backward pass.
pub trait Operation {
    /// Adds to the gradients of the inputs, given the gradient of the output.
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>);
}

/// The state of a backward pass.
pub struct Back<'a> {
    values: &'a [Value],
    is_wanted: &'a [bool],
    gradients: &'a mut [Option<Vec<f32>>],
    pub parameters: &'a Parameters,
    pub parameter_gradients: &'a mut [f32],
}

impl Back<'_> {
    pub fn value(&self, var: Var) -> &Value {
        &self.values[var.0]
    }

    /// Whether the gradient of a value is needed; that of an input is not.
    pub fn is_wanted(&self, var: Var) -> bool {
        self.is_wanted[var.0]
    }

    /// The accumulated gradient of a value, to be added to.
    pub fn gradient(&mut self, var: Var) -> &mut Vec<f32> {
        let length = self.values[var.0].data.len();
        self.gradients[var.0].get_or_insert_with(|| vec![0.0; length])
    }

    /// Adds a whole gradient to that of a value.
    pub fn give(&mut self, var: Var, gradient: Vec<f32>) {
        match &mut self.gradients[var.0] {
            Some(sum) => add(sum, &gradient),
            none => *none = Some(gradient),
        }
    }

    /// A value, and the gradient of a parameter to add to.
    pub fn value_and_parameter(&mut self, var: Var, id: ParameterId) -> (&Value, &mut [f32]) {
        (&self.values[var.0], &mut self.parameter_gradients[self.parameters.range(id)])
    }

    /// The gradient of a parameter, to be added to.
    pub fn of_parameter(&mut self, id: ParameterId) -> &mut [f32] {
        &mut self.parameter_gradients[self.parameters.range(id)]
    }
}

/// Adds values to others, one by one.
pub fn add(sum: &mut [f32], more: &[f32]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

/// The values that were computed from parameters and inputs, and the operations that computed them.
pub struct Tape<'a> {
    pub parameters: &'a Parameters,
    values: Vec<Value>,
    operations: Vec<Option<Box<dyn Operation>>>,
    is_wanted: Vec<bool>,
    is_recording: bool,
}

impl<'a> Tape<'a> {
    pub fn new(parameters: &'a Parameters) -> Self {
        Self {
            parameters,
            values: Vec::new(),
            operations: Vec::new(),
            is_wanted: Vec::new(),
            is_recording: true,
        }
    }

    /// A tape for inference: it records no operations, so what they keep for a backward pass is freed at
    /// once, and gradients through it are zero.
    pub fn for_inference(parameters: &'a Parameters) -> Self {
        Self { is_recording: false, ..Self::new(parameters) }
    }

    /// An input, whose gradient is not needed.
    pub fn input(&mut self, value: Value) -> Var {
        self.put(value, None, false)
    }

    /// The result of an operation.
    pub fn push(&mut self, value: Value, operation: impl Operation + 'static) -> Var {
        let operation: Option<Box<dyn Operation>> =
            if self.is_recording { Some(Box::new(operation)) } else { None };
        self.put(value, operation, true)
    }

    fn put(&mut self, value: Value, operation: Option<Box<dyn Operation>>, is_wanted: bool) -> Var {
        self.values.push(value);
        self.operations.push(operation);
        self.is_wanted.push(is_wanted);
        Var(self.values.len() - 1)
    }

    pub fn value(&self, var: Var) -> &Value {
        &self.values[var.0]
    }

    /// Takes a value off a tape that is not needed any more.
    pub fn into_value(mut self, var: Var) -> Value {
        self.values.swap_remove(var.0)
    }

    /// The next value, for operations whose backward pass needs their own output.
    pub(super) fn next(&self) -> Var {
        Var(self.values.len())
    }

    /// The number of a loss.
    pub fn scalar(&self, var: Var) -> f32 {
        self.values[var.0].data[0]
    }

    /// Adds the gradient of `loss`, which is one number, with respect to every parameter to
    /// `parameter_gradients`.
    ///
    /// # Panics
    /// If `loss` is not one number, or there are not as many gradients as parameters.
    pub fn backward(self, loss: Var, parameter_gradients: &mut [f32]) {
        self.go_back(loss, None, parameter_gradients);
    }

    /// The gradient of `loss`, which is one number, with respect to a value that it was computed from.
    ///
    /// # Panics
    /// If `loss` is not one number.
    pub fn gradient_of(self, loss: Var, of: Var) -> Vec<f32> {
        let length = self.values[of.0].data.len();
        let mut unused = vec![0.0; self.parameters.values().len()];
        self.go_back(loss, Some(of), &mut unused).unwrap_or_else(|| vec![0.0; length])
    }

    /// Goes back to the first value, or to one whose gradient is returned.
    fn go_back(self, loss: Var, until: Option<Var>, parameter_gradients: &mut [f32]) -> Option<Vec<f32>> {
        assert_eq!(self.values[loss.0].data.len(), 1, "only a single number has a gradient");
        assert_eq!(parameter_gradients.len(), self.parameters.values().len());
        let mut gradients: Vec<Option<Vec<f32>>> = vec![None; self.values.len()];
        gradients[loss.0] = Some(vec![1.0]);
        for index in (0..=loss.0).rev() {
            if until == Some(Var(index)) {
                return gradients[index].take();
            }
            let (Some(operation), Some(gradient)) = (&self.operations[index], gradients[index].take()) else {
                continue;
            };
            operation.backward(
                &gradient,
                &mut Back {
                    values: &self.values,
                    is_wanted: &self.is_wanted,
                    gradients: &mut gradients,
                    parameters: self.parameters,
                    parameter_gradients,
                },
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::nn::ops::linear::{Activation, Linear};
    use crate::nn::ops::loss::norm;

    #[test]
    fn inference_computes_the_same_values_and_records_nothing() {
        let mut parameters = Parameters::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let layer = Linear::new(&mut parameters, "layer", [2, 3], Activation::Relu, &mut rng);
        let run = |mut tape: Tape<'_>| {
            let x = tape.input(Value::plain(vec![0.5, -1.0, 2.0, 0.25], 2));
            let out = layer.forward(&mut tape, x);
            let loss = norm(&mut tape, out, 1.0);
            let n_recorded = tape.operations.iter().flatten().count();
            let mut gradients = vec![0.0; parameters.values().len()];
            let value = tape.value(out).clone();
            tape.backward(loss, &mut gradients);
            (value, n_recorded, gradients)
        };
        let (trained, n_recorded, gradients) = run(Tape::new(&parameters));
        let (inferred, n_inferred, none) = run(Tape::for_inference(&parameters));
        assert_eq!((trained, n_recorded, n_inferred), (inferred, 2, 0));
        assert!(gradients.iter().any(|slope| *slope != 0.0) && none.iter().all(|slope| *slope == 0.0));
    }

    #[test]
    fn padded_samples_are_taken_out_as_they_were_put_in() {
        let samples: Vec<f32> = (0..12).map(|value| value as f32).collect();
        let value = Value::padded(&samples, 3, 2, 1);
        assert_eq!((value.data.len(), value.n_samples), ((1 + 2 * 4) * 2, 2));
        assert_eq!(value.samples(), samples);
    }
}
