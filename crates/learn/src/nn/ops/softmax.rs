//! An output layer: a softmax over the first columns of each row, and a logistic function (sigmoid) of
//! each of the others.

use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var};
use crate::stats::softmax_into;

/// The softmax of the first `n_softmax` columns of each row, and the sigmoid of the others; the padding
/// between samples stays zero.
pub fn softmax_and_sigmoid(tape: &mut Tape<'_>, x: Var, n_softmax: usize) -> Var {
    let input = tape.value(x);
    let n_columns = input.n_columns;
    let mut out = Value::zeros(input.n_samples, n_columns, input.layout);
    for_each_row(input.layout, input.n_samples, n_columns, |at| {
        let (x, out) = (&input.data[at..at + n_columns], &mut out.data[at..at + n_columns]);
        softmax_into(&x[..n_softmax], &mut out[..n_softmax]);
        let rest = out[n_softmax..].iter_mut().zip(&x[n_softmax..]);
        rest.for_each(|(out, x)| *out = 1.0 / (1.0 + (-x).exp()));
    });
    let next = tape.next();
    tape.push(out, SoftmaxAndSigmoid { x, out: next, n_softmax })
}

/// Visits the index of the first value of each row of every sample.
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

struct SoftmaxAndSigmoid {
    x: Var,
    out: Var,
    n_softmax: usize,
}

impl Operation for SoftmaxAndSigmoid {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let input = back.value(self.x);
        let (layout, n_samples, n_columns) = (input.layout, input.n_samples, input.n_columns);
        let values = &back.value(self.out).data;
        let mut of_x = vec![0.0; values.len()];
        for_each_row(layout, n_samples, n_columns, |at| {
            let (out, gradient) = (&values[at..at + n_columns], &gradient[at..at + n_columns]);
            let terms = out.iter().zip(gradient).take(self.n_softmax);
            let along: f32 = terms.map(|(share, gradient)| share * gradient).sum();
            let slopes = of_x[at..].iter_mut().zip(out.iter().zip(gradient)).enumerate();
            for (column, (of_x, (out, gradient))) in slopes {
                *of_x = if column < self.n_softmax {
                    out * (gradient - along)
                } else {
                    out * (1.0 - out) * gradient
                };
            }
        });
        back.give(self.x, of_x);
    }
}
