//! The residual block of the autoencoders: `relu(conv(x)) + x · w`, then half or twice as many steps. One
//! fused operation, because separate ones would spend most of their time moving memory.

use super::conv::Conv;
use crate::nn::gemm::{Accumulate, View, multiply};
use crate::nn::parameters::{ParameterId, Parameters};
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var, add};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How the number of steps changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// The maximum of each pair; the last of an odd number is dropped.
    Pool,
    /// Each step twice, up to this many; the last is repeated if that is not enough.
    Repeat { n_steps: usize },
}

impl Resize {
    pub fn n_steps(self, before: usize) -> usize {
        match self {
            Self::Pool => before / 2,
            Self::Repeat { n_steps } => n_steps,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub conv: Conv,
    /// The weights of the shortcut, `[inputs × outputs]`.
    pub past: ParameterId,
    pub past_bias: ParameterId,
    pub resize: Resize,
}

impl Block {
    pub fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
        channels: [usize; 2],
        resize: Resize,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let conv = Conv::new(parameters, &format!("{name}.conv"), width, channels, rng);
        let past = parameters.add(format!("{name}.past.weight"), &channels, channels[0], rng);
        let past_bias = parameters.add(format!("{name}.past.bias"), &channels[1..], channels[0], rng);
        Self { conv, past, past_bias, resize }
    }

    /// # Panics
    /// If `x` has other channels, or not the padding for this kernel.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var) -> Var {
        let input = tape.value(x);
        let (n_steps, n_samples) = (self.conv.n_steps(input), input.n_samples);
        let layout = Layout::Padded { n_steps: self.resize.n_steps(n_steps), pad: self.conv.pad() };
        let mut out = Value::zeros(n_samples, self.conv.n_outputs, layout);
        let mut kept = Kept::new(input.layout.n_rows(n_samples) * self.conv.n_outputs);
        self.compute(tape.parameters, input, &mut kept, &mut out);
        tape.push(out, BlockBack { block: *self, x, kept })
    }

    /// Computes into `out`, whose padding is zero and stays so.
    pub(crate) fn compute(&self, parameters: &Parameters, input: &Value, kept: &mut Kept, out: &mut Value) {
        let Conv { n_inputs, n_outputs, .. } = self.conv;
        let (n_steps, n_samples) = (self.conv.n_steps(input), input.n_samples);
        let n_rows = self.conv.n_rows(n_samples, n_steps);
        let pad = self.conv.pad();
        self.conv.compute(parameters, n_rows, &input.data, &mut kept.convolved);
        let (rows, weight) = (
            View::rows(&input.data[pad * n_inputs..], n_inputs),
            View::rows(parameters.get(self.past), n_outputs),
        );
        multiply(
            [n_rows, n_outputs, n_inputs],
            &mut kept.passed[pad * n_outputs..],
            n_outputs,
            Accumulate::Overwrite,
            rows,
            weight,
        );
        let (bias, past_bias) = (parameters.get(self.conv.bias), parameters.get(self.past_bias));
        for sample in 0..n_samples {
            let from = input.layout.row(sample) * n_outputs;
            let convolved = &kept.convolved[from..from + n_steps * n_outputs];
            let passed = &kept.passed[from..from + n_steps * n_outputs];
            let to = out.layout.row(sample) * n_outputs;
            match self.resize {
                Resize::Pool => {
                    let rows = out.data[to..].chunks_exact_mut(n_outputs).take(n_steps / 2);
                    for (out, (convolved, passed)) in rows
                        .zip(convolved.chunks_exact(2 * n_outputs).zip(passed.chunks_exact(2 * n_outputs)))
                    {
                        let ((c0, c1), (p0, p1)) =
                            (convolved.split_at(n_outputs), passed.split_at(n_outputs));
                        for channel in 0..n_outputs {
                            let first = (c0[channel] + bias[channel]).max(0.0) + p0[channel];
                            let second = (c1[channel] + bias[channel]).max(0.0) + p1[channel];
                            out[channel] = first.max(second) + past_bias[channel];
                        }
                    }
                }
                Resize::Repeat { n_steps: n_out } => {
                    let rows = &mut out.data[to..to + n_out * n_outputs];
                    for (step, out) in rows.chunks_exact_mut(n_outputs).enumerate() {
                        let from = (step / 2).min(n_steps - 1) * n_outputs;
                        let (convolved, passed) =
                            (&convolved[from..from + n_outputs], &passed[from..from + n_outputs]);
                        for channel in 0..n_outputs {
                            out[channel] = (convolved[channel] + bias[channel]).max(0.0)
                                + passed[channel]
                                + past_bias[channel];
                        }
                    }
                }
            }
        }
    }
}

