//! Gradients beside finite differences: what every operation has to pass.

use super::parameters::Parameters;
use super::tape::{Tape, Var};

/// Compares the gradient of a loss by every parameter with how the loss changes when it is moved. For tests.
///
/// # Panics
/// If more than a few gradients are off.
pub fn assert_gradients(parameters: &Parameters, loss: impl Fn(&mut Tape<'_>) -> Var) {
    let of = |parameters: &Parameters| {
        let mut tape = Tape::new(parameters);
        let loss = loss(&mut tape);
        f64::from(tape.scalar(loss))
    };
    let mut gradients = vec![0.0; parameters.values().len()];
    let mut tape = Tape::new(parameters);
    let last = loss(&mut tape);
    tape.backward(last, &mut gradients);
    let largest = gradients.iter().fold(0.0f32, |most, gradient| most.max(gradient.abs()));
    assert!(largest > 0.0, "nothing depends on any parameter");
    let (mut n_off, step) = (0, 5e-4);
    for (index, gradient) in gradients.iter().enumerate() {
        let moved = |by: f32| {
            let mut there = parameters.clone();
            there.values_mut()[index] += by;
            of(&there)
        };
        let slope = (moved(step) - moved(-step)) / f64::from(2.0 * step);
        let off = (slope - f64::from(*gradient)).abs();
        // A rectifier or a maximum may switch within the step; a wrong formula is wrong nearly everywhere.
        n_off += usize::from(off > 0.02 * f64::from(largest) + 2e-3);
    }
    let most = gradients.len() / 25;
    assert!(n_off <= most, "{n_off} of {} gradients are off", gradients.len());
}
