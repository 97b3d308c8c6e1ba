//! One round of message passing on complete graphs: `m_i = Σ_j α_ij z_j`, where `α_ij` is computed by a
//! small network from both nodes.
//!
//! `α_ij = w · relu(from_i + to_j) + b`. The first layer of that network on the pair `(z_i, z_j)` is the
//! sum of one layer on each node, so it is computed once per node, and pairs are never stored.

use std::ops::Range;

use crate::nn::parameters::{ParameterId, Parameters};
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The last layer of the network that computes `α`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages {
    pub weight: ParameterId,
    pub bias: ParameterId,
    /// Whether a node sends a message to itself.
    pub has_self: bool,
}

impl Messages {
    pub fn new(
        parameters: &mut Parameters,
        name: &str,
        n_hidden: usize,
        has_self: bool,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let weight = parameters.add(format!("{name}.weight"), &[n_hidden], n_hidden, rng);
        let bias = parameters.add(format!("{name}.bias"), &[1], n_hidden, rng);
        Self { weight, bias, has_self }
    }

    /// The message to every row of `z`. `from` and `to` also have one row per node; a graph is a range of
    /// rows.
    ///
    /// # Panics
    /// If their numbers of rows differ.
    pub fn forward(&self, tape: &mut Tape<'_>, z: Var, from: Var, to: Var, graphs: &[Range<usize>]) -> Var {
        let (nodes, ends, starts) = (tape.value(z), tape.value(from), tape.value(to));
        assert!(
            nodes.n_samples == ends.n_samples && nodes.n_samples == starts.n_samples,
            "the values have different numbers of rows"
        );
        let (weight, bias) = (tape.parameters.get(self.weight), tape.parameters.get(self.bias)[0]);
        let (n_hidden, size) = (weight.len(), nodes.n_columns);
        let mut out = Value::zeros(nodes.n_samples, size, Layout::Plain);
        let mut strengths = Vec::with_capacity(graphs.iter().map(|graph| graph.len() * graph.len()).sum());
        for graph in graphs {
            for i in graph.clone() {
                let end = &ends.data[i * n_hidden..(i + 1) * n_hidden];
                let message = &mut out.data[i * size..(i + 1) * size];
                for j in graph.clone() {
                    if i == j && !self.has_self {
                        strengths.push(0.0);
                        continue;
                    }
                    let start = &starts.data[j * n_hidden..(j + 1) * n_hidden];
                    let strength = bias + hidden(end, start, weight);
                    strengths.push(strength);
                    let node = &nodes.data[j * size..(j + 1) * size];
                    message.iter_mut().zip(node).for_each(|(message, node)| *message += strength * node);
                }
            }
        }
        let graphs = graphs.to_vec();
        tape.push(out, MessagesBack { messages: *self, z, from, to, graphs, strengths })
    }
}

/// `Σ w · relu(end + start)`
fn hidden(end: &[f32], start: &[f32], weight: &[f32]) -> f32 {
    end.iter().zip(start).zip(weight).map(|((end, start), weight)| (end + start).max(0.0) * weight).sum()
}

struct MessagesBack {
    messages: Messages,
    z: Var,
    from: Var,
    to: Var,
    graphs: Vec<Range<usize>>,
    /// `α_ij`, graph by graph.
    strengths: Vec<f32>,
}

impl Operation for MessagesBack {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let (nodes, ends, starts) = (back.value(self.z), back.value(self.from), back.value(self.to));
        let weight = back.parameters.get(self.messages.weight);
        let (n_hidden, size) = (weight.len(), nodes.n_columns);
        let mut of_z = vec![0.0; nodes.data.len()];
        let (mut of_from, mut of_to) = (vec![0.0; ends.data.len()], vec![0.0; starts.data.len()]);
        let (mut of_weight, mut of_bias) = (vec![0.0; n_hidden], 0.0);
        let mut strengths = self.strengths.iter();
        for graph in &self.graphs {
            for i in graph.clone() {
                let message = &gradient[i * size..(i + 1) * size];
                let end = &ends.data[i * n_hidden..(i + 1) * n_hidden];
                for j in graph.clone() {
                    let strength = strengths.next().copied().unwrap_or(0.0);
                    if i == j && !self.messages.has_self {
                        continue;
                    }
                    let node = &nodes.data[j * size..(j + 1) * size];
                    let of_strength: f32 = message.iter().zip(node).map(|(m, node)| m * node).sum();
                    of_z[j * size..(j + 1) * size]
                        .iter_mut()
                        .zip(message)
                        .for_each(|(z, m)| *z += strength * m);
                    of_bias += of_strength;
                    let start = &starts.data[j * n_hidden..(j + 1) * n_hidden];
                    let to = &mut of_to[j * n_hidden..(j + 1) * n_hidden];
                    let from = &mut of_from[i * n_hidden..(i + 1) * n_hidden];
                    for unit in 0..n_hidden {
                        let open = end[unit] + start[unit];
                        let slope = if open > 0.0 { of_strength * weight[unit] } else { 0.0 };
                        of_weight[unit] += of_strength * open.max(0.0);
                        from[unit] += slope;
                        to[unit] += slope;
                    }
                }
            }
        }
        crate::nn::tape::add(back.of_parameter(self.messages.weight), &of_weight);
        back.of_parameter(self.messages.bias)[0] += of_bias;
        back.give(self.z, of_z);
        back.give(self.from, of_from);
        back.give(self.to, of_to);
    }
}
