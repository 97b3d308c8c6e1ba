//! The critic of a Wasserstein GAN (Arjovsky et al., 2017): a perceptron with leaky rectifiers and dropout,
//! and the exact penalty on the norm of its gradient (Gulrajani et al., 2017).
//!
//! The critic is piecewise linear. Around an input, its rectifiers and its dropout are constant factors,
//! and its gradient with respect to the input is a product of weights and factors:
//! `w₃ · F₂ W₂ᵀ · F₁ W₁ᵀ`. That product is itself a pass through linear layers, so the penalty on it is
//! differentiated like any other loss.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::gemm::{Accumulate, View, multiply};
use super::ops::elementwise::{leaky, scaled};
use super::ops::linear::{Activation, Linear};
use super::ops::loss::known;
use super::parameters::{ParameterId, Parameters};
use super::tape::{Back, Layout, Operation, Tape, Value, Var, add};

const SLOPE: f32 = 0.2;

#[derive(Debug, Clone)]
pub struct Critic {
    layers: Vec<Linear>,
    last: Linear,
    dropout: f32,
}

/// The factors of the rectifiers and the dropout of every layer, for some inputs.
pub type Factors = Vec<Vec<f32>>;

impl Critic {
    pub fn new(
        parameters: &mut Parameters,
        n_inputs: usize,
        widths: &[usize],
        dropout: f32,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let mut size = n_inputs;
        let mut layers = Vec::new();
        for (index, width) in widths.iter().enumerate() {
            let name = format!("critic.{index}");
            layers.push(Linear::new(parameters, &name, [size, *width], Activation::None, rng));
            size = *width;
        }
        let last = Linear::new(parameters, "critic.last", [size, 1], Activation::None, rng);
        Self { layers, last, dropout }
    }

    /// The critic's score of each input, and the factors that were in effect.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var, rng: &mut Xoshiro256PlusPlus) -> (Var, Factors) {
        let mut all = Vec::new();
        let mut hidden = x;
        for layer in &self.layers {
            let sums = layer.forward(tape, hidden);
            let factors = self.factors(&tape.value(sums).data, rng);
            hidden = scaled(tape, sums, factors.clone());
            all.push(factors);
        }
        (self.last.forward(tape, hidden), all)
    }

    fn factors(&self, sums: &[f32], rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let mut factors = leaky(sums, SLOPE);
        if self.dropout > 0.0 {
            let kept = 1.0 / (1.0 - self.dropout);
            for factor in &mut factors {
                *factor *= if rng.random::<f32>() < self.dropout { 0.0 } else { kept };
            }
        }
        factors
    }

    /// The gradient of each score with respect to its input, for given factors.
    pub fn gradient(&self, tape: &mut Tape<'_>, factors: &Factors) -> Var {
        let n_rows = factors[0].len() / tape.parameters.shape(self.layers[0].weight)[1];
        let mut gradient = repeated(tape, self.last.weight, n_rows);
        for (layer, factors) in self.layers.iter().zip(factors).rev() {
            let passed = scaled(tape, gradient, factors.clone());
            gradient = transposed(tape, layer.weight, passed);
        }
        gradient
    }

    /// Scores of inputs and their gradients with respect to them, as plain numbers.
    pub fn look(
        &self,
        parameters: &Parameters,
        x: Value,
        rng: &mut Xoshiro256PlusPlus,
    ) -> (Vec<f32>, Vec<f32>) {
        let mut tape = Tape::for_inference(parameters);
        let x = tape.input(x);
        let (scores, factors) = self.forward(&mut tape, x, rng);
        let gradient = self.gradient(&mut tape, &factors);
        (tape.value(scores).data.clone(), tape.value(gradient).data.clone())
    }
}

/// The mean of `(norm of the gradient − 1)²` over rows, times `weight`.
pub fn length_penalty(tape: &mut Tape<'_>, gradient: Var, weight: f32) -> Var {
    let value = tape.value(gradient);
    let n_rows = value.n_samples as f32;
    let mut sum = 0.0f64;
    let mut slopes = Vec::with_capacity(value.data.len());
    for row in value.data.chunks_exact(value.n_columns) {
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        sum += f64::from((length - 1.0).powi(2));
        let slope = 2.0 * (length - 1.0) / length.max(1e-12) * weight / n_rows;
        slopes.extend(row.iter().map(|value| slope * value));
    }
    known(tape, gradient, sum * f64::from(weight / n_rows), slopes)
}

/// A matrix whose rows all are a parameter.
fn repeated(tape: &mut Tape<'_>, parameter: ParameterId, n_rows: usize) -> Var {
    let row = tape.parameters.get(parameter);
    let value = Value::plain(row.repeat(n_rows), row.len());
    tape.push(value, Repeated { parameter })
}

struct Repeated {
    parameter: ParameterId,
}

impl Operation for Repeated {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let sum = back.of_parameter(self.parameter);
        let size = sum.len();
        gradient.chunks_exact(size).for_each(|row| add(sum, row));
    }
}

