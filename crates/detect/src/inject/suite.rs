//! Trouble of every kind and strength, to judge detectors by; and trouble in what they learn from.

use std::ops::Range;

use crate::evaluate::Case;
use crate::{Moment, Sample};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Trouble, into_moment};

/// Strengths from hardly there to blatant; those in the middle are what detectors are compared by.
pub(super) const STRENGTHS: [f32; 5] = [0.05, 0.1, 0.2, 0.3, 0.6];
const MIDDLE: Range<usize> = 1..4;

/// Every kind of trouble at every strength, in normal moments.
pub fn cases(normal: &[Moment], seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for trouble in Trouble::ALL {
        for (index, strength) in STRENGTHS.into_iter().enumerate() {
            let mut moments = normal.to_vec();
            let is_in =
                moments.iter_mut().map(|moment| into_moment(moment, trouble, strength, seed)).collect();
            let is_subtle = MIDDLE.contains(&index);
            cases.push(Case { trouble: trouble.name().into(), strength, is_subtle, moments, is_in });
        }
    }
    cases
}

/// Puts trouble of every kind, from the middle strengths up, into a share of the windows; returns into how many.
pub fn contaminate(sample: &mut Sample, share: f64, seed: u64) -> usize {
    let wanted = (sample.n_windows() as f64 * share) as usize;
    let mut order: Vec<usize> = (0..sample.moments.len()).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut n_bad = 0;
    for (turn, moment) in order.into_iter().enumerate() {
        if n_bad >= wanted {
            break;
        }
        let trouble = Trouble::ALL[turn % Trouble::ALL.len()];
        let strength = STRENGTHS[2 + turn % (STRENGTHS.len() - 2)];
        let is_in = into_moment(&mut sample.moments[moment], trouble, strength, seed);
        n_bad += is_in.into_iter().filter(|is_in| *is_in).count();
    }
    n_bad
}
