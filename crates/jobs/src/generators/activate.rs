//! How networks end that make rows of a table, and what they are held against.

use learn::nn::ops::loss::known;
use learn::nn::parameters::ParameterId;
use learn::nn::tape::{Back, Operation, Tape, Value, Var};
use learn::stats::softmax_into;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::encode::{Block, BlockKind, Encoder};

/// How sharp shares are when they are drawn.
const TEMPERATURE: f32 = 0.2;

/// Numbers as they are in encoded rows: places by the hyperbolic tangent, one of many by a softmax with `noise` added, which
/// is a draw if it is Gumbel's (Jang et al., 2017).
pub fn activate(tape: &mut Tape<'_>, x: Var, blocks: &[Block], noise: &[f32]) -> Var {
    let input = tape.value(x);
    let width = input.n_columns;
    let mut out = input.data.clone();
    for (row, noise) in out.chunks_exact_mut(width).zip(noise.chunks_exact(width)) {
        for block in blocks {
            let range = block.first..block.first + block.len;
            match block.kind {
                BlockKind::Place => row[block.first] = row[block.first].tanh(),
                BlockKind::OneOf => {
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
    let kept = out.clone();
    tape.push(Value::plain(out, width), Activate { x, blocks: blocks.to_vec(), kept })
}

/// What a network made as rows of a table have it: places by the hyperbolic tangent, one of many drawn by its share.
pub fn settle(rows: &mut [f32], encoder: &Encoder, rng: &mut Xoshiro256PlusPlus) {
    for row in rows.chunks_exact_mut(encoder.width) {
        for block in &encoder.blocks {
            let values = &mut row[block.first..block.first + block.len];
            match block.kind {
                BlockKind::Place => values[0] = values[0].tanh(),
                BlockKind::OneOf => {
                    let which = draw(values, rng);
                    values.fill(0.0);
                    values[which] = 1.0;
                }
            }
        }
    }
}

/// One of many, as likely as `exp` of its score; scores are used up.
fn draw(scores: &mut [f32], rng: &mut Xoshiro256PlusPlus) -> usize {
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - most).exp());
    let mut left = rng.random::<f32>() * scores.iter().sum::<f32>();
    let is_it = |weight: &f32| {
        left -= weight;
        left < 0.0
    };
    scores.iter().position(is_it).unwrap_or(scores.len() - 1)
}

struct Activate {
    x: Var,
    blocks: Vec<Block>,
    kept: Vec<f32>,
}

impl Operation for Activate {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let width = self.blocks.last().map_or(1, |block| block.first + block.len);
        let mut of_x = gradient.to_vec();
        for (row, kept) in of_x.chunks_exact_mut(width).zip(self.kept.chunks_exact(width)) {
            for block in &self.blocks {
                let range = block.first..block.first + block.len;
                match block.kind {
                    BlockKind::Place => row[block.first] *= 1.0 - kept[block.first].powi(2),
                    BlockKind::OneOf => {
                        let mean: f32 =
                            row[range.clone()].iter().zip(&kept[range.clone()]).map(|(g, s)| g * s).sum();
                        let terms = row[range.clone()].iter_mut().zip(&kept[range]);
                        terms.for_each(|(g, s)| *g = s * (*g - mean) / TEMPERATURE);
                    }
                }
            }
        }
        back.give(self.x, of_x);
    }
}

/// How unlikely the wanted one of many is, for one block of each row; the mean over rows.
pub fn unlikely(tape: &mut Tape<'_>, x: Var, blocks: &[Block], wanted: &[(usize, usize)]) -> Var {
    let input = tape.value(x);
    let (width, n_rows) = (input.n_columns, wanted.len() as f32);
    let mut slopes = vec![0.0; input.data.len()];
    let mut sum = 0.0;
    for ((row, slopes), (block, which)) in
        input.data.chunks_exact(width).zip(slopes.chunks_exact_mut(width)).zip(wanted)
    {
        let range = blocks[*block].first..blocks[*block].first + blocks[*block].len;
        let slopes = &mut slopes[range.clone()];
        softmax_into(&row[range], slopes);
        sum -= slopes[*which].max(1e-12).ln() / n_rows;
        slopes[*which] -= 1.0;
        slopes.iter_mut().for_each(|slope| *slope /= n_rows);
    }
    known(tape, x, f64::from(sum), slopes)
}

/// The least and the most that a place may be uncertain by.
const WIDTHS: (f32, f32) = (0.01, 1.0);

/// Minus the logarithm of how likely rows are, given what a network made of them and how wide the places of each column are;
/// the sum times `scale`.
pub fn improbability(
    tape: &mut Tape<'_>,
    x: Var,
    target: &[f32],
    blocks: &[Block],
    widths: ParameterId,
    scale: f32,
) -> Var {
    let input = tape.value(x);
    let n_columns = input.n_columns;
    let of_width = tape.parameters.get(widths);
    let mut slopes = vec![0.0; input.data.len()];
    let mut of_widths = vec![0.0; of_width.len()];
    let mut sum = 0.0f64;
    for ((row, target), slopes) in input
        .data
        .chunks_exact(n_columns)
        .zip(target.chunks_exact(n_columns))
        .zip(slopes.chunks_exact_mut(n_columns))
    {
        for block in blocks {
            let range = block.first..block.first + block.len;
            match block.kind {
                BlockKind::Place => {
                    let at = block.first;
                    let width = of_width[at].clamp(WIDTHS.0, WIDTHS.1);
                    let made = row[at].tanh();
                    let off = made - target[at];
                    sum += f64::from(off * off / (2.0 * width * width) + width.ln());
                    slopes[at] = scale * off / (width * width) * (1.0 - made * made);
                    of_widths[at] += scale * (1.0 / width - off * off / width.powi(3));
                }
                BlockKind::OneOf => {
                    let slopes = &mut slopes[range.clone()];
                    softmax_into(&row[range.clone()], slopes);
                    for (slope, target) in slopes.iter_mut().zip(&target[range]) {
                        sum -= f64::from(target * slope.max(1e-12).ln());
                        *slope = scale * (*slope - target);
                    }
                }
            }
        }
    }
    let value = Value::plain(vec![(sum * f64::from(scale)) as f32], 1);
    tape.push(value, Improbability { x, slopes, widths, of_widths })
}

struct Improbability {
    x: Var,
    slopes: Vec<f32>,
    widths: ParameterId,
    of_widths: Vec<f32>,
}

impl Operation for Improbability {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        back.give(self.x, self.slopes.iter().map(|slope| slope * gradient[0]).collect());
        let widths = back.of_parameter(self.widths);
        widths.iter_mut().zip(&self.of_widths).for_each(|(sum, slope)| *sum += slope * gradient[0]);
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

    fn blocks() -> Vec<Block> {
        vec![
            Block { first: 0, len: 1, kind: BlockKind::Place },
            Block { first: 1, len: 3, kind: BlockKind::OneOf },
            Block { first: 4, len: 2, kind: BlockKind::OneOf },
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
    fn draws_and_missed_conditions_go_back() {
        let (parameters, layer) = layer();
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(12), 3));
            let raw = layer.forward(tape, x);
            let rows = activate(tape, raw, &blocks(), &numbers(24));
            let judged = weighted_sum(tape, rows, numbers(24));
            let missed = unlikely(tape, raw, &blocks(), &[(1, 2), (2, 0), (1, 0), (2, 1)]);
            learn::nn::ops::arithmetic::add(tape, judged, missed)
        });
    }

    #[test]
    fn improbability_goes_back_to_rows_and_widths() {
        let (mut parameters, layer) = layer();
        let widths = parameters.add("widths", &[6], 6, &mut Xoshiro256PlusPlus::seed_from_u64(2));
        parameters.get_mut(widths).fill(0.4);
        let target = [[0.3, 0.0, 1.0, 0.0, 1.0, 0.0], [-0.2, 1.0, 0.0, 0.0, 0.0, 1.0]].concat();
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(6), 3));
            let raw = layer.forward(tape, x);
            improbability(tape, raw, &target, &blocks(), widths, 0.5)
        });
    }
}
