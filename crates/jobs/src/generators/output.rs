//! Output activations and losses of networks that generate rows of a table.

use std::f32::consts::{LN_2, LOG2_E};

use learn::nn::ops::loss::known;

use learn::nn::parameters::ParameterId;
use learn::nn::tape::{Back, Operation, Tape, Value, Var};
use learn::stats::softmax_into;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::encoding::{Encoder, Span, SpanKind};

/// The temperature of the Gumbel softmax.
const TEMPERATURE: f32 = 0.2;

/// Activates the raw output of a network: scalars by the hyperbolic tangent, one-hot spans by a softmax with `noise` added.
/// With Gumbel noise the softmax is a differentiable sample (Jang et al., 2017).
pub fn activate(tape: &mut Tape<'_>, x: Var, spans: &[Span], noise: &[f32]) -> Var {
    let input = tape.value(x);
    let width = input.n_columns;
    let mut out = input.data.clone();
    for (row, noise) in out.chunks_exact_mut(width).zip(noise.chunks_exact(width)) {
        for span in spans {
            let range = span.first..span.first + span.len;
            match span.kind {
                SpanKind::Scalar => row[span.first] = row[span.first].tanh(),
                SpanKind::OneHot => {
                    let drawn: Vec<f32> = row[range.clone()]
                        .iter()
                        .zip(&noise[range.clone()])
                        .map(|(x, n)| (x + n) / TEMPERATURE)
                        .collect();
                    softmax_into(&drawn, &mut row[range]);
                }
            }
        }
    }
    let output = out.clone();
    tape.push(Value::plain(out, width), Activate { x, spans: spans.to_vec(), output })
}

/// Replaces the raw output of a network by encoded rows: scalars by the hyperbolic tangent, one-hot spans by a sample.
pub fn sample_hard(rows: &mut [f32], encoder: &Encoder, rng: &mut Xoshiro256PlusPlus) {
    for row in rows.chunks_exact_mut(encoder.width()) {
        for span in encoder.spans() {
            let values = &mut row[span.first..span.first + span.len];
            match span.kind {
                SpanKind::Scalar => values[0] = values[0].tanh(),
                SpanKind::OneHot => {
                    let which = sample_index(values, rng);
                    values.fill(0.0);
                    values[which] = 1.0;
                }
            }
        }
    }
}

/// Numbers that are added and compared side by side, so that the compiler uses vector instructions.
const N_LANES: usize = 16;

/// Samples an index from the softmax of scores, which are overwritten.
pub fn sample_index(scores: &mut [f32], rng: &mut Xoshiro256PlusPlus) -> usize {
    let mut largest = [f32::MIN; N_LANES];
    for block in scores.chunks(N_LANES) {
        for (largest, score) in largest.iter_mut().zip(block) {
            *largest = if *score > *largest { *score } else { *largest };
        }
    }
    let largest = largest.into_iter().fold(f32::MIN, f32::max);
    let mut total = 0.0;
    for block in scores.chunks_mut(N_LANES) {
        for score in block.iter_mut() {
            *score = exponential(*score - largest);
        }
        total += block_sum(block);
    }
    let mut left = rng.random::<f32>() * total;
    let mut first = 0;
    for block in scores.chunks(N_LANES) {
        let sum = block_sum(block);
        if left >= sum {
            left -= sum;
            first += block.len();
            continue;
        }
        for (at, weight) in block.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return first + at;
            }
        }
        // Rounding: the parts of the block are less than its sum.
        return first + block.len() - 1;
    }
    scores.len() - 1
}

fn block_sum(block: &[f32]) -> f32 {
    let mut sums = [0.0f32; 4];
    for four in block.chunks(sums.len()) {
        sums.iter_mut().zip(four).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().sum()
}

/// The exponential of a number that is at most zero, with a relative error below 1e-4: a power of two from the exponent
/// bits, and a polynomial for the rest. Unlike the function of the standard library it is vectorised.
fn exponential(x: f32) -> f32 {
    /// Adding this rounds to a whole number, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x > -86.0 { x } else { -86.0 };
    let shifted = x * LOG2_E + ROUND;
    let rest = x * LOG2_E - (shifted - ROUND);
    // 2 to the power of the rest, as a Taylor series.
    let part = 1.0 + rest * (LN_2 + rest * (0.240_226_5 + rest * (0.055_504_1 + rest * 0.009_618_1)));
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127).wrapping_shl(23);
    part * f32::from_bits(power)
}

