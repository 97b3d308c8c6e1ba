//! The generator network: noise and a context through two residual layers.

use learn::nn::gemm::{Accumulate, View, multiply};
use learn::nn::ops::elementwise::{beside, leaky, scaled};
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::ops::norm::{BatchNorm, Moments};
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Var};
use rand::RngExt;
use rand_distr::StandardNormal;
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
}

/// The contexts of rows, of which most numbers are zero: indices and values, row after row.
#[derive(Debug, Clone, Default)]
pub struct Contexts {
    entries: Vec<(usize, f32)>,
    ends: Vec<usize>,
}

impl Contexts {
    pub fn push(&mut self, index: usize, value: f32) {
        self.entries.push((index, value));
    }

    pub fn end_row(&mut self) {
        self.ends.push(self.entries.len());
    }

    fn n_rows(&self) -> usize {
        self.ends.len()
    }

    fn rows(&self) -> impl Iterator<Item = &[(usize, f32)]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.entries[start..*end])
    }
}

/// A layer for sampling: batch normalisation is a part of its weights.
struct FusedLayer {
    /// Rows of inputs that are always present, then one row per number of the context.
    weight: Vec<f32>,
    bias: Vec<f32>,
    n_dense: usize,
}

impl FusedLayer {
    /// `out[n × outputs]` from the end of the rows of `x` and the contexts.
    fn compute(&self, x: View<'_>, contexts: &Contexts, out: &mut [f32]) {
        let width = self.bias.len();
        for (out, context) in out.chunks_exact_mut(width).zip(contexts.rows()) {
            out.copy_from_slice(&self.bias);
            for (index, value) in context {
                let first = (self.n_dense + index) * width;
                let weights = &self.weight[first..first + width];
                out.iter_mut().zip(weights).for_each(|(out, weight)| *out += value * weight);
            }
        }
        let weight = View::rows(&self.weight, width);
        multiply([contexts.n_rows(), width, self.n_dense], out, width, Accumulate::Add, x, weight);
    }
}

/// The generator network for sampling.
pub struct Sampler {
    layers: Vec<FusedLayer>,
    last: FusedLayer,
}

impl Sampler {
    pub fn new(network: &GeneratorNetwork, parameters: &Parameters) -> Self {
        let n_context = network.n_inputs - N_NOISE;
        let fused = |linear: &Linear, norm: Option<&BatchNorm>| {
            let mut weight = parameters.get(linear.weight).to_vec();
            let mut bias = parameters.get(linear.bias).to_vec();
            if let Some(norm) = norm {
                norm.apply(parameters, &mut bias);
                let factors = norm.factors(parameters);
                for row in weight.chunks_exact_mut(factors.len()) {
                    row.iter_mut().zip(&factors).for_each(|(weight, factor)| *weight *= factor);
                }
            }
            FusedLayer { weight, bias, n_dense: parameters.shape(linear.weight)[0] - n_context }
        };
        let layers = network.layers.iter().map(|(linear, norm)| fused(linear, Some(norm))).collect();
        Self { layers, last: fused(&network.last, None) }
    }

    /// The raw output for each context. Every layer writes its output in front of its input, so that the end of each row
    /// is the input of the next layer.
    pub fn generate(&self, contexts: &Contexts, rng: &mut Xoshiro256PlusPlus) -> Vec<f32> {
        let (n_rows, size) = (contexts.n_rows(), self.last.n_dense);
        let mut rows = vec![0.0; n_rows * size];
        let mut first = size - N_NOISE;
        for row in rows.chunks_exact_mut(size) {
            row[first..].fill_with(|| rng.sample(StandardNormal));
        }
        let mut out = Vec::new();
        for layer in &self.layers {
            let width = layer.bias.len();
            out.resize(n_rows * width, 0.0);
            layer.compute(View::rows(&rows[first..], size), contexts, &mut out);
            first -= width;
            for (row, out) in rows.chunks_exact_mut(size).zip(out.chunks_exact(width)) {
                row[first..first + width].iter_mut().zip(out).for_each(|(value, out)| *value = out.max(0.0));
            }
        }
        let mut output = vec![0.0; n_rows * self.last.bias.len()];
        self.last.compute(View::rows(&rows, size), contexts, &mut output);
        output
    }
}

#[cfg(test)]
mod tests {
    use learn::nn::tape::Value;
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn sampling_computes_what_training_does_with_running_statistics() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut parameters = Parameters::default();
        let network = GeneratorNetwork::new(&mut parameters, 5, 7, &mut rng);
        let mut contexts = Contexts::default();
        for row in 0..64 {
            contexts.push(row % 5, 1.0);
            contexts.push((row + 2) % 5, 0.5);
            contexts.end_row();
        }
        let seeded = || Xoshiro256PlusPlus::seed_from_u64(2);
        let mut noise = seeded();
        let mut input = Vec::new();
        for context in contexts.rows() {
            input.extend((0..N_NOISE).map(|_| noise.sample::<f32, _>(StandardNormal)));
            let mut dense = [0.0; 5];
            context.iter().for_each(|(index, value)| dense[*index] += value);
            input.extend(dense);
        }
        // The running statistics become those of the batch.
        let mut wanted = Vec::new();
        for _ in 0..300 {
            let moments = {
                let mut tape = Tape::new(&parameters);
                let input = tape.input(Value::plain(input.clone(), N_NOISE + 5));
                let (raw, moments) = network.forward(&mut tape, input);
                wanted.clone_from(&tape.value(raw).data);
                moments
            };
            network.update_statistics(&mut parameters, &moments, 1_000_000);
        }
        let found = Sampler::new(&network, &parameters).generate(&contexts, &mut seeded());
        assert!(found.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-2));
    }
}
