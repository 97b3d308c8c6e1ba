//! Bins of numbers that do not depend on any data.

use std::f64::consts::LN_2;
use std::sync::LazyLock;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Fine bins per doubling of `1 + x`.
const PER_DOUBLING: usize = 4;
/// Numbers up to about 2³².
const N_DOUBLINGS: usize = 32;
const N_SMOOTH: usize = PER_DOUBLING * N_DOUBLINGS;

/// Bins of their own, before the smooth ones and the round numbers.
pub const UNKNOWN: usize = 0;
/// Batch systems write -1 for what they do not know. Other negative numbers count as the same.
pub const NEGATIVE: usize = 1;
const ZERO: usize = 2;
const N_SPECIAL: usize = 3;

/// Numbers that people ask for, each with a bin of its own: small counts, powers of two, minutes and hours.
static ROUND_NUMBERS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let counts = 1..=32;
    let powers = (6..=24).flat_map(|power| [1 << power, 3 << (power - 1)]);
    let decimals = (2..=8).flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)));
    let minutes = [1, 2, 5, 10, 15, 20, 25, 30, 40, 45, 50, 90, 150].map(|minutes| minutes * 60);
    let hours = (1..=24).chain([30, 36, 48, 60, 72, 96, 120, 144, 168, 240, 336]).map(|hours| hours * 3_600);
    let mut all: Vec<u64> = counts.chain(powers).chain(decimals).chain(minutes).chain(hours).collect();
    all.sort_unstable();
    all.dedup();
    all
});

/// Zero, and the bins of fractions below one.
pub fn below_one() -> impl Iterator<Item = usize> {
    std::iter::once(ZERO).chain(N_SPECIAL..N_SPECIAL + PER_DOUBLING)
}

pub fn n_fine() -> usize {
    N_SPECIAL + N_SMOOTH + ROUND_NUMBERS.len()
}

pub const N_COARSE: usize = N_SPECIAL + N_DOUBLINGS;
/// Coarse bins for pairs of consecutive intervals, whose noise is larger.
pub const N_COARSEST: usize = N_SPECIAL + N_DOUBLINGS / 2;

pub fn fine(value: f64) -> usize {
    if value.is_nan() {
        return UNKNOWN;
    }
    if value <= 0.0 {
        return if value < 0.0 { NEGATIVE } else { ZERO };
    }
    let is_round = value.fract() == 0.0;
    match ROUND_NUMBERS.binary_search(&(value as u64)) {
        Ok(at) if is_round => N_SPECIAL + N_SMOOTH + at,
        _ => N_SPECIAL + smooth(value),
    }
}

fn smooth(value: f64) -> usize {
    ((value.ln_1p() / LN_2 * PER_DOUBLING as f64) as usize).min(N_SMOOTH - 1)
}

/// The coarse bin of a fine one.
pub fn coarse(fine: usize) -> usize {
    match fine.checked_sub(N_SPECIAL) {
        None => fine,
        Some(at) if at < N_SMOOTH => N_SPECIAL + at / PER_DOUBLING,
        Some(at) => {
            let round = ROUND_NUMBERS.get(at - N_SMOOTH).copied().unwrap_or(1);
            N_SPECIAL + smooth(round as f64) / PER_DOUBLING
        }
    }
}

/// The coarsest bin of a coarse one.
pub fn coarsest(coarse: usize) -> usize {
    coarse.checked_sub(N_SPECIAL).map_or(coarse, |at| N_SPECIAL + at / 2)
}

/// A value in a fine bin.
pub fn value(fine: usize, rng: &mut Xoshiro256PlusPlus) -> f64 {
    match fine.checked_sub(N_SPECIAL) {
        None if fine == UNKNOWN => f64::NAN,
        None => {
            if fine == NEGATIVE {
                -1.0
            } else {
                0.0
            }
        }
        Some(at) if at < N_SMOOTH => {
            let place = (at as f64 + rng.random::<f64>()) / PER_DOUBLING as f64;
            (place * LN_2).exp_m1()
        }
        Some(at) => ROUND_NUMBERS.get(at - N_SMOOTH).map_or(0.0, |round| *round as f64),
    }
}

/// The smallest and the largest value of any bin.
pub fn range() -> (f64, f64) {
    (-1.0, (N_DOUBLINGS as f64 * LN_2).exp_m1())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn values_are_in_their_bins() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        for number in [-5.0, 0.0, 0.25, 1.0, 33.0, 64.0, 3_600.0, 3_601.0, 86_400.5, 4e9, 1e300] {
            let bin = fine(number);
            assert!(bin < n_fine() && coarse(bin) < N_COARSE && coarsest(coarse(bin)) < N_COARSEST);
            for _ in 0..20 {
                let again = value(bin, &mut rng);
                assert_eq!(coarse(fine(again)), coarse(bin), "{number} became {again}");
                assert!((range().0..=range().1).contains(&again));
            }
        }
        assert!(value(fine(f64::NAN), &mut rng).is_nan());
        assert_eq!(value(fine(3_600.0), &mut rng), 3_600.0);
        assert_eq!(value(fine(-7.0), &mut rng), -1.0);
    }
}
