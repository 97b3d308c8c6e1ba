//! What ends in shares: a softmax over the columns of each step that sum to one, and a logistic function for
//! each of the others.

use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var};

/// The first `n_shares` columns of each row become shares of one, the others lie between zero and one; rows
/// between samples stay zero.
pub fn rates(tape: &mut Tape<'_>, x: Var, n_shares: usize) -> Var {
    let input = tape.value(x);
    let n_columns = input.n_columns;
    let mut out = Value::zeros(input.n_samples, n_columns, input.layout);
    for_each_row(input.layout, input.n_samples, n_columns, |at| {
        let (x, out) = (&input.data[at..at + n_columns], &mut out.data[at..at + n_columns]);
        shares(&x[..n_shares], &mut out[..n_shares]);
        let rest = out[n_shares..].iter_mut().zip(&x[n_shares..]);
        rest.for_each(|(out, x)| *out = 1.0 / (1.0 + (-x).exp()));
    });
    let kept = out.data.clone();
    tape.push(out, Rates { x, n_shares, kept })
}

/// `exp` of each over the sum of all.
pub fn shares(x: &[f32], out: &mut [f32]) {
    let most = x.iter().copied().fold(f32::MIN, f32::max);
    let mut sum = 0.0;
    for (out, x) in out.iter_mut().zip(x) {
        *out = (x - most).exp();
        sum += *out;
    }
    out.iter_mut().for_each(|out| *out /= sum);
}

/// Visits where each row of every sample begins.
pub fn for_each_row(layout: Layout, n_samples: usize, n_columns: usize, mut visit: impl FnMut(usize)) {
    let n_steps = match layout {
        Layout::Plain => 1,
        Layout::Padded { n_steps, .. } => n_steps,
        Layout::Image { height, width } => height * width,
    };
    for sample in 0..n_samples {
        let first = layout.row(sample);
        (first..first + n_steps).for_each(|row| visit(row * n_columns));
    }
}

struct Rates {
    x: Var,
    n_shares: usize,
    kept: Vec<f32>,
}

impl Operation for Rates {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let input = back.value(self.x);
        let (layout, n_samples, n_columns) = (input.layout, input.n_samples, input.n_columns);
        let mut of_x = vec![0.0; self.kept.len()];
        for_each_row(layout, n_samples, n_columns, |at| {
            let (out, gradient) = (&self.kept[at..at + n_columns], &gradient[at..at + n_columns]);
            let terms = out.iter().zip(gradient).take(self.n_shares);
            let along: f32 = terms.map(|(share, gradient)| share * gradient).sum();
            let slopes = of_x[at..].iter_mut().zip(out.iter().zip(gradient)).enumerate();
            for (column, (of_x, (out, gradient))) in slopes {
                *of_x = match column < self.n_shares {
                    true => out * (gradient - along),
                    false => out * (1.0 - out) * gradient,
                };
            }
        });
        back.give(self.x, of_x);
    }
}