/// What the backward pass needs of the forward pass.
#[derive(Debug)]
pub(crate) struct Kept {
    convolved: Vec<f32>,
    passed: Vec<f32>,
}

impl Kept {
    pub fn new(length: usize) -> Self {
        Self { convolved: vec![0.0; length], passed: vec![0.0; length] }
    }
}

struct BlockBack {
    block: Block,
    x: Var,
    kept: Kept,
}

impl Operation for BlockBack {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let block = &self.block;
        let Conv { n_inputs, n_outputs, .. } = block.conv;
        let input = back.value(self.x);
        let (n_steps, n_samples, layout) = (block.conv.n_steps(input), input.n_samples, input.layout);
        let (pad, n_rows) = (block.conv.pad(), block.conv.n_rows(n_samples, n_steps));
        let out_layout = Layout::Padded { n_steps: block.resize.n_steps(n_steps), pad };
        // The gradients of the convolution, behind the rectifier, and of the shortcut.
        let length = layout.n_rows(n_samples) * n_outputs;
        let (mut of_convolved, mut of_passed) = (vec![0.0; length], vec![0.0; length]);
        let (mut of_bias, mut of_past_bias) = (vec![0.0; n_outputs], vec![0.0; n_outputs]);
        let bias = back.parameters.get(block.conv.bias);
        for sample in 0..n_samples {
            let from = layout.row(sample) * n_outputs;
            let range = from..from + n_steps * n_outputs;
            let (convolved, passed) = (&self.kept.convolved[range.clone()], &self.kept.passed[range.clone()]);
            let (to_convolved, to_passed) = (&mut of_convolved[range.clone()], &mut of_passed[range]);
            let out = &gradient[out_layout.row(sample) * n_outputs..];
            match block.resize {
                Resize::Pool => {
                    for (pair, out) in out.chunks_exact(n_outputs).take(n_steps / 2).enumerate() {
                        let at = 2 * pair * n_outputs;
                        for channel in 0..n_outputs {
                            let (one, two) = (at + channel, at + n_outputs + channel);
                            let (a, b) = (
                                (convolved[one] + bias[channel]).max(0.0),
                                (convolved[two] + bias[channel]).max(0.0),
                            );
                            let is_second = b + passed[two] > a + passed[one];
                            let (chosen, rectified) = if is_second { (two, b) } else { (one, a) };
                            to_passed[chosen] = out[channel];
                            let of_rectified = if rectified > 0.0 { out[channel] } else { 0.0 };
                            to_convolved[chosen] = of_rectified;
                            of_past_bias[channel] += out[channel];
                            of_bias[channel] += of_rectified;
                        }
                    }
                }
                Resize::Repeat { n_steps: n_out } => {
                    for (step, out) in out.chunks_exact(n_outputs).take(n_out).enumerate() {
                        let at = (step / 2).min(n_steps - 1) * n_outputs;
                        add(&mut to_passed[at..at + n_outputs], out);
                    }
                    let rows =
                        to_convolved.chunks_exact_mut(n_outputs).zip(to_passed.chunks_exact(n_outputs));
                    for ((to_convolved, to_passed), convolved) in rows.zip(convolved.chunks_exact(n_outputs))
                    {
                        for channel in 0..n_outputs {
                            let is_open = convolved[channel] + bias[channel] > 0.0;
                            to_convolved[channel] = if is_open { to_passed[channel] } else { 0.0 };
                            of_past_bias[channel] += to_passed[channel];
                            of_bias[channel] += to_convolved[channel];
                        }
                    }
                }
            }
        }
        add(back.of_parameter(block.conv.bias), &of_bias);
        add(back.of_parameter(block.past_bias), &of_past_bias);
        let (input, weight) = back.value_and_parameter(self.x, block.conv.weight);
        block.conv.add_weight_gradient(n_rows, &input.data, &of_convolved, weight);
        let (input, past) = back.value_and_parameter(self.x, block.past);
        let (columns, rows) = (
            View::transposed(&input.data[pad * n_inputs..], n_inputs),
            View::rows(&of_passed[pad * n_outputs..], n_outputs),
        );
        multiply([n_inputs, n_outputs, n_rows], past, n_outputs, Accumulate::Add, columns, rows);
        if back.is_wanted(self.x) {
            let reversed = block.conv.reversed(back.parameters);
            let mut of_x = vec![0.0; back.value(self.x).data.len()];
            block.conv.input_gradient(n_rows, &of_convolved, &reversed, &mut of_x);
            let past = View::transposed(back.parameters.get(block.past), n_outputs);
            multiply(
                [n_rows, n_inputs, n_outputs],
                &mut of_x[pad * n_inputs..],
                n_inputs,
                Accumulate::Add,
                rows,
                past,
            );
            back.give(self.x, of_x);
        }
    }
}
