//! A differentiable sample of a normal distribution (the reparameterisation trick):
//! `mean + exp(log_variance / 2) · noise`.

use crate::nn::tape::{Back, Operation, Tape, Value, Var};

/// # Panics
/// If there is not one noise value for each mean.
pub fn sample(tape: &mut Tape<'_>, mean: Var, log_variance: Var, noise: Vec<f32>) -> Var {
    let (means, logs) = (tape.value(mean), tape.value(log_variance));
    assert_eq!(means.data.len(), noise.len(), "there is not one noise value for each mean");
    let drawn = means.data.iter().zip(&logs.data).zip(&noise);
    let data = drawn.map(|((mean, log), noise)| mean + (0.5 * log).exp() * noise).collect();
    let value = Value { data, ..means.clone() };
    tape.push(value, Sample { mean, log_variance, noise })
}

struct Sample {
    mean: Var,
    log_variance: Var,
    noise: Vec<f32>,
}

impl Operation for Sample {
    fn backward(&self, gradient: &[f32], back: &mut Back<'_>) {
        let logs = &back.value(self.log_variance).data;
        let terms = gradient.iter().zip(logs).zip(&self.noise);
        let of_log =
            terms.map(|((gradient, log), noise)| gradient * 0.5 * (0.5 * log).exp() * noise).collect();
        back.give(self.mean, gradient.to_vec());
        back.give(self.log_variance, of_log);
    }
}
