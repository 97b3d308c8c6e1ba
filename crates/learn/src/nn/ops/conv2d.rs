//! A 2-D convolution over pictures, channels last, with bias and rectifier. The windows of a few lines are
//! unfolded into rows (im2col) and multiplied with the weights.

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::nn::gemm::{Accumulate, View, multiply};
use crate::nn::parameters::{ParameterId, Parameters};
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var, add};

/// The activation of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rectifier {
    None,
    Relu,
    /// A rectifier with an upper bound of six.
    Relu6,
}

impl Rectifier {
    pub(super) fn apply(self, values: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Relu => values.iter_mut().for_each(|value| *value = value.max(0.0)),
            Self::Relu6 => values.iter_mut().for_each(|value| *value = value.clamp(0.0, 6.0)),
        }
    }

    /// The gradient of the input, given the output.
    pub(super) fn back(self, gradient: &[f32], out: &[f32]) -> Vec<f32> {
        let pairs = gradient.iter().zip(out);
        match self {
            Self::None => gradient.to_vec(),
            Self::Relu => pairs.map(|(gradient, out)| if *out > 0.0 { *gradient } else { 0.0 }).collect(),
            Self::Relu6 => {
                pairs.map(|(gradient, out)| if *out > 0.0 && *out < 6.0 { *gradient } else { 0.0 }).collect()
            }
        }
    }
}

/// The zeros around a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// The same number of pixels on every side.
    Even(usize),
    /// As many as it takes for the output side to be the input side divided by the stride, rounded up. If
    /// the number is odd, there is one more below and on the right.
    Same,
}

/// The kernel width, the stride and the border, which are the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    pub width: usize,
    pub stride: usize,
    pub border: Border,
}

impl Windows {
    /// The number of windows along a side, and how many pixels the first starts outside.
    pub fn along(&self, side: usize) -> (usize, usize) {
        match self.border {
            Border::Even(pad) => ((side + 2 * pad).saturating_sub(self.width) / self.stride + 1, pad),
            Border::Same => {
                let count = side.div_ceil(self.stride);
                let pad = ((count - 1) * self.stride + self.width).saturating_sub(side);
                (count, pad / 2)
            }
        }
    }
}

/// Weights `[width · width · inputs × outputs]` and a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2d {
    pub weight: ParameterId,
    pub bias: ParameterId,
    pub windows: Windows,
    pub rectifier: Rectifier,
    pub n_inputs: usize,
    pub n_outputs: usize,
}

/// Numbers that are unfolded at once: about as many as the L1 and L2 caches hold.
const UNFOLDED: usize = 48 * 1024;

/// The sides of an input and an output picture.
#[derive(Clone, Copy)]
struct Sides {
    height: usize,
    width: usize,
    out_height: usize,
    out_width: usize,
    top: usize,
    left: usize,
}

/// A window along a line: its pixels before the picture, its first pixel inside, and how many are inside.
struct Along {
    before: usize,
    first: usize,
    inside: usize,
}

