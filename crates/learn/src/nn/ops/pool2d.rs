//! Pooling of pictures by maximum or mean, and pictures as rows.

use super::conv2d::Windows;
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var};

fn sides(layout: Layout) -> (usize, usize) {
    let Layout::Image { height, width } = layout else { panic!("the input is not a picture") };
    (height, width)
}

/// The maximum of every window, and its index.
fn maxima(windows: Windows, x: &Value) -> (Value, Vec<u32>) {
    let (height, width) = sides(x.layout);
    let channels = x.n_columns;
    let ((out_height, top), (out_width, left)) = (windows.along(height), windows.along(width));
    let mut out = Value::zeros(x.n_samples, channels, Layout::Image { height: out_height, width: out_width });
    out.data.fill(f32::NEG_INFINITY);
    let mut places = vec![0u32; out.data.len()];
    let mut rows = out.data.chunks_exact_mut(channels).zip(places.chunks_exact_mut(channels));
    for sample in 0..x.n_samples {
        for y in 0..out_height {
            for column in 0..out_width {
                let Some((out, places)) = rows.next() else { continue };
                for line in 0..windows.width {
                    let at_y = (y * windows.stride + line).wrapping_sub(top);
                    for step in 0..windows.width {
                        let at_x = (column * windows.stride + step).wrapping_sub(left);
                        if at_y >= height || at_x >= width {
                            continue;
                        }
                        let from = ((sample * height + at_y) * width + at_x) * channels;
                        let row = &x.data[from..from + channels];
                        for (channel, value) in row.iter().enumerate() {
                            if *value > out[channel] {
                                out[channel] = *value;
                                places[channel] = (from + channel) as u32;
                            }
                        }
                    }
                }
            }
        }
    }
    (out, places)
}

/// Max pooling, without a tape.
pub fn compute_max(windows: Windows, x: &Value) -> Value {
    maxima(windows, x).0
}

/// # Panics
/// If `x` is not a picture.
pub fn max_pool(tape: &mut Tape<'_>, windows: Windows, x: Var) -> Var {
    let (value, places) = maxima(windows, tape.value(x));
    tape.push(value, MaxPool { x, places })
}

struct MaxPool {
    x: Var,
    places: Vec<u32>,
}

impl Operation for MaxPool {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let of_x = back.gradient(self.x);
        gradient.iter().zip(&self.places).for_each(|(gradient, place)| of_x[*place as usize] += gradient);
    }
}

/// The mean of every channel over a picture: one row per picture.
pub fn compute_mean(x: &Value) -> Value {
    let (height, width) = sides(x.layout);
    let (size, channels) = (height * width, x.n_columns);
    let mut out = Value::zeros(x.n_samples, channels, Layout::Plain);
    for (picture, out) in x.data.chunks_exact(size * channels).zip(out.data.chunks_exact_mut(channels)) {
        for row in picture.chunks_exact(channels) {
            out.iter_mut().zip(row).for_each(|(out, value)| *out += value / size as f32);
        }
    }
    out
}

/// # Panics
/// If `x` is not a picture.
pub fn mean_pool(tape: &mut Tape<'_>, x: Var) -> Var {
    let value = compute_mean(tape.value(x));
    tape.push(value, MeanPool { x })
}

struct MeanPool {
    x: Var,
}

impl Operation for MeanPool {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let input = back.value(self.x);
        let ((height, width), channels) = (sides(input.layout), input.n_columns);
        let size = height * width;
        let spread = |row: &[f32]| -> Vec<f32> { row.iter().map(|slope| slope / size as f32).collect() };
        let of_x = gradient.chunks_exact(channels).flat_map(|row| spread(row).repeat(size)).collect();
        back.give(self.x, of_x);
    }
}

/// All pixels of a picture in one row.
pub fn as_rows(tape: &mut Tape<'_>, x: Var) -> Var {
    let input = tape.value(x);
    let (height, width) = sides(input.layout);
    let value = Value::plain(input.data.clone(), height * width * input.n_columns);
    tape.push(value, AsRows { x })
}

struct AsRows {
    x: Var,
}

impl Operation for AsRows {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        back.give(self.x, gradient.to_vec());
    }
}
