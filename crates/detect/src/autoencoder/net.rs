//! The network of the autoencoders: residual blocks of convolution and max pooling, an MLP to the embedding, the
//! mirrored decoder with upsampling, and a softmax over the four rates at each step. An optional graph layer between
//! encoder and decoder passes one message between windows.

use std::ops::Range;

use learn::artifact::Tensors;
use learn::artifact::restore::RestoreError;
use learn::nn::ops::arithmetic::add;
use learn::nn::ops::block::{Block, Resize};
use learn::nn::ops::conv::Conv;
use learn::nn::ops::graph::Messages;
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::ops::sample::sample;
use learn::nn::ops::shape::{flatten, unflatten};
use learn::nn::ops::softmax::softmax_and_sigmoid;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value, Var};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::channel::N_RATES;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetConfig {
    /// Channels of each encoder block; the decoder has them in reverse order.
    pub widths: Vec<usize>,
    /// Kernel size of the convolutions, in steps; odd.
    pub kernel: usize,
    pub n_hidden: usize,
    pub n_latent: usize,
    /// Hidden units of the graph layer.
    pub n_graph_hidden: usize,
}

/// The properties of a network that depend on the data and the kind of detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Steps per window.
    pub n_steps: usize,
    /// The four rates and any further channels.
    pub n_channels: usize,
    /// Whether windows of a graph exchange messages.
    pub has_graph: bool,
    /// Whether the encoder also estimates the variance of the embedding.
    pub is_variational: bool,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self { widths: vec![32, 64, 64], kernel: 5, n_hidden: 128, n_latent: 16, n_graph_hidden: 32 }
    }
}

/// The layers and their parameters.
#[derive(Debug, Clone)]
pub struct Net {
    pub shape: Shape,
    pub parameters: Parameters,
    blocks: Vec<Block>,
    to_hidden: Linear,
    to_latent: Linear,
    to_log_variance: Option<Linear>,
    graph: Option<GraphLayer>,
    from_latent: Linear,
    from_hidden: Linear,
    mirrored: Vec<Block>,
    to_rates: Conv,
    n_latent: usize,
    pad: usize,
    /// Steps and channels after the last block of the encoder.
    narrow: [usize; 2],
    /// Steps before the first block, and after each.
    lengths: Vec<usize>,
}

/// `z' = z + f(z + Σ_j α_ij z_j)`
#[derive(Debug, Clone, Copy)]
struct GraphLayer {
    /// The first layer of α, for each end of a pair.
    from: Linear,
    to: Linear,
    messages: Messages,
    first: Linear,
    second: Linear,
}

impl Net {
    /// A network with random parameters.
    pub fn new(config: &NetConfig, shape: Shape, seed: u64) -> Self {
        let mut parameters = Parameters::default();
        let net = Self::build(config, shape, &mut parameters, seed);
        Self { parameters, ..net }
    }

    /// A network whose parameters are stored.
    pub fn restore(config: &NetConfig, shape: Shape, tensors: &Tensors) -> Result<Self, RestoreError> {
        let (net, parameters) = Parameters::restore(tensors, |p| Self::build(config, shape, p, 0))?;
        Ok(Self { parameters, ..net })
    }

    /// The number of parameters of such a network.
    pub fn n_parameters(config: &NetConfig, shape: Shape) -> usize {
        Parameters::count(|p| Self::build(config, shape, p, 0))
    }

