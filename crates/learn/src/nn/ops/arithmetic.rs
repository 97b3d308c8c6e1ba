//! Addition.

use crate::nn::tape::{Back, Operation, Tape, Var, add as add_to};

/// The sum of two values of the same shape.
///
/// # Panics
/// If their shapes differ.
pub fn add(tape: &mut Tape<'_>, one: Var, other: Var) -> Var {
    let mut sum = tape.value(one).clone();
    let second = tape.value(other);
    assert!(sum.layout == second.layout && sum.data.len() == second.data.len(), "the shapes differ");
    add_to(&mut sum.data, &second.data);
    tape.push(sum, Add { one, other })
}

struct Add {
    one: Var,
    other: Var,
}

impl Operation for Add {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        back.give(self.one, gradient.to_vec());
        back.give(self.other, gradient.to_vec());
    }
}
