//! Compares gradients with finite differences, one parameter at a time. Every operation has to pass.

use super::parameters::Parameters;
use super::tape::{Tape, Var};

/// How far a parameter is moved to either side.
const STEP: f32 = 2e-3;
/// The greatest relative error of the gradient of a parameter tensor.
const MAX_RELATIVE_ERROR: f64 = 0.01;
/// The rounding error of a finite difference, relative to the loss: `f32` has 24 bits.
const ROUNDING: f64 = 2.0 * (f32::EPSILON / STEP) as f64;

/// Compares the gradient of a loss with respect to every parameter tensor with finite differences.
///
/// Each tensor has to agree by itself, so that the bias of a large layer counts as much as its weights.
/// A rectifier or a maximum may switch within the step; there, the gradient has to lie between the
/// differences to the left and to the right.
///
/// # Panics
/// If a tensor does not agree, or its gradient is too small to be compared.
pub fn assert_gradients(parameters: &Parameters, loss: impl Fn(&mut Tape<'_>) -> Var) {
    let loss_at = |parameters: &Parameters| {
        let mut tape = Tape::new(parameters);
        let loss = loss(&mut tape);
        f64::from(tape.scalar(loss))
    };
    let mut gradients = vec![0.0; parameters.values().len()];
    let mut tape = Tape::new(parameters);
    let last = loss(&mut tape);
    tape.backward(last, &mut gradients);
    let here = loss_at(parameters);
    let noise = ROUNDING * here.abs().max(0.1);
    let mut first = 0;
    for (name, _, values) in parameters.iter() {
        let range = first..first + values.len();
        first = range.end;
        let (mut error, mut size) = (0.0, 0.0);
        for index in range.clone() {
            let moved = |by: f32| {
                let mut there = parameters.clone();
                there.values_mut()[index] += by;
                loss_at(&there)
            };
            let left = (here - moved(-STEP)) / f64::from(STEP);
            let right = (moved(STEP) - here) / f64::from(STEP);
            let gradient = f64::from(gradients[index]);
            let nearest = gradient.clamp(left.min(right), left.max(right));
            error += (gradient - nearest).powi(2);
            size += ((left + right) / 2.0).powi(2);
        }
        let (error, size) = (error.sqrt(), size.sqrt());
        let noise = noise * (values.len() as f64).sqrt();
        if gradients[range].iter().all(|gradient| *gradient == 0.0) {
            assert!(size <= noise, "{name}: the gradient is zero, but the loss changes by {size}");
            continue;
        }
        assert!(size > 10.0 * noise, "{name}: a gradient of {size} is too small to be compared");
        let relative = (error - noise).max(0.0) / size;
        assert!(relative <= MAX_RELATIVE_ERROR, "{name}: the gradient is off by {relative:.3} of its norm");
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::nn::ops::elementwise::weighted_sum;
    use crate::nn::parameters::ParameterId;
    use crate::nn::tape::{Back, Operation, Value};

    /// x · w + b for one output, whose bias gradient is wrong by a factor.
    struct Affine {
        x: Var,
        weight: ParameterId,
        bias: ParameterId,
        factor: f32,
    }

    impl Operation for Affine {
        fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
            let (x, weight) = back.value_and_parameter(self.x, self.weight);
            for (weight, x) in weight.iter_mut().zip(&x.data) {
                *weight += gradient[0] * x;
            }
            back.of_parameter(self.bias)[0] += gradient[0] * self.factor;
        }
    }

    /// A layer of 100 weights and a bias: the bias is one parameter in 101.
    fn check(factor: f32) {
        let mut parameters = Parameters::default();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let weight = parameters.add("weight", &[100], 1, &mut rng);
        let bias = parameters.add("bias", &[1], 1, &mut rng);
        assert_gradients(&parameters, |tape| {
            let data: Vec<f32> = (0..100).map(|at| (at as f32 * 0.618).fract() - 0.5).collect();
            let products = data.iter().zip(tape.parameters.get(weight)).map(|(x, weight)| x * weight);
            let sum = products.sum::<f32>() + tape.parameters.get(bias)[0];
            let x = tape.input(Value::plain(data, 100));
            let out = tape.push(Value::plain(vec![sum], 1), Affine { x, weight, bias, factor });
            weighted_sum(tape, out, vec![0.5])
        });
    }

    #[test]
    fn a_right_gradient_passes() {
        check(1.0);
    }

    #[test]
    #[should_panic(expected = "bias: the gradient is off")]
    fn a_bias_that_is_wrong_by_a_twentieth_is_found_among_a_hundred_weights() {
        check(1.05);
    }

    #[test]
    #[should_panic(expected = "bias: the gradient is zero")]
    fn a_bias_without_a_gradient_is_found() {
        check(0.0);
    }
}
