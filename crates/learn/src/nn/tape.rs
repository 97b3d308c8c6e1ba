//! Reverse-mode differentiation: a tape remembers what was computed, and goes back over it.
//!
//! A tape is used by one thread. Batches are split into shards that each have a tape of their own;
//! their gradients are added in a fixed order, so that results do not depend on the number of threads.

use super::parameters::{ParameterId, Parameters};

/// How the rows of a value stand for samples and steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A row a sample.
    Plain,
    /// Rows are steps of samples with rows of zeros before, between and after them, so that a
    /// convolution is a product with overlapping rows: `pad` zeros, then for each sample `n_steps` rows
    /// and `pad` zeros.
    Padded { n_steps: usize, pad: usize },
    /// A row a pixel, line by line, picture by picture.
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

/// A matrix that was computed, or given.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    pub data: Vec<f32>,
    pub n_samples: usize,
    pub n_columns: usize,
    pub layout: Layout,
}

impl Value {
    /// # Panics
    /// If the data are no whole rows.
    pub fn plain(data: Vec<f32>, n_columns: usize) -> Self {
        assert!(n_columns > 0 && data.len().is_multiple_of(n_columns), "the values are no whole rows");
        Self { n_samples: data.len() / n_columns, data, n_columns, layout: Layout::Plain }
    }

    /// Zeros in a layout.
    pub fn zeros(n_samples: usize, n_columns: usize, layout: Layout) -> Self {
        Self { data: vec![0.0; layout.n_rows(n_samples) * n_columns], n_samples, n_columns, layout }
    }

    /// Pictures one after the other.
    ///
    /// # Panics
    /// If the data are no whole pictures.
    pub fn pictures(data: Vec<f32>, height: usize, width: usize, n_columns: usize) -> Self {
        let size = height * width * n_columns;
        assert!(size > 0 && data.len().is_multiple_of(size), "the values are no whole pictures");
        Self { n_samples: data.len() / size, data, n_columns, layout: Layout::Image { height, width } }
    }

    /// Samples of `n_steps` steps each, given one after the other, with room for a convolution.
    pub fn padded(samples: &[f32], n_steps: usize, n_columns: usize, pad: usize) -> Self {
        let size = n_steps * n_columns;
        let mut value = Self::zeros(samples.len() / size, n_columns, Layout::Padded { n_steps, pad });
        for (index, sample) in samples.chunks_exact(size).enumerate() {
            let first = value.layout.row(index) * n_columns;
            value.data[first..first + size].copy_from_slice(sample);
        }
        value
    }
}

impl Value {
    /// The samples one after the other, without the rows between them.
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

/// What an operation has to know to go back.
pub trait Operation {
    /// Adds to the gradients of what went in, given the gradient of what came out.
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>);
}

/// What is at hand on the way back.
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

    /// Whether anybody asks for the gradient of a value.
    pub fn is_wanted(&self, var: Var) -> bool {
        self.is_wanted[var.0]
    }

    /// The gradient of a value so far, to be added to.
    pub fn gradient(&mut self, var: Var) -> &mut Vec<f32> {
        let length = self.values[var.0].data.len();
        self.gradients[var.0].get_or_insert_with(|| vec![0.0; length])
    }

    /// Gives a gradient that was computed as a whole.
    pub fn give(&mut self, var: Var, gradient: Vec<f32>) {
        match &mut self.gradients[var.0] {
            Some(known) => add(known, &gradient),
            none => *none = Some(gradient),
        }
    }

    /// A value beside the gradient of a parameter.
    pub fn value_and_parameter(&mut self, var: Var, id: ParameterId) -> (&Value, &mut [f32]) {
        (&self.values[var.0], &mut self.parameter_gradients[self.parameters.range(id)])
    }

    pub fn of_parameter(&mut self, id: ParameterId) -> &mut [f32] {
        &mut self.parameter_gradients[self.parameters.range(id)]
    }
}

pub fn add(sum: &mut [f32], more: &[f32]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// What was computed from parameters and inputs, in order.
pub struct Tape<'a> {
    pub parameters: &'a Parameters,
    values: Vec<Value>,
    operations: Vec<Option<Box<dyn Operation>>>,
    is_wanted: Vec<bool>,
}

impl<'a> Tape<'a> {
    pub fn new(parameters: &'a Parameters) -> Self {
        Self { parameters, values: Vec::new(), operations: Vec::new(), is_wanted: Vec::new() }
    }

    /// A value whose gradient nobody asks for.
    pub fn input(&mut self, value: Value) -> Var {
        self.put(value, None, false)
    }

    /// A value that was computed by an operation.
    pub fn push(&mut self, value: Value, operation: impl Operation + 'static) -> Var {
        self.put(value, Some(Box::new(operation)), true)
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

    /// What the next value will be known by, for operations that go back by what came out of them.
    pub(super) fn next(&self) -> Var {
        Var(self.values.len())
    }

    /// The single number of a loss.
    pub fn scalar(&self, var: Var) -> f32 {
        self.values[var.0].data[0]
    }

    /// Adds the gradient of `loss`, which is one number, by every parameter to `parameter_gradients`.
    ///
    /// # Panics
    /// If `loss` is not one number, or the gradients are not as many as the parameters.
    pub fn backward(self, loss: Var, parameter_gradients: &mut [f32]) {
        self.go_back(loss, None, parameter_gradients);
    }

    /// The gradient of `loss`, which is one number, by a value that it was computed from.
    ///
    /// # Panics
    /// If `loss` is not one number.
    pub fn gradient_of(self, loss: Var, of: Var) -> Vec<f32> {
        let length = self.values[of.0].data.len();
        let mut unused = vec![0.0; self.parameters.values().len()];
        self.go_back(loss, Some(of), &mut unused).unwrap_or_else(|| vec![0.0; length])
    }

    /// Goes back to the start, or to a value whose gradient is returned.
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
