//! Element-wise products, concatenation of columns, and weighted sums.
//!
//! A rectifier, leaky or not, and dropout multiply every number by a factor that does not change for small
//! changes of the number, so in the backward pass the factors are constants.

use super::loss::known;
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var};

/// Multiplies each number by its own factor.
///
/// # Panics
/// If there is not one factor for each number.
pub fn scaled(tape: &mut Tape<'_>, x: Var, factors: Vec<f32>) -> Var {
    let mut value = tape.value(x).clone();
    assert_eq!(value.data.len(), factors.len(), "there is not one factor for each number");
    value.data.iter_mut().zip(&factors).for_each(|(value, factor)| *value *= factor);
    tape.push(value, Scaled { x, factors })
}

/// The factors of a leaky rectifier: one above zero, `slope` elsewhere.
pub fn leaky(values: &[f32], slope: f32) -> Vec<f32> {
    values.iter().map(|value| if *value > 0.0 { 1.0 } else { slope }).collect()
}

struct Scaled {
    x: Var,
    factors: Vec<f32>,
}

impl Operation for Scaled {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let products = gradient.iter().zip(&self.factors).map(|(gradient, factor)| gradient * factor);
        back.give(self.x, products.collect());
    }
}

/// The columns of one value, then those of the other: concatenation.
///
/// # Panics
/// If they have different numbers of rows.
pub fn beside(tape: &mut Tape<'_>, one: Var, other: Var) -> Var {
    let (a, b) = (tape.value(one), tape.value(other));
    assert!(
        a.n_samples == b.n_samples && a.layout == Layout::Plain,
        "the values have different numbers of rows"
    );
    let widths = [a.n_columns, b.n_columns];
    let mut data = Vec::with_capacity(a.data.len() + b.data.len());
    for (a, b) in a.data.chunks_exact(widths[0]).zip(b.data.chunks_exact(widths[1])) {
        data.extend_from_slice(a);
        data.extend_from_slice(b);
    }
    tape.push(Value::plain(data, widths[0] + widths[1]), Beside { one, other, widths })
}

struct Beside {
    one: Var,
    other: Var,
    widths: [usize; 2],
}

impl Operation for Beside {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let [first, second] = self.widths;
        for (value, columns) in [(self.one, 0..first), (self.other, first..first + second)] {
            if back.is_wanted(value) {
                let mut part = Vec::with_capacity(gradient.len() / (first + second) * columns.len());
                for row in gradient.chunks_exact(first + second) {
                    part.extend_from_slice(&row[columns.clone()]);
                }
                back.give(value, part);
            }
        }
    }
}

/// The sum of numbers times weights: a loss whose gradient is the weights.
///
/// # Panics
/// If there is not one weight for each number.
pub fn weighted_sum(tape: &mut Tape<'_>, x: Var, weights: Vec<f32>) -> Var {
    let value = tape.value(x);
    assert_eq!(value.data.len(), weights.len(), "there is not one weight for each number");
    let sum: f64 = value.data.iter().zip(&weights).map(|(value, weight)| f64::from(value * weight)).sum();
    known(tape, x, sum, weights)
}
