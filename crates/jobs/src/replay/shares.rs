//! What users were given lately: node seconds, of which older ones count less.

use std::collections::HashMap;

/// After this time, node seconds count half.
const HALF_LIFE_SECONDS: f64 = 7.0 * 86_400.0;

/// Requested node seconds of the jobs that were started, by user.
///
/// Instead of letting old charges shrink, new ones grow. They are kept as logarithms, which stay small for long traces.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    log2_charged: HashMap<u32, f64>,
}

impl Shares {
    /// A number that grows with what a user was given.
    pub fn of(&self, user: u32) -> f64 {
        self.log2_charged.get(&user).copied().unwrap_or(f64::NEG_INFINITY)
    }

    pub(super) fn charge(&mut self, user: u32, node_seconds: f64, now: f64) {
        let charged = node_seconds.log2() + now / HALF_LIFE_SECONDS;
        let total = self.log2_charged.entry(user).or_insert(f64::NEG_INFINITY);
        let (larger, smaller) = if *total > charged { (*total, charged) } else { (charged, *total) };
        *total = larger + (smaller - larger).exp2().ln_1p() / std::f64::consts::LN_2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_and_old_ones_count_less() {
        let mut shares = Shares::default();
        assert_eq!(shares.of(1), f64::NEG_INFINITY);
        shares.charge(1, 300.0, 0.0);
        shares.charge(1, 100.0, 0.0);
        assert!((shares.of(1) - 400f64.log2()).abs() < 1e-9);
        shares.charge(2, 210.0, HALF_LIFE_SECONDS);
        assert!(shares.of(2) > shares.of(1), "400 node seconds of a week ago count as 200");
        let centuries = 1e6 * HALF_LIFE_SECONDS;
        shares.charge(1, 1.0, centuries);
        assert!(shares.of(1).is_finite() && shares.of(1) > shares.of(2));
    }
}
