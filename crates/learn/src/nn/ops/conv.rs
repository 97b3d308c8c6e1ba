//! A convolution over steps, channels last, with as many steps as its input. It is one matrix product,
//! because in the padded layout a window of steps is a row that overlaps the next.

use crate::nn::gemm::{Accumulate, View, multiply};
use crate::nn::parameters::{ParameterId, Parameters};
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var, add};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Weights `[width · inputs × outputs]` and a bias; the width is odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv {
    pub weight: ParameterId,
    pub bias: ParameterId,
    pub width: usize,
    pub n_inputs: usize,
    pub n_outputs: usize,
}

impl Conv {
    pub fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
        [n_inputs, n_outputs]: [usize; 2],
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let fan_in = width * n_inputs;
        let weight = parameters.add(format!("{name}.weight"), &[width, n_inputs, n_outputs], fan_in, rng);
        let bias = parameters.add(format!("{name}.bias"), &[n_outputs], fan_in, rng);
        Self { weight, bias, width, n_inputs, n_outputs }
    }

    pub fn pad(&self) -> usize {
        self.width / 2
    }

    /// Rows from the first step of the first sample to the last step of the last, padding included.
    pub(super) fn n_rows(&self, n_samples: usize, n_steps: usize) -> usize {
        n_samples * (n_steps + self.pad()) - self.pad()
    }

    /// The convolution without its bias. The padding between samples gets meaningless numbers.
    pub(super) fn compute(&self, parameters: &Parameters, n_rows: usize, x: &[f32], out: &mut [f32]) {
        let Self { width, n_inputs, n_outputs, .. } = *self;
        let weight = View::rows(parameters.get(self.weight), n_outputs);
        let shape = [n_rows, n_outputs, width * n_inputs];
        let from = self.pad() * n_outputs;
        multiply(shape, &mut out[from..], n_outputs, Accumulate::Overwrite, View::rows(x, n_inputs), weight);
    }

    /// Adds the gradient of the weights. The padding of `gradient` has to be zero.
    pub(super) fn add_weight_gradient(&self, n_rows: usize, x: &[f32], gradient: &[f32], weight: &mut [f32]) {
        let Self { width, n_inputs, n_outputs, .. } = *self;
        let shape = [width * n_inputs, n_outputs, n_rows];
        let rows = View::rows(&gradient[self.pad() * n_outputs..], n_outputs);
        multiply(shape, weight, n_outputs, Accumulate::Add, View::transposed(x, n_inputs), rows);
    }

    /// The gradient of the input: a convolution with the reversed weights.
    pub(super) fn input_gradient(&self, n_rows: usize, gradient: &[f32], reversed: &[f32], of_x: &mut [f32]) {
        let Self { width, n_inputs, n_outputs, .. } = *self;
        let shape = [n_rows, n_inputs, width * n_outputs];
        let from = self.pad() * n_inputs;
        let rows = View::rows(gradient, n_outputs);
        multiply(
            shape,
            &mut of_x[from..],
            n_inputs,
            Accumulate::Overwrite,
            rows,
            View::rows(reversed, n_inputs),
        );
    }

    /// Weights for the backward pass: steps reversed, inputs and outputs exchanged.
    pub(super) fn reversed(&self, parameters: &Parameters) -> Vec<f32> {
        let Self { width, n_inputs, n_outputs, .. } = *self;
        let weight = parameters.get(self.weight);
        let mut reversed = vec![0.0; weight.len()];
        for step in 0..width {
            for input in 0..n_inputs {
                let row = &weight[((width - 1 - step) * n_inputs + input) * n_outputs..][..n_outputs];
                for (output, value) in row.iter().enumerate() {
                    reversed[(step * n_outputs + output) * n_inputs + input] = *value;
                }
            }
        }
        reversed
    }

    /// # Panics
    /// If `x` has other channels, or not the padding for this kernel.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var) -> Var {
        let input = tape.value(x);
        let n_steps = self.n_steps(input);
        let n_rows = self.n_rows(input.n_samples, n_steps);
        let mut out = Value::zeros(input.n_samples, self.n_outputs, input.layout);
        self.compute(tape.parameters, n_rows, &input.data, &mut out.data);
        let bias = tape.parameters.get(self.bias);
        let size = n_steps * self.n_outputs;
        let between = self.pad() * self.n_outputs;
        out.data[..between].fill(0.0);
        for sample in 0..out.n_samples {
            let first = out.layout.row(sample) * self.n_outputs;
            out.data[first..first + size].chunks_exact_mut(self.n_outputs).for_each(|row| add(row, bias));
            out.data[first + size..first + size + between].fill(0.0);
        }
        tape.push(out, ConvBack { conv: *self, x })
    }

    pub(super) fn n_steps(&self, input: &Value) -> usize {
        match input.layout {
            Layout::Padded { n_steps, pad } if pad == self.pad() && input.n_columns == self.n_inputs => {
                n_steps
            }
            _ => panic!("the convolution has another number of inputs or another padding"),
        }
    }
}

struct ConvBack {
    conv: Conv,
    x: Var,
}

impl Operation for ConvBack {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let conv = &self.conv;
        let (layout, n_samples) = (back.value(self.x).layout, back.value(self.x).n_samples);
        let n_steps = conv.n_steps(back.value(self.x));
        let n_rows = conv.n_rows(n_samples, n_steps);
        // The next operation may have written into the padding of the gradient.
        let mut clean = vec![0.0; gradient.len()];
        let size = n_steps * conv.n_outputs;
        for sample in 0..n_samples {
            let first = layout.row(sample) * conv.n_outputs;
            clean[first..first + size].copy_from_slice(&gradient[first..first + size]);
        }
        let bias = back.of_parameter(conv.bias);
        clean.chunks_exact(conv.n_outputs).for_each(|row| add(bias, row));
        let (values, weight) = back.value_and_parameter(self.x, conv.weight);
        conv.add_weight_gradient(n_rows, &values.data, &clean, weight);
        if back.is_wanted(self.x) {
            let reversed = conv.reversed(back.parameters);
            let mut of_x = vec![0.0; back.value(self.x).data.len()];
            conv.input_gradient(n_rows, &clean, &reversed, &mut of_x);
            back.give(self.x, of_x);
        }
    }
}
