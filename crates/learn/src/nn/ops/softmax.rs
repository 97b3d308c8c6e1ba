//! Shares of one at each step: `exp` of each channel over the sum of all.

use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var};

/// Over the columns of each row; rows between samples stay zero.
pub fn softmax(tape: &mut Tape<'_>, x: Var) -> Var {
    let input = tape.value(x);
    let n_columns = input.n_columns;
    let mut out = Value::zeros(input.n_samples, n_columns, input.layout);
    for_each_row(input.layout, input.n_samples, n_columns, |at| {
        shares(&input.data[at..at + n_columns], &mut out.data[at..at + n_columns]);
    });
    let kept = out.data.clone();
    tape.push(out, Softmax { x, kept })
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
    };
    for sample in 0..n_samples {
        let first = layout.row(sample);
        (first..first + n_steps).for_each(|row| visit(row * n_columns));
    }
}

struct Softmax {
    x: Var,
    kept: Vec<f32>,
}

impl Operation for Softmax {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let input = back.value(self.x);
        let (layout, n_samples, n_columns) = (input.layout, input.n_samples, input.n_columns);
        let mut of_x = vec![0.0; self.kept.len()];
        for_each_row(layout, n_samples, n_columns, |at| {
            let (shares, gradient) = (&self.kept[at..at + n_columns], &gradient[at..at + n_columns]);
            let along: f32 = shares.iter().zip(gradient).map(|(share, gradient)| share * gradient).sum();
            for (of_x, (share, gradient)) in of_x[at..].iter_mut().zip(shares.iter().zip(gradient)) {
                *of_x = share * (gradient - along);
            }
        });
        back.give(self.x, of_x);
    }
}
