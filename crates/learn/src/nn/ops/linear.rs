//! A fully connected layer: `x · w + b`, with or without a rectifier after it.

use crate::nn::gemm::{Accumulate, View, multiply};
use crate::nn::parameters::{ParameterId, Parameters};
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var, add};
use rand_xoshiro::Xoshiro256PlusPlus;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    None,
    Relu,
}

/// A layer: weights `[inputs × outputs]` and a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linear {
    pub weight: ParameterId,
    pub bias: ParameterId,
    pub activation: Activation,
}

impl Linear {
    pub fn new(
        parameters: &mut Parameters,
        name: &str,
        [n_inputs, n_outputs]: [usize; 2],
        activation: Activation,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let weight = parameters.add(format!("{name}.weight"), &[n_inputs, n_outputs], n_inputs, rng);
        let bias = parameters.add(format!("{name}.bias"), &[n_outputs], n_inputs, rng);
        Self { weight, bias, activation }
    }

    /// `out[n × outputs]` from `x[n × inputs]`.
    pub fn compute(&self, parameters: &Parameters, x: &[f32], out: &mut [f32]) {
        let [n_inputs, _] = self.shape(parameters);
        self.compute_from(parameters, View::rows(x, n_inputs), out);
    }

    /// The same, with inputs that may be a part of longer rows.
    pub fn compute_from(&self, parameters: &Parameters, x: View<'_>, out: &mut [f32]) {
        let [n_inputs, n_outputs] = self.shape(parameters);
        let weight = View::rows(parameters.get(self.weight), n_outputs);
        let shape = [out.len() / n_outputs, n_outputs, n_inputs];
        multiply(shape, out, n_outputs, Accumulate::Overwrite, x, weight);
        let bias = parameters.get(self.bias);
        for row in out.chunks_exact_mut(n_outputs) {
            match self.activation {
                Activation::None => add(row, bias),
                Activation::Relu => {
                    row.iter_mut().zip(bias).for_each(|(value, bias)| *value = (*value + bias).max(0.0));
                }
            }
        }
    }

    fn shape(&self, parameters: &Parameters) -> [usize; 2] {
        let shape = parameters.shape(self.weight);
        [shape[0], shape[1]]
    }

    /// # Panics
    /// If `x` does not have as many columns as the layer has inputs.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var) -> Var {
        let [n_inputs, n_outputs] = self.shape(tape.parameters);
        let input = tape.value(x);
        assert!(
            input.layout == Layout::Plain && input.n_columns == n_inputs,
            "the layer has another number of inputs"
        );
        let mut out = Value::zeros(input.n_samples, n_outputs, Layout::Plain);
        self.compute(tape.parameters, &input.data, &mut out.data);
        let next = tape.next();
        tape.push(out, LinearBack { layer: *self, x, out: next })
    }
}

struct LinearBack {
    layer: Linear,
    x: Var,
    out: Var,
}

impl Operation for LinearBack {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let [n_inputs, n_outputs] = self.layer.shape(back.parameters);
        let masked: Vec<f32>;
        let gradient = match self.layer.activation {
            Activation::None => gradient,
            Activation::Relu => {
                let pass = |(gradient, out): (&f32, &f32)| if *out > 0.0 { *gradient } else { 0.0 };
                // The output is above zero where the rectifier passed its input.
                masked = gradient.iter().zip(&back.value(self.out).data).map(pass).collect();
                &masked
            }
        };
        let n_rows = gradient.len() / n_outputs;
        let bias = back.of_parameter(self.layer.bias);
        gradient.chunks_exact(n_outputs).for_each(|row| add(bias, row));
        let rows = View::rows(gradient, n_outputs);
        let (input, weight) = back.value_and_parameter(self.x, self.layer.weight);
        let columns = View::transposed(&input.data, n_inputs);
        multiply([n_inputs, n_outputs, n_rows], weight, n_outputs, Accumulate::Add, columns, rows);
        if back.is_wanted(self.x) {
            let mut of_x = vec![0.0; n_rows * n_inputs];
            let weight = View::transposed(back.parameters.get(self.layer.weight), n_outputs);
            multiply([n_rows, n_inputs, n_outputs], &mut of_x, n_inputs, Accumulate::Overwrite, rows, weight);
            back.give(self.x, of_x);
        }
    }
}
