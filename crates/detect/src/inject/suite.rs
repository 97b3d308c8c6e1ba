//! A suite of injected faults of every kind and strength, and faults in training data.

use std::ops::Range;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Fault, into_batch};
use crate::evaluate::InjectedCase;
use crate::sample::Sample;
use crate::window::WindowBatch;

/// Strengths from barely visible to obvious. The intermediate ones are used to compare detectors.
pub(super) const STRENGTHS: [f32; 5] = [0.05, 0.1, 0.2, 0.3, 0.6];
const INTERMEDIATE: Range<usize> = 1..4;

/// Every kind of fault at every strength, injected into normal batches.
pub fn cases(normal: &[WindowBatch], seed: u64) -> Vec<InjectedCase> {
    let mut cases = Vec::new();
    for fault in Fault::ALL {
        for (index, strength) in STRENGTHS.into_iter().enumerate() {
            let mut batches = normal.to_vec();
            let is_in = batches.iter_mut().map(|batch| into_batch(batch, fault, strength, seed)).collect();
            let is_subtle = INTERMEDIATE.contains(&index);
            cases.push(InjectedCase { fault: fault.name().into(), strength, is_subtle, batches, is_in });
        }
    }
    cases
}

/// Injects faults of every kind and of intermediate strength or more into a fraction of the windows; returns into how
/// many.
pub fn contaminate(sample: &mut Sample, fraction: f64, seed: u64) -> usize {
    let wanted = (sample.n_windows() as f64 * fraction) as usize;
    let mut order: Vec<usize> = (0..sample.batches.len()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut n_bad = 0;
    for (turn, batch) in order.into_iter().enumerate() {
        if n_bad >= wanted {
            break;
        }
        let fault = Fault::ALL[turn % Fault::ALL.len()];
        let strength = STRENGTHS[2 + turn % (STRENGTHS.len() - 2)];
        let is_in = into_batch(&mut sample.batches[batch], fault, strength, seed);
        n_bad += is_in.into_iter().filter(|is_in| *is_in).count();
    }
    n_bad
}
