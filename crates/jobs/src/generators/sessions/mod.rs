//! Jobs come in sessions: a user sits down, submits a few jobs much like each other, and goes.
//!
//! The course of the trace is an outer clock that cannot drift: it says who is around, and how dense jobs are. A
//! session of a user is drawn from around the clock's time, its length, its intervals, what is asked for and how it
//! ends each from other jobs of that user nearby. What people choose (sizes, requested times) is taken as it is;
//! what happens to them (intervals, run times) is blurred, by as much as keeps copies as rare as in jobs that come later.

mod draw;
mod past;

use std::time::{Duration, Instant};

use learn::artifact::{Tensor, Tensors};
use serde::{Deserialize, Serialize};

use self::past::Past;
use super::{Generator, Step};
use crate::fidelity::privacy::{near_copies, stretch_copies};
use crate::trace::{FeatureSpec, Jobs};

/// How much values are blurred, from hardly to plenty.
const BLURS: [f64; 5] = [0.0, 0.35, 0.7, 1.2, 2.0];
/// The part of the trace that blurs are tried on the rest with.
const LEARNT_SHARE: f64 = 0.7;
/// Copies may be more frequent than in jobs that came later by this much.
const MORE_COPIES: f64 = 0.02;
const MORE_STRETCHES: f64 = 0.001;
/// Jobs that are needed to choose a blur; with fewer it is the middle one.
const LEAST_TO_CHOOSE: usize = 500;

#[derive(Debug, Clone)]
pub struct Sessions {
    past: Past,
    settings: Settings,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How much intervals and run times differ from those of the past.
    pub blur: f64,
}

impl Sessions {
    pub fn fit(jobs: &Jobs, seed: u64, tell: &mut impl FnMut(Step)) -> Self {
        let blur = choose_blur(jobs, seed, tell);
        Self { past: Past::new(jobs), settings: Settings { blur } }
    }

    pub fn restore(specs: &[FeatureSpec], settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let settings = serde_json::from_value(settings.clone()).ok()?;
        let values =
            specs.iter().map(|spec| to_values(tensors.get(&spec.name)?)).collect::<Option<Vec<_>>>()?;
        let is_even = values.iter().all(|column| column.len() == values[0].len() && !column.is_empty());
        is_even.then(|| Self { past: Past::new(&Jobs { specs: specs.to_vec(), values }), settings })
    }
}

impl Generator for Sessions {
    fn sample(&self, n_jobs: usize, seed: u64) -> Vec<Vec<f64>> {
        draw::draw(&self.past, self.settings.blur, n_jobs, seed)
    }

    fn tensors(&self) -> Tensors {
        let columns = self.past.jobs.specs.iter().zip(&self.past.jobs.values);
        columns.map(|(spec, values)| (spec.name.clone(), to_tensor(values))).collect()
    }

    fn settings(&self) -> serde_json::Value {
        serde_json::to_value(self.settings).unwrap_or_default()
    }
}

/// The least blur with which jobs learnt from the first part of the trace are copies of it about as often as
/// the real jobs of the last part are.
fn choose_blur(jobs: &Jobs, seed: u64, tell: &mut impl FnMut(Step)) -> f64 {
    if jobs.len() < LEAST_TO_CHOOSE {
        return BLURS[BLURS.len() / 2];
    }
    let begun = Instant::now();
    let n_learnt = (jobs.len() as f64 * LEARNT_SHARE) as usize;
    let (learnt, later) = (jobs.slice(0..n_learnt), jobs.slice(n_learnt..jobs.len()));
    let past = Past::new(&learnt);
    let (usual, usual_stretches) = (near_copies(&learnt, &later), stretch_copies(&learnt, &later));
    for (index, blur) in BLURS.into_iter().enumerate() {
        let made = Jobs { specs: jobs.specs.clone(), values: draw::draw(&past, blur, later.len(), seed) };
        let left = begun.elapsed() / (index as u32 + 1) * (BLURS.len() - index - 1) as u32;
        tell(Step { done: index + 1, total: BLURS.len(), loss: None, left });
        let is_enough = near_copies(&learnt, &made) <= usual + MORE_COPIES
            && stretch_copies(&learnt, &made) <= usual_stretches + MORE_STRETCHES;
        if is_enough {
            tell(Step { done: BLURS.len(), total: BLURS.len(), loss: None, left: Duration::ZERO });
            return blur;
        }
    }
    BLURS[BLURS.len() - 1]
}

/// Numbers with more digits than a weight has, as two; and whether they are known.
fn to_tensor(values: &[f64]) -> Tensor {
    let known = |value: &f64| if value.is_nan() { 0.0 } else { *value };
    let high = values.iter().map(|value| known(value) as f32);
    let low = values.iter().map(|value| (known(value) - f64::from(known(value) as f32)) as f32);
    let is_known = values.iter().map(|value| if value.is_nan() { 0.0 } else { 1.0 });
    Tensor { shape: vec![3, values.len()], values: high.chain(low).chain(is_known).collect() }
}

fn to_values(tensor: &Tensor) -> Option<Vec<f64>> {
    let [3, n_values] = tensor.shape[..] else { return None };
    let at = |index: usize| {
        let value = f64::from(tensor.values[index]) + f64::from(tensor.values[n_values + index]);
        if tensor.values[2 * n_values + index] > 0.5 { value } else { f64::NAN }
    };
    (tensor.values.len() == 3 * n_values).then(|| (0..n_values).map(at).collect())
}
