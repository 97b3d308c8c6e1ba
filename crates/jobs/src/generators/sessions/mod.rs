//! Jobs come in sessions: a user sits down, submits a few jobs much like each other, and goes.
//!
//! The course of the trace is an outer clock that cannot drift: it says who is around, and how dense jobs are. A
//! session of a user is drawn from around the clock's time, its length, its intervals, what is asked for and how it
//! ends each from other jobs of that user nearby. What people choose (sizes, requested times) is taken as it is;
//! what happens to them (intervals, run times) is blurred, so that copies are about as rare as in jobs that come later.

mod draw;
mod past;

use learn::artifact::{Tensor, Tensors};

use self::past::Past;
use super::Generator;
use crate::features::{FeatureSpec, Jobs};

#[derive(Debug, Clone)]
pub struct Sessions {
    past: Past,
}

impl Sessions {
    pub fn fit(jobs: &Jobs) -> Self {
        Self { past: Past::new(jobs) }
    }

    pub fn restore(specs: &[FeatureSpec], tensors: &Tensors) -> Option<Self> {
        let values =
            specs.iter().map(|spec| to_values(tensors.get(&spec.name)?)).collect::<Option<Vec<_>>>()?;
        let is_even = values.iter().all(|column| column.len() == values[0].len() && !column.is_empty());
        is_even.then(|| Self { past: Past::new(&Jobs { specs: specs.to_vec(), values }) })
    }
}

impl Generator for Sessions {
    fn sample(&self, n_jobs: usize, seed: u64) -> Vec<Vec<f64>> {
        draw::draw(&self.past, n_jobs, seed)
    }

    fn tensors(&self) -> Tensors {
        let columns = self.past.jobs.specs.iter().zip(&self.past.jobs.values);
        columns.map(|(spec, values)| (spec.name.clone(), to_tensor(values))).collect()
    }
}

/// Weights that a number with more digits than a weight has is the sum of.
const N_PARTS: usize = 3;

/// Numbers, part by part; and whether they are known.
fn to_tensor(values: &[f64]) -> Tensor {
    let mut rest: Vec<f64> = values.iter().map(|value| if value.is_nan() { 0.0 } else { *value }).collect();
    let mut parts: Vec<f32> = Vec::with_capacity((N_PARTS + 1) * values.len());
    for _ in 0..N_PARTS {
        for rest in &mut rest {
            let part = *rest as f32;
            parts.push(part);
            *rest -= f64::from(part);
        }
    }
    parts.extend(values.iter().map(|value| if value.is_nan() { 0.0 } else { 1.0 }));
    Tensor::new(vec![N_PARTS + 1, values.len()], parts)
}

fn to_values(tensor: &Tensor) -> Option<Vec<f64>> {
    let [_, n_values] = *tensor.shape() else { return None };
    let stored = tensor.as_f32()?;
    let at = |index: usize| {
        let part = |part: usize| f64::from(stored[part * n_values + index]);
        if part(N_PARTS) > 0.5 { (0..N_PARTS).rev().map(part).sum() } else { f64::NAN }
    };
    (stored.len() == (N_PARTS + 1) * n_values).then(|| (0..n_values).map(at).collect())
}
