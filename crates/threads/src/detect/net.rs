//! The autoencoder of the seed: residual blocks of convolution and pooling down to an embedding, the
//! same back up, and a softmax over the four channels at each step; with a graph layer between, if wanted.

use std::ops::Range;

use learn::nn::ops::arithmetic::add;
use learn::nn::ops::block::{Block, Resize};
use learn::nn::ops::conv::Conv;
use learn::nn::ops::graph::Messages;
use learn::nn::ops::linear::{Activation, Linear};
use learn::nn::ops::sample::sample;
use learn::nn::ops::shape::{flatten, unflatten};
use learn::nn::ops::softmax::softmax;
use learn::nn::parameters::Parameters;
use learn::nn::tape::{Tape, Value, Var};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// The four rates, of which the last is what the others leave.
pub const N_RATES: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetConfig {
    /// Steps of a window.
    pub n_steps: usize,
    /// Channels of each block of the encoder; the decoder has them in the other order.
    pub widths: Vec<usize>,
    /// Steps that a convolution sees; odd.
    pub kernel: usize,
    pub n_hidden: usize,
    pub n_latent: usize,
    pub graph: Option<GraphConfig>,
    pub is_variational: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphConfig {
    pub n_hidden: usize,
    /// Whether a thread sends a message to itself.
    pub has_self: bool,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            n_steps: 100,
            widths: vec![32, 64, 64],
            kernel: 5,
            n_hidden: 128,
            n_latent: 16,
            graph: None,
            is_variational: false,
        }
    }
}

/// The layers, and what they have learnt.
#[derive(Debug, Clone)]
pub struct Net {
    pub config: NetConfig,
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
    /// Steps and channels after the last block of the encoder.
    narrow: [usize; 2],
    /// Steps before the first block, and after each.
    lengths: Vec<usize>,
}

/// `z' = z + f(z + Σ_j α_ij z_j)`
#[derive(Debug, Clone, Copy)]
struct GraphLayer {
    /// The first layer of α, on either end of a pair.
    from: Linear,
    to: Linear,
    messages: Messages,
    first: Linear,
    second: Linear,
}

impl Net {
    pub fn new(config: &NetConfig, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut parameters = Parameters::default();
        let p = &mut parameters;
        let mut lengths = vec![config.n_steps];
        let mut channels = vec![N_RATES - 1];
        let mut blocks = Vec::new();
        for (index, width) in config.widths.iter().enumerate() {
            let shape = [channels[index], *width];
            blocks.push(Block::new(
                p,
                &format!("encoder.{index}"),
                config.kernel,
                shape,
                Resize::Pool,
                &mut rng,
            ));
            lengths.push(Resize::Pool.n_steps(lengths[index]));
            channels.push(*width);
        }
        let narrow = [lengths[config.widths.len()], channels[config.widths.len()]];
        let size = narrow[0] * narrow[1];
        let mut linear =
            |name: &str, shape: [usize; 2], activation| Linear::new(p, name, shape, activation, &mut rng);
        let to_hidden = linear("encoder.hidden", [size, config.n_hidden], Activation::Relu);
        let to_latent = linear("encoder.latent", [config.n_hidden, config.n_latent], Activation::None);
        let to_log_variance = config
            .is_variational
            .then(|| linear("encoder.log_variance", [config.n_hidden, config.n_latent], Activation::None));
        let n_latent = config.n_latent;
        let graph = config.graph.as_ref().map(|graph| {
            let from = linear("graph.from", [n_latent, graph.n_hidden], Activation::None);
            let to = linear("graph.to", [n_latent, graph.n_hidden], Activation::None);
            let first = linear("graph.first", [n_latent, graph.n_hidden], Activation::Relu);
            let second = linear("graph.second", [graph.n_hidden, n_latent], Activation::None);
            (from, to, first, second, graph.clone())
        });
        let from_latent = linear("decoder.latent", [n_latent, config.n_hidden], Activation::Relu);
        let from_hidden = linear("decoder.hidden", [config.n_hidden, size], Activation::Relu);
        let graph = graph.map(|(from, to, first, second, graph)| {
            let messages = Messages::new(p, "graph.strength", graph.n_hidden, graph.has_self, &mut rng);
            GraphLayer { from, to, messages, first, second }
        });
        // What the encoder halved from is what the decoder doubles to; the last doubling is after the
        // last block, and before the convolution that ends in rates.
        let mut mirrored = Vec::new();
        for index in (1..config.widths.len()).rev() {
            let shape = [channels[index + 1], channels[index]];
            let resize = Resize::Repeat { n_steps: lengths[index - 1] };
            mirrored.push(Block::new(p, &format!("decoder.{index}"), config.kernel, shape, resize, &mut rng));
        }
        let to_rates = Conv::new(p, "decoder.rates", config.kernel, [channels[1], N_RATES], &mut rng);
        Self {
            config: config.clone(),
            parameters,
            blocks,
            to_hidden,
            to_latent,
            to_log_variance,
            graph,
            from_latent,
            from_hidden,
            mirrored,
            to_rates,
            narrow,
            lengths,
        }
    }
}

/// What the encoder makes of windows.
pub struct Encoded {
    pub latent: Var,
    pub log_variance: Option<Var>,
}

impl Net {
    /// Windows of user, system and iowait, step by step, as the network takes them.
    pub fn input(&self, windows: &[f32]) -> Value {
        Value::padded(windows, self.config.n_steps, N_RATES - 1, self.config.kernel / 2)
    }

    /// Windows of all four rates, as the network gives them.
    pub fn target(&self, windows: &[f32]) -> Value {
        Value::padded(windows, self.config.n_steps, N_RATES, self.config.kernel / 2)
    }

    /// Embeddings of windows, before any message.
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

    /// Rates of every step, from embeddings.
    pub fn decode(&self, tape: &mut Tape<'_>, z: Var) -> Var {
        let hidden = self.from_latent.forward(tape, z);
        let wide = self.from_hidden.forward(tape, hidden);
        let pad = self.config.kernel / 2;
        // What the last block of the encoder had before it pooled.
        let n_steps = self.lengths[self.lengths.len() - 2];
        let mut x = unflatten(tape, wide, self.narrow[1], n_steps, pad);
        for block in &self.mirrored {
            x = block.forward(tape, x);
        }
        let rates = self.to_rates.forward(tape, x);
        softmax(tape, rates)
    }

    /// A draw from what the encoder is uncertain about, or its mean where it is not.
    pub fn draw(&self, tape: &mut Tape<'_>, encoded: &Encoded, noise: Vec<f32>) -> Var {
        match encoded.log_variance {
            Some(log_variance) => sample(tape, encoded.latent, log_variance, noise),
            None => encoded.latent,
        }
    }
}