    /// The layers; their parameters are added to `p`.
    fn build(config: &NetConfig, shape: Shape, p: &mut Parameters, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut lengths = vec![shape.n_steps];
        let mut channels = vec![shape.n_channels - 1];
        let mut blocks = Vec::new();
        for (index, width) in config.widths.iter().enumerate() {
            let (name, widths) = (format!("encoder.{index}"), [channels[index], *width]);
            blocks.push(Block::new(p, &name, config.kernel, widths, Resize::Pool, &mut rng));
            lengths.push(Resize::Pool.n_steps(lengths[index]));
            channels.push(*width);
        }
        let narrow = [lengths[config.widths.len()], channels[config.widths.len()]];
        let size = narrow[0] * narrow[1];
        let mut linear =
            |name: &str, shape: [usize; 2], activation| Linear::new(p, name, shape, activation, &mut rng);
        let to_hidden = linear("encoder.hidden", [size, config.n_hidden], Activation::Relu);
        let to_latent = linear("encoder.latent", [config.n_hidden, config.n_latent], Activation::None);
        let to_log_variance = shape
            .is_variational
            .then(|| linear("encoder.log_variance", [config.n_hidden, config.n_latent], Activation::None));
        let n_latent = config.n_latent;
        let n_graph = config.n_graph_hidden;
        let graph = shape.has_graph.then(|| {
            let from = linear("graph.from", [n_latent, n_graph], Activation::None);
            let to = linear("graph.to", [n_latent, n_graph], Activation::None);
            let first = linear("graph.first", [n_latent, n_graph], Activation::Relu);
            let second = linear("graph.second", [n_graph, n_latent], Activation::None);
            (from, to, first, second)
        });
        let from_latent = linear("decoder.latent", [n_latent, config.n_hidden], Activation::Relu);
        let from_hidden = linear("decoder.hidden", [config.n_hidden, size], Activation::Relu);
        let graph = graph.map(|(from, to, first, second)| {
            // A thread's own embedding is in the sum already, so it sends itself no message.
            let messages = Messages::new(p, "graph.strength", n_graph, false, &mut rng);
            // It begins by changing nothing: messages of many threads at random would drown what each one is.
            p.fill(second.weight, 0.0);
            p.fill(second.bias, 0.0);
            GraphLayer { from, to, messages, first, second }
        });
        // What the encoder halved from is what the decoder doubles to; the last doubling is after the
        // last block, and before the convolution that ends in rates.
        let mut mirrored = Vec::new();
        for index in (1..config.widths.len()).rev() {
            let (name, widths) = (format!("decoder.{index}"), [channels[index + 1], channels[index]]);
            let resize = Resize::Repeat { n_steps: lengths[index - 1] };
            mirrored.push(Block::new(p, &name, config.kernel, widths, resize, &mut rng));
        }
        let to_rates =
            Conv::new(p, "decoder.rates", config.kernel, [channels[1], shape.n_channels], &mut rng);
        Self {
            shape,
            parameters: Parameters::default(),
            blocks,
            to_hidden,
            to_latent,
            to_log_variance,
            graph,
            from_latent,
            from_hidden,
            mirrored,
            to_rates,
            n_latent: config.n_latent,
            pad: config.kernel / 2,
            narrow,
            lengths,
        }
    }
}

/// The output of the encoder.
pub struct Encoded {
    pub latent: Var,
    pub log_variance: Option<Var>,
}

/// Windows per forward pass when scoring: few enough to stay in the cache.
const CHUNK: usize = 32;
/// The standard deviation of the noise added to embeddings during training. Differences smaller than the noise are not
/// encoded, so windows of one kind lie close together.
const EMBEDDING_NOISE: f32 = 0.5;

impl Net {
    pub fn n_latent(&self) -> usize {
        self.n_latent
    }

    /// Values per window.
    pub fn size(&self) -> usize {
        self.shape.n_steps * self.shape.n_channels
    }

    /// The input of the network: windows without `other`.
    pub fn input(&self, windows: &[f32]) -> Value {
        let n_channels = self.shape.n_channels;
        let mut seen = Vec::with_capacity(windows.len() / n_channels * (n_channels - 1));
        for step in windows.chunks_exact(n_channels) {
            seen.extend_from_slice(&step[..N_RATES - 1]);
            seen.extend_from_slice(&step[N_RATES..]);
        }
        Value::padded(&seen, self.shape.n_steps, n_channels - 1, self.pad)
    }

    /// The target of the network: windows with all channels.
    pub fn target(&self, windows: &[f32]) -> Value {
        Value::padded(windows, self.shape.n_steps, self.shape.n_channels, self.pad)
    }