impl Conv2d {
    pub fn new(
        parameters: &mut Parameters,
        name: &str,
        windows: Windows,
        [n_inputs, n_outputs]: [usize; 2],
        rectifier: Rectifier,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Self {
        let fan_in = windows.width * windows.width * n_inputs;
        let shape = [windows.width, windows.width, n_inputs, n_outputs];
        let weight = parameters.add(format!("{name}.weight"), &shape, fan_in, rng);
        let bias = parameters.add(format!("{name}.bias"), &[n_outputs], fan_in, rng);
        Self { weight, bias, windows, rectifier, n_inputs, n_outputs }
    }

    fn sides(&self, layout: Layout) -> Sides {
        let Layout::Image { height, width } = layout else { panic!("the input is not a picture") };
        let ((out_height, top), (out_width, left)) = (self.windows.along(height), self.windows.along(width));
        Sides { height, width, out_height, out_width, top, left }
    }

    /// The size of a window.
    fn n_in_window(&self) -> usize {
        self.windows.width * self.windows.width * self.n_inputs
    }

    /// Whether windows are single pixels, so that nothing has to be unfolded.
    fn is_pointwise(&self) -> bool {
        self.windows == Windows { width: 1, stride: 1, border: self.windows.border }
    }

    /// Lines that are unfolded at once.
    fn n_lines(&self, sides: Sides) -> usize {
        (UNFOLDED / (sides.out_width * self.n_in_window())).clamp(1, sides.out_height)
    }

    /// The window of an output pixel along a line.
    fn along(&self, sides: Sides, x: usize) -> Along {
        let size = self.windows.width;
        let from = (x * self.windows.stride) as isize - sides.left as isize;
        let before = usize::try_from(-from).unwrap_or(0).min(size);
        let first = usize::try_from(from).unwrap_or(0);
        Along { before, first, inside: (size - before).min(sides.width.saturating_sub(first)) }
    }

    /// The windows of some output lines, one per row.
    fn unfold(&self, sides: Sides, picture: &[f32], lines: std::ops::Range<usize>, rows: &mut Vec<f32>) {
        let (size, channels) = (self.windows.width, self.n_inputs);
        rows.clear();
        for y in lines {
            for x in 0..sides.out_width {
                let Along { before, first, inside } = self.along(sides, x);
                for line in 0..size {
                    let at = (y * self.windows.stride + line).wrapping_sub(sides.top);
                    if at >= sides.height {
                        rows.resize(rows.len() + size * channels, 0.0);
                        continue;
                    }
                    let start = (at * sides.width + first) * channels;
                    rows.resize(rows.len() + before * channels, 0.0);
                    rows.extend_from_slice(&picture[start..start + inside * channels]);
                    rows.resize(rows.len() + (size - before - inside) * channels, 0.0);
                }
            }
        }
    }

    /// Adds windows back to the picture that they were unfolded from.
    fn fold(&self, sides: Sides, rows: &[f32], lines: std::ops::Range<usize>, picture: &mut [f32]) {
        let (size, channels) = (self.windows.width, self.n_inputs);
        let mut windows = rows.chunks_exact(size * channels);
        for y in lines {
            for x in 0..sides.out_width {
                let Along { before, first, inside } = self.along(sides, x);
                for line in 0..size {
                    let Some(row) = windows.next() else { return };
                    let at = (y * self.windows.stride + line).wrapping_sub(sides.top);
                    if at < sides.height {
                        let start = (at * sides.width + first) * channels;
                        let part = &row[before * channels..(before + inside) * channels];
                        add(&mut picture[start..start + inside * channels], part);
                    }
                }
            }
        }
    }

    /// The forward pass, without a tape.
    pub fn compute(&self, parameters: &Parameters, x: &Value) -> Value {
        assert_eq!(x.n_columns, self.n_inputs, "the convolution has another number of channels");
        let sides = self.sides(x.layout);
        let layout = Layout::Image { height: sides.out_height, width: sides.out_width };
        let mut out = Value::zeros(x.n_samples, self.n_outputs, layout);
        let weight = View::rows(parameters.get(self.weight), self.n_outputs);
        let bias = parameters.get(self.bias);
        let (size, depth) = (sides.height * sides.width * self.n_inputs, self.n_in_window());
        let out_line = sides.out_width * self.n_outputs;
        let mut rows = Vec::new();
        for (picture, out) in
            x.data.chunks_exact(size).zip(out.data.chunks_exact_mut(sides.out_height * out_line))
        {
            if self.is_pointwise() {
                let shape = [sides.height * sides.width, self.n_outputs, depth];
                multiply(
                    shape,
                    out,
                    self.n_outputs,
                    Accumulate::Overwrite,
                    View::rows(picture, depth),
                    weight,
                );
            } else {
                let step = self.n_lines(sides);
                for first in (0..sides.out_height).step_by(step) {
                    let last = (first + step).min(sides.out_height);
                    self.unfold(sides, picture, first..last, &mut rows);
                    let shape = [(last - first) * sides.out_width, self.n_outputs, depth];
                    let out = &mut out[first * out_line..last * out_line];
                    multiply(
                        shape,
                        out,
                        self.n_outputs,
                        Accumulate::Overwrite,
                        View::rows(&rows, depth),
                        weight,
                    );
                }
            }
            out.chunks_exact_mut(self.n_outputs).for_each(|row| add(row, bias));
            self.rectifier.apply(out);
        }
        out
    }

    /// # Panics
    /// If `x` is not a picture with as many channels.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var) -> Var {
        let value = self.compute(tape.parameters, tape.value(x));
        let out = tape.next();
        tape.push(value, Conv2dBack { conv: *self, x, out })
    }
}

struct Conv2dBack {
    conv: Conv2d,
    x: Var,
    out: Var,
}

impl Operation for Conv2dBack {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let conv = &self.conv;
        let gradient = conv.rectifier.back(gradient, &back.value(self.out).data);
        let bias = back.of_parameter(conv.bias);
        gradient.chunks_exact(conv.n_outputs).for_each(|row| add(bias, row));
        let sides = conv.sides(back.value(self.x).layout);
        let (size, depth) = (sides.height * sides.width * conv.n_inputs, conv.n_in_window());
        let out_line = sides.out_width * conv.n_outputs;
        let step = if conv.is_pointwise() { sides.out_height } else { conv.n_lines(sides) };
        let is_wanted = back.is_wanted(self.x);
        let weight = View::transposed(back.parameters.get(conv.weight), conv.n_outputs);
        let mut of_x = if is_wanted { vec![0.0; back.value(self.x).data.len()] } else { Vec::new() };
        let (mut rows, mut of_rows) = (Vec::new(), Vec::new());
        let (values, of_weight) = back.value_and_parameter(self.x, conv.weight);
        for (at, (picture, gradient)) in
            values.data.chunks_exact(size).zip(gradient.chunks_exact(sides.out_height * out_line)).enumerate()
        {
            for first in (0..sides.out_height).step_by(step) {
                let last = (first + step).min(sides.out_height);
                let n_rows = (last - first) * sides.out_width;
                let gradient = View::rows(&gradient[first * out_line..last * out_line], conv.n_outputs);
                let unfolded = if conv.is_pointwise() {
                    picture
                } else {
                    conv.unfold(sides, picture, first..last, &mut rows);
                    &rows
                };
                let columns = View::transposed(unfolded, depth);
                multiply(
                    [depth, conv.n_outputs, n_rows],
                    of_weight,
                    conv.n_outputs,
                    Accumulate::Add,
                    columns,
                    gradient,
                );
                if is_wanted {
                    let picture = &mut of_x[at * size..(at + 1) * size];
                    let shape = [n_rows, depth, conv.n_outputs];
                    if conv.is_pointwise() {
                        multiply(shape, picture, depth, Accumulate::Overwrite, gradient, weight);
                    } else {
                        of_rows.resize(n_rows * depth, 0.0);
                        multiply(shape, &mut of_rows, depth, Accumulate::Overwrite, gradient, weight);
                        conv.fold(sides, &of_rows, first..last, picture);
                    }
                }
            }
        }
        if is_wanted {
            back.give(self.x, of_x);
        }
    }
}
