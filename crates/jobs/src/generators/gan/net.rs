//! The generator network: noise and a context through two residual layers.

use learn::nn::gemm::View;
use learn::nn::ops::elementwise::{beside, leaky, scaled};
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::ops::norm::{BatchNorm, Moments};
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The size of the noise vector.
pub const N_NOISE: usize = 128;
const WIDTHS: [usize; 2] = [256, 256];

#[derive(Debug, Clone)]
pub struct GeneratorNetwork {
    layers: Vec<(Linear, BatchNorm)>,
    last: Linear,
    n_inputs: usize,
}

impl GeneratorNetwork {
    pub fn new(
        parameters: &mut Parameters,
        n_context: usize,
        n_out: usize,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let n_inputs = N_NOISE + n_context;
        let mut size = n_inputs;
        let mut layers = Vec::new();
        for (index, width) in WIDTHS.into_iter().enumerate() {
            let name = format!("generator.{index}");
            let linear = Linear::new(parameters, &name, [size, width], Activation::None, rng);
            layers.push((linear, BatchNorm::new(parameters, &format!("{name}.norm"), width, rng)));
            size += width;
        }
        let last = Linear::new(parameters, "generator.last", [size, n_out], Activation::None, rng);
        Self { layers, last, n_inputs }
    }

    /// The raw output, and the batch statistics of every layer. `input` is rows × (noise + context).
    pub fn forward(&self, tape: &mut Tape<'_>, input: Var) -> (Var, Vec<Moments>) {
        let mut x = input;
        let mut all = Vec::new();
        for (linear, norm) in &self.layers {
            let sums = linear.forward(tape, x);
            let (normal, moments) = norm.forward(tape, sums);
            let factors = leaky(&tape.value(normal).data, 0.0);
            let out = scaled(tape, normal, factors);
            x = beside(tape, out, x);
            all.push(moments);
        }
        (self.last.forward(tape, x), all)
    }

    /// Updates the running statistics of batch normalisation.
    pub fn update_statistics(&self, parameters: &mut Parameters, moments: &[Moments], n_rows: usize) {
        for ((_, norm), moments) in self.layers.iter().zip(moments) {
            norm.remember(parameters, moments, n_rows);
        }
    }

    /// The raw output without a tape. Every layer writes its output in front of its input, so that the end of each row is
    /// the input of the next layer.
    pub fn generate(&self, parameters: &Parameters, input: &[f32]) -> Vec<f32> {
        let n_rows = input.len() / self.n_inputs;
        let size = parameters.shape(self.last.weight)[0];
        let mut rows = vec![0.0; n_rows * size];
        let mut first = size - self.n_inputs;
        for (row, input) in rows.chunks_exact_mut(size).zip(input.chunks_exact(self.n_inputs)) {
            row[first..].copy_from_slice(input);
        }
        let mut out = Vec::new();
        for (linear, norm) in &self.layers {
            let width = parameters.shape(linear.bias)[0];
            out.resize(n_rows * width, 0.0);
            linear.compute_from(parameters, View::rows(&rows[first..], size), &mut out);
            norm.apply(parameters, &mut out);
            first -= width;
            for (row, out) in rows.chunks_exact_mut(size).zip(out.chunks_exact(width)) {
                for (value, out) in row[first..first + width].iter_mut().zip(out) {
                    *value = out.max(0.0);
                }
            }
        }
        let mut output = vec![0.0; n_rows * parameters.shape(self.last.bias)[0]];
        self.last.compute(parameters, &rows, &mut output);
        output
    }
}
