//! Batch normalisation (Ioffe and Szegedy, 2015): every column of a batch is scaled to mean zero and
//! variance one, then multiplied and shifted by parameters.

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::nn::parameters::{ParameterId, Parameters};
use crate::nn::tape::{Back, Operation, Tape, Value, Var};

const EPSILON: f32 = 1e-5;
/// The weight of the last batch in the running moments.
const MOMENTUM: f32 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchNorm {
    scale: ParameterId,
    offset: ParameterId,
    /// The running moments, which have no gradient.
    mean: ParameterId,
    variance: ParameterId,
}

/// The means and the variances of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    means: Vec<f32>,
    variances: Vec<f32>,
}

impl BatchNorm {
    pub fn new(parameters: &mut Parameters, name: &str, size: usize, rng: &mut Xoshiro256PlusPlus) -> Self {
        let mut filled = |part: &str, value: f32| {
            let id = parameters.add(format!("{name}.{part}"), &[size], size, rng);
            parameters.fill(id, value);
            id
        };
        Self {
            scale: filled("scale", 1.0),
            offset: filled("offset", 0.0),
            mean: filled("mean", 0.0),
            variance: filled("variance", 1.0),
        }
    }

    /// Normalises by the moments of the batch itself, which are returned.
    pub fn forward(&self, tape: &mut Tape<'_>, x: Var) -> (Var, Moments) {
        let input = tape.value(x);
        let (n_rows, size) = (input.n_samples, input.n_columns);
        let (mut means, mut variances) = (vec![0.0; size], vec![0.0; size]);
        for row in input.data.chunks_exact(size) {
            means.iter_mut().zip(row).for_each(|(mean, value)| *mean += value / n_rows as f32);
        }
        for row in input.data.chunks_exact(size) {
            let off = variances.iter_mut().zip(row).zip(&means);
            off.for_each(|((variance, value), mean)| *variance += (value - mean).powi(2) / n_rows as f32);
        }
        let moments = Moments { means, variances };
        let widths: Vec<f32> = moments.variances.iter().map(|variance| (variance + EPSILON).sqrt()).collect();
        let mut normal = input.data.clone();
        for row in normal.chunks_exact_mut(size) {
            let terms = row.iter_mut().zip(&moments.means).zip(&widths);
            terms.for_each(|((value, mean), width)| *value = (*value - mean) / width);
        }
        let (scale, offset) = (tape.parameters.get(self.scale), tape.parameters.get(self.offset));
        let mut data = normal.clone();
        for row in data.chunks_exact_mut(size) {
            let terms = row.iter_mut().zip(scale).zip(offset);
            terms.for_each(|((value, scale), offset)| *value = *value * scale + offset);
        }
        let value = Value::plain(data, size);
        (tape.push(value, NormBack { layer: *self, x, normal, widths }), moments)
    }

    /// What inference multiplies each column by.
    pub fn factors(&self, parameters: &Parameters) -> Vec<f32> {
        let [scale, variance] = [self.scale, self.variance].map(|id| parameters.get(id));
        scale.iter().zip(variance).map(|(scale, variance)| scale / (variance + EPSILON).sqrt()).collect()
    }

    /// Normalises by the running moments, in place: for inference.
    pub fn apply(&self, parameters: &Parameters, rows: &mut [f32]) {
        let factors = self.factors(parameters);
        let [offset, mean] = [self.offset, self.mean].map(|id| parameters.get(id));
        for row in rows.chunks_exact_mut(factors.len()) {
            let terms = row.iter_mut().zip(&factors).zip(offset).zip(mean);
            terms.for_each(|(((value, factor), offset), mean)| *value = (*value - mean) * factor + offset);
        }
    }

    /// Updates the running moments with those of a batch of `n_rows` rows.
    pub fn remember(&self, parameters: &mut Parameters, moments: &Moments, n_rows: usize) {
        let unbiased = n_rows as f32 / (n_rows.max(2) as f32 - 1.0);
        let take = |running: &mut [f32], new: &[f32], factor: f32| {
            for (running, new) in running.iter_mut().zip(new) {
                *running += MOMENTUM * (factor * new - *running);
            }
        };
        take(parameters.get_mut(self.mean), &moments.means, 1.0);
        take(parameters.get_mut(self.variance), &moments.variances, unbiased);
    }
}

struct NormBack {
    layer: BatchNorm,
    x: Var,
    normal: Vec<f32>,
    widths: Vec<f32>,
}

impl Operation for NormBack {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let size = self.widths.len();
        let n_rows = (gradient.len() / size) as f32;
        let (mut of_offset, mut of_scale) = (vec![0.0; size], vec![0.0; size]);
        for (row, normal) in gradient.chunks_exact(size).zip(self.normal.chunks_exact(size)) {
            for at in 0..size {
                of_offset[at] += row[at];
                of_scale[at] += row[at] * normal[at];
            }
        }
        let scale = back.parameters.get(self.layer.scale).to_vec();
        let factors: Vec<f32> = scale.iter().zip(&self.widths).map(|(scale, width)| scale / width).collect();
        let (of_mean, of_width): (Vec<f32>, Vec<f32>) =
            of_offset.iter().zip(&of_scale).map(|(offset, scale)| (offset / n_rows, scale / n_rows)).unzip();
        let mut of_x = gradient.to_vec();
        for (row, normal) in of_x.chunks_exact_mut(size).zip(self.normal.chunks_exact(size)) {
            for at in 0..size {
                row[at] = (row[at] - of_mean[at] - normal[at] * of_width[at]) * factors[at];
            }
        }
        crate::nn::tape::add(back.of_parameter(self.layer.offset), &of_offset);
        crate::nn::tape::add(back.of_parameter(self.layer.scale), &of_scale);
        back.give(self.x, of_x);
    }
}
