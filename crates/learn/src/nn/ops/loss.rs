//! Losses.

use super::softmax::for_each_row;
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var};
use crate::stats::softmax_into;

/// A lower bound of probabilities before their logarithm is taken.
const MIN_PROBABILITY: f32 = 1e-7;

/// The sum of squared differences from `target`, times `scale`; padding does not count.
///
/// # Panics
/// If the target has another shape.
pub fn squared_error(tape: &mut Tape<'_>, x: Var, target: Value, scale: f32) -> Var {
    let input = tape.value(x);
    assert!(
        input.layout == target.layout
            && input.n_columns == target.n_columns
            && input.n_samples == target.n_samples,
        "the target has another shape"
    );
    let mut sum = 0.0f64;
    let mut kept = vec![0.0; target.data.len()];
    for_each_row(input.layout, input.n_samples, input.n_columns, |at| {
        let row = at..at + input.n_columns;
        let values = input.data[row.clone()].iter().zip(&target.data[row.clone()]);
        for (slope, (value, target)) in kept[row].iter_mut().zip(values) {
            let difference = value - target;
            sum += f64::from(difference * difference);
            *slope = 2.0 * scale * difference;
        }
    });
    known(tape, x, sum * f64::from(scale), kept)
}

/// A loss whose gradient is known when it is computed.
///
/// # Panics
/// If there is not one slope for each number.
pub fn known(tape: &mut Tape<'_>, x: Var, loss: f64, slopes: Vec<f32>) -> Var {
    assert_eq!(tape.value(x).data.len(), slopes.len(), "there is not one slope for each number");
    tape.push(Value::plain(vec![loss as f32], 1), Known { x, slopes })
}

struct Known {
    x: Var,
    slopes: Vec<f32>,
}

impl Operation for Known {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        back.give(self.x, self.slopes.iter().map(|slope| slope * gradient[0]).collect());
    }
}

/// The cross entropy of each row's class under the softmax of its columns, summed with a weight per row.
///
/// # Panics
/// If there is not one class and one weight for each row.
pub fn class_entropy(tape: &mut Tape<'_>, logits: Var, classes: &[usize], weights: &[f32]) -> Var {
    let input = tape.value(logits);
    let n_columns = input.n_columns;
    assert!(
        input.layout == Layout::Plain && input.n_samples == classes.len() && classes.len() == weights.len(),
        "there is not one class for each row"
    );
    let mut slopes = vec![0.0; input.data.len()];
    let mut sum = 0.0f64;
    let rows = input.data.chunks_exact(n_columns).zip(slopes.chunks_exact_mut(n_columns));
    for ((row, slopes), (class, weight)) in rows.zip(classes.iter().zip(weights)) {
        softmax_into(row, slopes);
        sum -= f64::from(weight * slopes[*class].max(MIN_PROBABILITY).ln());
        slopes[*class] -= 1.0;
        slopes.iter_mut().for_each(|slope| *slope *= weight);
    }
    known(tape, logits, sum, slopes)
}

/// The cross entropy of the first `n_probabilities` columns, which sum to one in each row, summed and times
/// `scale`. Unlike a squared error, it has a steep gradient where a softmax is certain of a wrong column.
///
/// # Panics
/// If the target has another shape.
pub fn cross_entropy(tape: &mut Tape<'_>, x: Var, target: &Value, n_probabilities: usize, scale: f32) -> Var {
    let input = tape.value(x);
    assert!(
        input.layout == target.layout && input.data.len() == target.data.len(),
        "the target has another shape"
    );
    let mut sum = 0.0f64;
    let mut kept = vec![0.0; input.data.len()];
    for_each_row(input.layout, input.n_samples, input.n_columns, |at| {
        let row = at..at + n_probabilities;
        let pairs = input.data[row.clone()].iter().zip(&target.data[row.clone()]);
        for (slope, (probability, target)) in kept[row].iter_mut().zip(pairs) {
            let probability = probability.max(MIN_PROBABILITY);
            sum -= f64::from(target * probability.ln());
            *slope = -scale * target / probability;
        }
    });
    known(tape, x, sum * f64::from(scale), kept)
}

/// Half the sum of squares, times `scale`.
pub fn norm(tape: &mut Tape<'_>, x: Var, scale: f32) -> Var {
    let values = &tape.value(x).data;
    let sum: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / 2.0;
    let slopes = values.iter().map(|value| scale * value).collect();
    known(tape, x, sum * f64::from(scale), slopes)
}

/// The Kullback–Leibler divergence of normal distributions with these means and logarithms of variances from
/// the standard normal distribution, summed and times `scale`.
pub fn divergence(tape: &mut Tape<'_>, mean: Var, log_variance: Var, scale: f32) -> Var {
    let (means, logs) = (&tape.value(mean).data, &tape.value(log_variance).data);
    let term = |(mean, log): (&f32, &f32)| f64::from(mean * mean + log.exp() - 1.0 - log);
    let sum: f64 = means.iter().zip(logs).map(term).sum::<f64>() / 2.0;
    let value = Value::plain(vec![(sum * f64::from(scale)) as f32], 1);
    tape.push(value, Divergence { mean, log_variance, scale })
}

struct Divergence {
    mean: Var,
    log_variance: Var,
    scale: f32,
}

impl Operation for Divergence {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let scale = self.scale * gradient[0];
        let of_mean = back.value(self.mean).data.iter().map(|mean| scale * mean).collect();
        let of_log =
            back.value(self.log_variance).data.iter().map(|log| scale * 0.5 * (log.exp() - 1.0)).collect();
        back.give(self.mean, of_mean);
        back.give(self.log_variance, of_log);
    }
}