struct Activate {
    x: Var,
    spans: Vec<Span>,
    output: Vec<f32>,
}

impl Operation for Activate {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let width = self.spans.last().map_or(1, |span| span.first + span.len);
        let mut of_x = gradient.to_vec();
        for (row, kept) in of_x.chunks_exact_mut(width).zip(self.output.chunks_exact(width)) {
            for span in &self.spans {
                let range = span.first..span.first + span.len;
                match span.kind {
                    SpanKind::Scalar => row[span.first] *= 1.0 - kept[span.first].powi(2),
                    SpanKind::OneHot => {
                        let mean: f32 =
                            row[range.clone()].iter().zip(&kept[range.clone()]).map(|(g, s)| g * s).sum();
                        let terms = row[range.clone()].iter_mut().zip(&kept[range]);
                        for (gradient, output) in terms {
                            *gradient = output * (*gradient - mean) / TEMPERATURE;
                        }
                    }
                }
            }
        }
        back.give(self.x, of_x);
    }
}

/// A value that a row has to have: the index of a span, and a position in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequiredValue {
    pub span: usize,
    pub position: usize,
}

/// The cross entropy of the required value of each row; the mean over rows.
pub fn condition_loss(tape: &mut Tape<'_>, x: Var, spans: &[Span], required: &[RequiredValue]) -> Var {
    let input = tape.value(x);
    let (width, n_rows) = (input.n_columns, required.len() as f32);
    let mut gradients = vec![0.0; input.data.len()];
    let mut sum = 0.0;
    for ((row, gradients), required) in
        input.data.chunks_exact(width).zip(gradients.chunks_exact_mut(width)).zip(required)
    {
        let span = &spans[required.span];
        let range = span.first..span.first + span.len;
        let gradients = &mut gradients[range.clone()];
        softmax_into(&row[range], gradients);
        sum -= gradients[required.position].max(1e-12).ln() / n_rows;
        gradients[required.position] -= 1.0;
        for gradient in gradients {
            *gradient /= n_rows;
        }
    }
    known(tape, x, f64::from(sum), gradients)
}

/// The range of the standard deviation of scalars.
pub const STD_DEV_RANGE: std::ops::RangeInclusive<f32> = 0.01..=1.0;

/// The negative log likelihood of rows given the raw output of a network: scalars are normal with a learnt standard
/// deviation per column, one-hot spans are categorical. The sum times `scale`.
pub fn negative_log_likelihood(
    tape: &mut Tape<'_>,
    x: Var,
    target: &[f32],
    spans: &[Span],
    std_devs: ParameterId,
    scale: f32,
) -> Var {
    let input = tape.value(x);
    let n_columns = input.n_columns;
    let std_dev_values = tape.parameters.get(std_devs);
    let mut gradients = vec![0.0; input.data.len()];
    let mut std_dev_gradients = vec![0.0; std_dev_values.len()];
    let mut sum = 0.0f64;
    for ((row, target), gradients) in input
        .data
        .chunks_exact(n_columns)
        .zip(target.chunks_exact(n_columns))
        .zip(gradients.chunks_exact_mut(n_columns))
    {
        for span in spans {
            let range = span.first..span.first + span.len;
            match span.kind {
                SpanKind::Scalar => {
                    let at = span.first;
                    let std_dev = std_dev_values[at].clamp(*STD_DEV_RANGE.start(), *STD_DEV_RANGE.end());
                    let output = row[at].tanh();
                    let error = output - target[at];
                    sum += f64::from(error * error / (2.0 * std_dev * std_dev) + std_dev.ln());
                    gradients[at] = scale * error / (std_dev * std_dev) * (1.0 - output * output);
                    std_dev_gradients[at] += scale * (1.0 / std_dev - error * error / std_dev.powi(3));
                }
                SpanKind::OneHot => {
                    let gradients = &mut gradients[range.clone()];
                    softmax_into(&row[range.clone()], gradients);
                    for (gradient, target) in gradients.iter_mut().zip(&target[range]) {
                        sum -= f64::from(target * gradient.max(1e-12).ln());
                        *gradient = scale * (*gradient - target);
                    }
                }
            }
        }
    }
    let value = Value::plain(vec![(sum * f64::from(scale)) as f32], 1);
    tape.push(value, NegativeLogLikelihood { x, gradients, std_devs, std_dev_gradients })
}