    /// Embeddings before the message pass.
    pub fn encode(&self, tape: &mut Tape<'_>, input: Value) -> Encoded {
        let mut x = tape.input(input);
        for block in &self.blocks {
            x = block.forward(tape, x);
        }
        let flat = flatten(tape, x);
        let hidden = self.to_hidden.forward(tape, flat);
        let latent = self.to_latent.forward(tape, hidden);
        let log_variance = self.to_log_variance.map(|layer| layer.forward(tape, hidden));
        Encoded { latent, log_variance }
    }

    /// Embeddings after one message from every other window of the same graph.
    pub fn exchange(&self, tape: &mut Tape<'_>, z: Var, graphs: &[Range<usize>]) -> Var {
        let Some(layer) = &self.graph else { return z };
        let (from, to) = (layer.from.forward(tape, z), layer.to.forward(tape, z));
        let received = layer.messages.forward(tape, z, from, to, graphs);
        let known = add(tape, z, received);
        let hidden = layer.first.forward(tape, known);
        let change = layer.second.forward(tape, hidden);
        add(tape, z, change)
    }

    /// All channels of each step, decoded from embeddings.
    pub fn decode(&self, tape: &mut Tape<'_>, z: Var) -> Var {
        let hidden = self.from_latent.forward(tape, z);
        let wide = self.from_hidden.forward(tape, hidden);
        // What the last block of the encoder had before it pooled.
        let n_steps = self.lengths[self.lengths.len() - 2];
        let mut x = unflatten(tape, wide, self.narrow[1], n_steps, self.pad);
        for block in &self.mirrored {
            x = block.forward(tape, x);
        }
        let out = self.to_rates.forward(tape, x);
        softmax_and_sigmoid(tape, out, N_RATES)
    }

    /// Embeddings as the decoder sees them during training: sampled from the encoder's distribution, or with
    /// fixed noise.
    pub fn draw(&self, tape: &mut Tape<'_>, encoded: &Encoded, noise: Vec<f32>) -> Var {
        match encoded.log_variance {
            Some(log_variance) => sample(tape, encoded.latent, log_variance, noise),
            None => {
                let noise = noise.into_iter().map(|one| EMBEDDING_NOISE * one).collect();
                let noise = tape.input(Value::plain(noise, self.n_latent));
                add(tape, encoded.latent, noise)
            }
        }
    }

    /// Embeddings of windows, and their log variances if the network is variational.
    pub fn embed(&self, windows: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let chunks: Vec<(Vec<f32>, Vec<f32>)> = windows
            .par_chunks(CHUNK * self.size())
            .map(|chunk| {
                let mut tape = Tape::for_inference(&self.parameters);
                let encoded = self.encode(&mut tape, self.input(chunk));
                let logs = encoded.log_variance.map(|logs| tape.value(logs).data.clone());
                (tape.into_value(encoded.latent).data, logs.unwrap_or_default())
            })
            .collect();
        let (latents, logs): (Vec<_>, Vec<_>) = chunks.into_iter().unzip();
        (latents.concat(), logs.concat())
    }

    /// Embeddings after the message pass within each graph.
    pub fn exchanged(&self, latents: Vec<f32>, graphs: &[Range<usize>]) -> Vec<f32> {
        if self.graph.is_none() || latents.is_empty() {
            return latents;
        }
        let mut tape = Tape::for_inference(&self.parameters);
        let z = tape.input(Value::plain(latents, self.n_latent));
        let z = self.exchange(&mut tape, z, graphs);
        tape.into_value(z).data
    }

    /// The windows reconstructed from embeddings.
    pub fn reconstruct(&self, latents: &[f32]) -> Vec<f32> {
        let chunks: Vec<Vec<f32>> = latents
            .par_chunks(CHUNK * self.n_latent)
            .map(|chunk| {
                let mut tape = Tape::for_inference(&self.parameters);
                let z = tape.input(Value::plain(chunk.to_vec(), self.n_latent));
                let out = self.decode(&mut tape, z);
                tape.value(out).samples()
            })
            .collect();
        chunks.concat()
    }
}