/// `x · wᵀ`: the backward pass of a linear layer, as a forward operation.
fn transposed(tape: &mut Tape<'_>, weight: ParameterId, x: Var) -> Var {
    let shape = tape.parameters.shape(weight);
    let (n_inputs, n_outputs) = (shape[0], shape[1]);
    let value = tape.value(x);
    let n_rows = value.n_samples;
    let mut out = Value::zeros(n_rows, n_inputs, Layout::Plain);
    let across = View::transposed(tape.parameters.get(weight), n_outputs);
    let rows = View::rows(&value.data, n_outputs);
    multiply([n_rows, n_inputs, n_outputs], &mut out.data, n_inputs, Accumulate::Overwrite, rows, across);
    tape.push(out, Transposed { weight, x, shape: [n_inputs, n_outputs] })
}

struct Transposed {
    weight: ParameterId,
    x: Var,
    shape: [usize; 2],
}

impl Operation for Transposed {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let [n_inputs, n_outputs] = self.shape;
        let n_rows = gradient.len() / n_inputs;
        let columns = View::transposed(gradient, n_inputs);
        let (input, weight) = back.value_and_parameter(self.x, self.weight);
        let rows = View::rows(&input.data, n_outputs);
        multiply([n_inputs, n_outputs, n_rows], weight, n_outputs, Accumulate::Add, columns, rows);
        let mut of_x = vec![0.0; n_rows * n_outputs];
        let across = View::rows(back.parameters.get(self.weight), n_outputs);
        let rows = View::rows(gradient, n_inputs);
        multiply([n_rows, n_outputs, n_inputs], &mut of_x, n_outputs, Accumulate::Overwrite, rows, across);
        back.give(self.x, of_x);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::gradient_check::assert_gradients;
    use super::super::ops::elementwise::weighted_sum;
    use super::*;

    fn rng() -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(4)
    }

    fn numbers(count: usize) -> Vec<f32> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    #[test]
    fn the_gradient_by_the_input_is_that_of_finite_differences() {
        let mut parameters = Parameters::default();
        let critic = Critic::new(&mut parameters, 4, &[8, 6], 0.5, &mut rng());
        let x = numbers(3 * 4);
        let (_, gradient) = critic.look(&parameters, Value::plain(x.clone(), 4), &mut rng());
        for at in 0..x.len() {
            let moved = |by: f32| {
                let mut x = x.clone();
                x[at] += by;
                critic.look(&parameters, Value::plain(x, 4), &mut rng()).0[at / 4]
            };
            let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
            assert!((slope - gradient[at]).abs() < 1e-3, "{at}: {slope} {}", gradient[at]);
        }
    }

    #[test]
    fn the_penalty_is_differentiated_by_every_weight() {
        let mut parameters = Parameters::default();
        let critic = Critic::new(&mut parameters, 4, &[8, 6], 0.0, &mut rng());
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(5 * 4), 4));
            let (scores, factors) = critic.forward(tape, x, &mut rng());
            let gradient = critic.gradient(tape, &factors);
            let penalty = length_penalty(tape, gradient, 10.0);
            let mean = weighted_sum(tape, scores, vec![0.2; 5]);
            super::super::ops::arithmetic::add(tape, mean, penalty)
        });
    }

    #[derive(serde::Deserialize)]
    struct Recorded {
        widths: Vec<usize>,
        n_inputs: usize,
        penalty_weight: f32,
        x: Vec<f32>,
        scores: Vec<f32>,
        gradient: Vec<f32>,
        penalty: f32,
        weights: std::collections::BTreeMap<String, RecordedWeight>,
        slopes: std::collections::BTreeMap<String, Vec<f32>>,
    }

    #[derive(serde::Deserialize)]
    struct RecordedWeight {
        shape: Vec<usize>,
        values: Vec<f32>,
    }

    /// `fixtures/torch/critic.py` made the numbers: PyTorch differentiates twice.
    #[test]
    fn the_penalty_and_its_slopes_are_those_of_pytorch() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/torch/critic.json");
        let recorded: Recorded = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut parameters = Parameters::default();
        let critic = Critic::new(&mut parameters, recorded.n_inputs, &recorded.widths, 0.0, &mut rng());
        let tensors = recorded
            .weights
            .into_iter()
            .map(|(name, weight)| (name, crate::artifact::Tensor::new(weight.shape, weight.values)));
        parameters.load(&tensors.collect()).unwrap();
        let near = |found: &[f32], wanted: &[f32]| {
            assert_eq!(found.len(), wanted.len());
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {wanted:?}");
        };
        let mut tape = Tape::new(&parameters);
        let n_rows = recorded.scores.len();
        let x = tape.input(Value::plain(recorded.x, recorded.n_inputs));
        let (scores, factors) = critic.forward(&mut tape, x, &mut rng());
        near(&tape.value(scores).data, &recorded.scores);
        let gradient = critic.gradient(&mut tape, &factors);
        near(&tape.value(gradient).data, &recorded.gradient);
        let penalty = length_penalty(&mut tape, gradient, recorded.penalty_weight);
        near(&tape.value(penalty).data, &[recorded.penalty]);
        let mean = weighted_sum(&mut tape, scores, vec![1.0 / n_rows as f32; n_rows]);
        let loss = super::super::ops::arithmetic::add(&mut tape, mean, penalty);
        let mut slopes = vec![0.0; parameters.values().len()];
        tape.backward(loss, &mut slopes);
        let mut at = 0;
        for (name, _, values) in parameters.iter() {
            near(&slopes[at..at + values.len()], &recorded.slopes[name]);
            at += values.len();
        }
    }
}
