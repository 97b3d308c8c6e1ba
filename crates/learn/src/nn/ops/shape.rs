//! From steps to one row per sample, and back.

use super::block::Resize;
use crate::nn::tape::{Back, Layout, Operation, Tape, Value, Var, add};

/// All steps of a sample in one row.
///
/// # Panics
/// If `x` has no steps.
pub fn flatten(tape: &mut Tape<'_>, x: Var) -> Var {
    let input = tape.value(x);
    let Layout::Padded { n_steps, .. } = input.layout else { panic!("there are no steps to flatten") };
    let size = n_steps * input.n_columns;
    let mut out = Value::zeros(input.n_samples, size, Layout::Plain);
    for (sample, row) in out.data.chunks_exact_mut(size).enumerate() {
        let first = input.layout.row(sample) * input.n_columns;
        row.copy_from_slice(&input.data[first..first + size]);
    }
    tape.push(out, Flatten { x, size })
}

struct Flatten {
    x: Var,
    size: usize,
}

impl Operation for Flatten {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let (layout, n_columns) = (back.value(self.x).layout, back.value(self.x).n_columns);
        let of_x = back.gradient(self.x);
        for (sample, row) in gradient.chunks_exact(self.size).enumerate() {
            let first = layout.row(sample) * n_columns;
            add(&mut of_x[first..first + self.size], row);
        }
    }
}

/// One row per sample as steps of `n_columns`, each repeated up to `n_steps` as [`Resize::Repeat`] does, in
/// the padded layout.
pub fn unflatten(tape: &mut Tape<'_>, x: Var, n_columns: usize, n_steps: usize, pad: usize) -> Var {
    let input = tape.value(x);
    let n_before = input.n_columns / n_columns;
    let layout = Layout::Padded { n_steps: Resize::Repeat { n_steps }.n_steps(n_before), pad };
    let mut out = Value::zeros(input.n_samples, n_columns, layout);
    for (sample, row) in input.data.chunks_exact(input.n_columns).enumerate() {
        let first = layout.row(sample) * n_columns;
        for (step, out) in out.data[first..].chunks_exact_mut(n_columns).take(n_steps).enumerate() {
            let from = (step / 2).min(n_before - 1) * n_columns;
            out.copy_from_slice(&row[from..from + n_columns]);
        }
    }
    tape.push(out, Unflatten { x, layout, n_columns, n_steps })
}

struct Unflatten {
    x: Var,
    layout: Layout,
    n_columns: usize,
    n_steps: usize,
}

impl Operation for Unflatten {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let size = back.value(self.x).n_columns;
        let n_before = size / self.n_columns;
        let of_x = back.gradient(self.x);
        for (sample, row) in of_x.chunks_exact_mut(size).enumerate() {
            let first = self.layout.row(sample) * self.n_columns;
            for (step, out) in gradient[first..].chunks_exact(self.n_columns).take(self.n_steps).enumerate() {
                let to = (step / 2).min(n_before - 1) * self.n_columns;
                add(&mut row[to..to + self.n_columns], out);
            }
        }
    }
}