struct NegativeLogLikelihood {
    x: Var,
    gradients: Vec<f32>,
    std_devs: ParameterId,
    std_dev_gradients: Vec<f32>,
}

impl Operation for NegativeLogLikelihood {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        back.give(self.x, self.gradients.iter().map(|one| one * gradient[0]).collect());
        let std_devs = back.of_parameter(self.std_devs);
        for (sum, one) in std_devs.iter_mut().zip(&self.std_dev_gradients) {
            *sum += one * gradient[0];
        }
    }
}

#[cfg(test)]
mod tests {
    use learn::nn::gradient_check::assert_gradients;
    use learn::nn::ops::elementwise::weighted_sum;
    use learn::nn::ops::linear::{Activation, Linear};
    use learn::nn::parameters::Parameters;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn spans() -> Vec<Span> {
        vec![
            Span { first: 0, len: 1, kind: SpanKind::Scalar },
            Span { first: 1, len: 3, kind: SpanKind::OneHot },
            Span { first: 4, len: 2, kind: SpanKind::OneHot },
        ]
    }

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7 % 11) as f32 - 5.0) / 10.0).collect()
    }

    fn layer() -> (Parameters, Linear) {
        let mut parameters = Parameters::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let layer = Linear::new(&mut parameters, "layer", [3, 6], Activation::None, &mut rng);
        (parameters, layer)
    }

    #[test]
    fn the_exponential_is_close_to_that_of_the_standard_library() {
        for step in 0..8_600 {
            let x = -(step as f32) / 100.0;
            assert!((exponential(x) / x.exp() - 1.0).abs() < 1e-4, "{x}");
        }
        assert!(exponential(f32::NEG_INFINITY) < 1e-36 && exponential(f32::NAN) < 1e-36);
    }

    #[test]
    fn indices_are_sampled_in_proportion_to_the_softmax() {
        let scores: Vec<f32> = (0..37).map(|at| (at * 5 % 7) as f32 / 2.0).collect();
        let mut wanted = vec![0.0; 37];
        softmax_into(&scores, &mut wanted);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut counts = [0.0f32; 37];
        for _ in 0..100_000 {
            counts[sample_index(&mut scores.clone(), &mut rng)] += 1e-5;
        }
        let distance: f32 = counts.iter().zip(&wanted).map(|(one, other)| (one - other).abs()).sum();
        assert!(distance < 0.04, "{distance}");
        assert_eq!(sample_index(&mut [f32::NAN], &mut rng), 0);
        assert_eq!(sample_index(&mut [0.0, -1e9, 40.0], &mut rng), 2);
    }

    #[test]
    fn gradients_of_samples_and_conditions_are_right() {
        let (parameters, layer) = layer();
        let required =
            [(1, 2), (2, 0), (1, 0), (2, 1)].map(|(span, position)| RequiredValue { span, position });
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(12), 3));
            let raw = layer.forward(tape, x);
            let rows = activate(tape, raw, &spans(), &numbers(24));
            let judged = weighted_sum(tape, rows, numbers(24));
            let missed = condition_loss(tape, raw, &spans(), &required);
            learn::nn::ops::arithmetic::add(tape, judged, missed)
        });
    }

    #[test]
    fn gradients_of_the_likelihood_are_right() {
        let (mut parameters, layer) = layer();
        let std_devs = parameters.add("std_devs", &[6], 6, &mut Xoshiro256PlusPlus::seed_from_u64(2));
        parameters.get_mut(std_devs).fill(0.4);
        let target = [[0.3, 0.0, 1.0, 0.0, 1.0, 0.0], [-0.2, 1.0, 0.0, 0.0, 0.0, 1.0]].concat();
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(6), 3));
            let raw = layer.forward(tape, x);
            negative_log_likelihood(tape, raw, &target, &spans(), std_devs, 0.5)
        });
    }
}
