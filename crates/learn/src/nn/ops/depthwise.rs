//! A depthwise 2-D convolution: each channel has its own kernel.

use rand_xoshiro::Xoshiro256PlusPlus;

use super::conv2d::{Rectifier, Windows};
use crate::nn::parameters::{ParameterId, Parameters};
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var, add};

/// Weights `[width · width × channels]` and a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depthwise {
    pub weight: ParameterId,
    pub bias: ParameterId,
    pub windows: Windows,
    pub rectifier: Rectifier,
    pub n_channels: usize,
}

impl Depthwise {
    pub fn new(
        parameters: &mut Parameters,
        name: &str,
        windows: Windows,
        n_channels: usize,
        rectifier: Rectifier,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let fan_in = windows.width * windows.width;
        let shape = [windows.width, windows.width, n_channels];
        let weight = parameters.add(format!("{name}.weight"), &shape, fan_in, rng);
        let bias = parameters.add(format!("{name}.bias"), &[n_channels], fan_in, rng);
        Self { weight, bias, windows, rectifier, n_channels }
    }

    /// Visits every element of every window: its output pixel, its input pixel, and its kernel index.
    fn visit(&self, layout: Layout, mut visit: impl FnMut(usize, usize, usize)) -> (usize, usize) {
        let Layout::Image { height, width } = layout else { panic!("the input is not a picture") };
        let ((out_height, top), (out_width, left)) = (self.windows.along(height), self.windows.along(width));
        let size = self.windows.width;
        for y in 0..out_height {
            for x in 0..out_width {
                for line in 0..size {
                    let at_y = (y * self.windows.stride + line).wrapping_sub(top);
                    if at_y >= height {
                        continue;
                    }
                    for column in 0..size {
                        let at_x = (x * self.windows.stride + column).wrapping_sub(left);
                        if at_x < width {
                            visit(y * out_width + x, at_y * width + at_x, line * size + column);
                        }
                    }
                }
            }
        }
        (out_height, out_width)
    }

    fn out_layout(&self, layout: Layout) -> Layout {
        let Layout::Image { height, width } = layout else { panic!("the input is not a picture") };
        Layout::Image { height: self.windows.along(height).0, width: self.windows.along(width).0 }
    }

    /// The forward pass, without a tape.
    pub fn compute(&self, parameters: &Parameters, x: &Value) -> Value {
        let channels = self.n_channels;
        assert_eq!(x.n_columns, channels, "the convolution has another number of channels");
        let layout = self.out_layout(x.layout);
        let mut out = Value::zeros(x.n_samples, channels, layout);
        let (weight, bias) = (parameters.get(self.weight), parameters.get(self.bias));
        let sizes = (x.layout.n_rows(1) * channels, layout.n_rows(1) * channels);
        for (picture, out) in x.data.chunks_exact(sizes.0).zip(out.data.chunks_exact_mut(sizes.1)) {
            out.chunks_exact_mut(channels).for_each(|row| row.copy_from_slice(bias));
            self.visit(x.layout, |to, from, at| {
                let (from, weight) =
                    (&picture[from * channels..][..channels], &weight[at * channels..][..channels]);
                let to = &mut out[to * channels..][..channels];
                to.iter_mut()
                    .zip(from.iter().zip(weight))
                    .for_each(|(to, (from, weight))| *to += from * weight);
            });
            self.rectifier.apply(out);
        }
        out
    }

    /// # Panics
    /// If `x` is not a picture with as many channels.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var) -> Var {
        let value = self.compute(tape.parameters, tape.value(x));
        let out = tape.next();
        tape.push(value, DepthwiseBack { conv: *self, x, out })
    }
}

struct DepthwiseBack {
    conv: Depthwise,
    x: Var,
    out: Var,
}

impl Operation for DepthwiseBack {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let (conv, channels) = (&self.conv, self.conv.n_channels);
        let gradient = conv.rectifier.back(gradient, &back.value(self.out).data);
        let bias = back.of_parameter(conv.bias);
        gradient.chunks_exact(channels).for_each(|row| add(bias, row));
        let layout = back.value(self.x).layout;
        let sizes = (layout.n_rows(1) * channels, conv.out_layout(layout).n_rows(1) * channels);
        let weight = back.parameters.get(conv.weight);
        let mut of_x = vec![0.0; back.value(self.x).data.len()];
        let (values, of_weight) = back.value_and_parameter(self.x, conv.weight);
        let pictures = values.data.chunks_exact(sizes.0).zip(of_x.chunks_exact_mut(sizes.0));
        for ((picture, of_picture), gradient) in pictures.zip(gradient.chunks_exact(sizes.1)) {
            conv.visit(layout, |to, from, at| {
                let gradient = &gradient[to * channels..][..channels];
                for channel in 0..channels {
                    of_weight[at * channels + channel] +=
                        gradient[channel] * picture[from * channels + channel];
                    of_picture[from * channels + channel] +=
                        gradient[channel] * weight[at * channels + channel];
                }
            });
        }
        back.give(self.x, of_x);
    }
}
