//! The operations of a tape. Each is one file: the forward pass, what it keeps, the backward pass.

pub mod arithmetic;
pub mod block;
pub mod conv;
pub mod conv2d;
pub mod depthwise;
pub mod elementwise;
pub mod graph;
pub mod linear;
pub mod loss;
pub mod norm;
pub mod pool2d;
pub mod sample;
pub mod shape;
pub mod softmax;

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::arithmetic::add;
    use super::block::{Block, Resize};
    use super::conv::Conv;
    use super::conv2d::{Border, Conv2d, Rectifier, Windows};
    use super::depthwise::Depthwise;
    use super::elementwise::{beside, leaky, scaled};
    use super::graph::Messages;
    use super::linear::{Activation, Linear};
    use super::loss::{class_entropy, cross_entropy, divergence, norm, squared_error};
    use super::norm::BatchNorm;
    use super::pool2d::{as_rows, max_pool, mean_pool};
    use super::sample::sample;
    use super::shape::{flatten, unflatten};
    use super::softmax::softmax_and_sigmoid;
    use crate::nn::gradient_check::assert_gradients;
    use crate::nn::parameters::Parameters;
    use crate::nn::tape::{Tape, Value, Var};

    fn rng() -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(1)
    }

    fn numbers(count: usize) -> Vec<f32> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(21);
        (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    /// The squared distance of a value from one whose numbers all differ.
    fn loss_of(tape: &mut Tape<'_>, x: Var) -> Var {
        let shape = tape.value(x);
        let mut target = Value::zeros(shape.n_samples, shape.n_columns, shape.layout);
        target.data = numbers(target.data.len());
        squared_error(tape, x, target, 0.5)
    }

    #[test]
    fn linear_layers_have_right_gradients() {
        let (mut parameters, mut rng) = (Parameters::default(), rng());
        let first = Linear::new(&mut parameters, "first", [3, 5], Activation::Relu, &mut rng);
        let second = Linear::new(&mut parameters, "second", [5, 2], Activation::None, &mut rng);
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(12), 3));
            let hidden = first.forward(tape, x);
            let out = second.forward(tape, hidden);
            loss_of(tape, out)
        });
    }

    #[test]
    fn convolutions_have_right_gradients() {
        for width in [1, 3, 5] {
            let (mut parameters, mut rng) = (Parameters::default(), rng());
            let first = Conv::new(&mut parameters, "first", width, [2, 3], &mut rng);
            let second = Conv::new(&mut parameters, "second", width, [3, 4], &mut rng);
            assert_gradients(&parameters, |tape| {
                let x = tape.input(Value::padded(&numbers(2 * 7 * 2), 7, 2, width / 2));
                let hidden = first.forward(tape, x);
                let out = second.forward(tape, hidden);
                loss_of(tape, out)
            });
        }
    }

    #[test]
    fn blocks_have_right_gradients_through_pooling_and_repeating() {
        for (n_steps, up) in [(8, 8), (7, 6), (7, 7)] {
            let (mut parameters, mut rng) = (Parameters::default(), rng());
            let down = Block::new(&mut parameters, "down", 5, [2, 4], Resize::Pool, &mut rng);
            let wide = Block::new(&mut parameters, "up", 5, [4, 3], Resize::Repeat { n_steps: up }, &mut rng);
            assert_gradients(&parameters, |tape| {
                let x = tape.input(Value::padded(&numbers(3 * n_steps * 2), n_steps, 2, 2));
                let narrow = down.forward(tape, x);
                let out = wide.forward(tape, narrow);
                loss_of(tape, out)
            });
        }
    }

    #[test]
    fn a_whole_autoencoder_has_right_gradients() {
        let (mut parameters, mut rng) = (Parameters::default(), rng());
        let down = Block::new(&mut parameters, "down", 3, [3, 4], Resize::Pool, &mut rng);
        let encode = Linear::new(&mut parameters, "encode", [12, 5], Activation::None, &mut rng);
        let decode = Linear::new(&mut parameters, "decode", [5, 12], Activation::Relu, &mut rng);
        let last = Conv::new(&mut parameters, "last", 3, [4, 6], &mut rng);
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::padded(&numbers(2 * 7 * 3), 7, 3, 1));
            let narrow = down.forward(tape, x);
            let flat = flatten(tape, narrow);
            let z = encode.forward(tape, flat);
            let wide = decode.forward(tape, z);
            let steps = unflatten(tape, wide, 4, 7, 1);
            let out = last.forward(tape, steps);
            let rates = softmax_and_sigmoid(tape, out, 4);
            let target = Value::padded(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6].repeat(14), 7, 6, 1);
            let (off, unlikely) = (loss_of(tape, rates), cross_entropy(tape, rates, &target, 4, 0.2));
            add(tape, off, unlikely)
        });
    }

    #[test]
    fn messages_have_right_gradients_and_stay_inside_their_graph() {
        for has_self in [true, false] {
            let (mut parameters, mut rng) = (Parameters::default(), rng());
            let encode = Linear::new(&mut parameters, "encode", [2, 3], Activation::None, &mut rng);
            let from = Linear::new(&mut parameters, "from", [3, 4], Activation::None, &mut rng);
            let to = Linear::new(&mut parameters, "to", [3, 4], Activation::None, &mut rng);
            let messages = Messages::new(&mut parameters, "strength", 4, has_self, &mut rng);
            let pass = |tape: &mut Tape<'_>, rows: Vec<f32>| {
                let x = tape.input(Value::plain(rows, 2));
                let z = encode.forward(tape, x);
                let (ends, starts) = (from.forward(tape, z), to.forward(tape, z));
                let received = messages.forward(tape, z, ends, starts, &[0..3, 3..4, 4..6]);
                add(tape, z, received)
            };
            assert_gradients(&parameters, |tape| {
                let out = pass(tape, numbers(12));
                loss_of(tape, out)
            });
            let rows_of = |rows: Vec<f32>| {
                let mut tape = Tape::new(&parameters);
                let out = pass(&mut tape, rows);
                tape.value(out).data.clone()
            };
            let mut changed = numbers(12);
            changed[1] += 1.0;
            let (before, after) = (rows_of(numbers(12)), rows_of(changed));
            assert!(before[..9].iter().zip(&after).all(|(a, b)| a != b), "every node of the graph changes");
            assert_eq!(before[9..], after[9..], "and no other node");
        }
    }

    #[test]
    fn batch_normalisation_has_right_gradients() {
        let (mut parameters, mut rng) = (Parameters::default(), rng());
        let layer = Linear::new(&mut parameters, "layer", [3, 4], Activation::None, &mut rng);
        let norm = BatchNorm::new(&mut parameters, "norm", 4, &mut rng);
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(18), 3));
            let sums = layer.forward(tape, x);
            let (normal, _) = norm.forward(tape, sums);
            let factors = leaky(&tape.value(normal).data, 0.2);
            let out = scaled(tape, normal, factors);
            let both = beside(tape, out, sums);
            loss_of(tape, both)
        });
        let mut tape = Tape::new(&parameters);
        let x = tape.input(Value::plain(numbers(18), 3));
        let sums = layer.forward(&mut tape, x);
        let (normal, moments) = norm.forward(&mut tape, sums);
        let (expected, mut rows) = (tape.value(normal).data.clone(), tape.value(sums).data.clone());
        let mut trained = parameters.clone();
        (0..200).for_each(|_| norm.remember(&mut trained, &moments, 1_000_000));
        norm.apply(&trained, &mut rows);
        assert!(
            rows.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-3),
            "the running moments are those of the batch"
        );
    }

    #[test]
    fn a_sample_has_right_gradients_by_mean_and_variance() {
        let (mut parameters, mut rng) = (Parameters::default(), rng());
        let mean = Linear::new(&mut parameters, "mean", [3, 2], Activation::None, &mut rng);
        let variance = Linear::new(&mut parameters, "variance", [3, 2], Activation::None, &mut rng);
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::plain(numbers(9), 3));
            let (mean, log_variance) = (mean.forward(tape, x), variance.forward(tape, x));
            let z = sample(tape, mean, log_variance, numbers(6));
            let (off, far) = (loss_of(tape, z), divergence(tape, mean, log_variance, 0.3));
            let (near, large) = (add(tape, off, far), norm(tape, mean, 0.2));
            add(tape, near, large)
        });
    }

    #[test]
    fn convolutions_of_pictures_have_right_gradients() {
        let windows = |width, stride, border| Windows { width, stride, border };
        let cases = [
            (windows(3, 1, Border::Even(1)), 7),
            (windows(3, 2, Border::Same), 8),
            (windows(5, 2, Border::Same), 7),
            (windows(1, 1, Border::Even(0)), 5),
            (windows(4, 3, Border::Even(2)), 9),
        ];
        for (windows, side) in cases {
            let (mut parameters, mut rng) = (Parameters::default(), rng());
            let first = Conv2d::new(&mut parameters, "first", windows, [2, 3], Rectifier::Relu, &mut rng);
            let deep = Depthwise::new(&mut parameters, "deep", windows, 3, Rectifier::None, &mut rng);
            let last = Conv2d::new(&mut parameters, "last", windows, [3, 2], Rectifier::None, &mut rng);
            assert_gradients(&parameters, |tape| {
                let x = tape.input(Value::pictures(numbers(2 * side * side * 2), side, side, 2));
                let hidden = first.forward(tape, x);
                let hidden = deep.forward(tape, hidden);
                let out = last.forward(tape, hidden);
                loss_of(tape, out)
            });
        }
    }

    #[test]
    fn pooled_pictures_have_right_gradients() {
        let (mut parameters, mut rng) = (Parameters::default(), rng());
        let windows = Windows { width: 3, stride: 1, border: Border::Even(1) };
        let conv = Conv2d::new(&mut parameters, "conv", windows, [1, 3], Rectifier::Relu6, &mut rng);
        let pool = Windows { width: 2, stride: 2, border: Border::Even(0) };
        let layer = Linear::new(&mut parameters, "layer", [3 * 3 * 3, 4], Activation::None, &mut rng);
        let narrow = Linear::new(&mut parameters, "narrow", [3, 4], Activation::None, &mut rng);
        assert_gradients(&parameters, |tape| {
            let x = tape.input(Value::pictures(numbers(2 * 49), 7, 7, 1));
            let hidden = conv.forward(tape, x);
            let small = max_pool(tape, pool, hidden);
            let rows = as_rows(tape, small);
            let (wide, mean) = (layer.forward(tape, rows), mean_pool(tape, small));
            let means = narrow.forward(tape, mean);
            let logits = add(tape, wide, means);
            class_entropy(tape, logits, &[1, 3], &[0.5, 0.25])
        });
    }
}
