//! The four rates of a thread: how it spent its time.

use crate::mode::{Mode, Ticks};

/// How far from one the sum of four rates may lie.
pub const SUM_TOLERANCE: f32 = 1e-5;

/// Four numbers that are not fractions of one whole.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("rates {0:?} are not four fractions that sum to one")]
pub struct RatesError(pub [f32; 4]);

/// Fractions of time spent in user (with nice), system, iowait and everything else.
/// Each lies between zero and one, and they sum to one.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(transparent)]
pub struct Rates([f32; 4]);

impl Rates {
    /// The channels, in the order of [`as_array`](Self::as_array).
    pub const CHANNELS: [&'static str; 4] = ["user", "system", "iowait", "other"];
    /// A thread that did nothing.
    pub const IDLE: Self = Self([0.0, 0.0, 0.0, 1.0]);

    /// Checks four rates.
    pub fn new(rates: [f32; 4]) -> Result<Self, RatesError> {
        let shares = rates.iter().all(|rate| (0.0..=1.0).contains(rate));
        let sum: f32 = rates.iter().sum();
        if shares && (sum - 1.0).abs() <= SUM_TOLERANCE { Ok(Self(rates)) } else { Err(RatesError(rates)) }
    }

    /// The rates of a time in which these ticks were spent; none if there were no ticks.
    pub fn from_ticks(spent: &Ticks) -> Option<Self> {
        let total = spent.total();
        let user = spent[Mode::User] as f64 + spent[Mode::Nice] as f64;
        let (system, iowait) = (spent[Mode::System] as f64, spent[Mode::Iowait] as f64);
        (total > 0).then(|| Self::from_parts(user, system, iowait, total as f64))
    }

    /// The rates of `total` ticks, given the ticks of three channels.
    #[inline]
    pub(crate) fn from_parts(user: f64, system: f64, iowait: f64, total: f64) -> Self {
        let share = 1.0 / total;
        let (user, system, iowait) = (user * share, system * share, iowait * share);
        let other = (1.0 - user - system - iowait).max(0.0);
        Self([user as f32, system as f32, iowait as f32, other as f32])
    }

    /// User time, including nice.
    pub const fn user(self) -> f32 {
        self.0[0]
    }

    /// System time.
    pub const fn system(self) -> f32 {
        self.0[1]
    }

    /// Time waiting for I/O.
    pub const fn iowait(self) -> f32 {
        self.0[2]
    }

    /// Everything else: idle, interrupts, steal.
    pub const fn other(self) -> f32 {
        self.0[3]
    }

    /// The rates in the order of [`CHANNELS`](Self::CHANNELS).
    pub const fn as_array(&self) -> &[f32; 4] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rates_of_any_ticks_sum_to_one(ticks in prop::array::uniform8(0u64..1 << 50)) {
            match Rates::from_ticks(&Ticks(ticks)) {
                Some(rates) => prop_assert!(Rates::new(*rates.as_array()).is_ok(), "{rates:?}"),
                None => prop_assert_eq!(Ticks(ticks).total(), 0),
            }
        }
    }

    #[test]
    fn nice_counts_as_user_and_interrupts_as_other() {
        let rates = Rates::from_ticks(&Ticks([10, 20, 5, 40, 15, 3, 3, 4])).unwrap();
        assert_eq!(rates.as_array(), &[0.3, 0.05, 0.15, 0.5]);
    }

    #[test]
    fn rates_that_do_not_sum_to_one_are_rejected() {
        assert!(Rates::new([0.5, 0.5, 0.5, 0.0]).is_err());
        assert!(Rates::new([-0.5, 0.5, 0.5, 0.5]).is_err());
        assert!(Rates::new([f32::NAN, 0.0, 0.0, 1.0]).is_err());
    }

    #[test]
    fn ticks_near_overflow_still_give_rates() {
        let rates = Rates::from_ticks(&Ticks([u64::MAX; 8])).unwrap();
        assert!(rates.as_array().iter().all(|rate| rate.is_finite()));
    }
}
