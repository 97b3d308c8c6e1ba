//! Moments and lengths of time, in whole milliseconds.
//!
//! As data, a [`Timestamp`] is a number of seconds since the epoch. Stored formats that hold
//! milliseconds name [`epoch_millis`] explicitly.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Millis {
    /// One second.
    pub const SECOND: Self = Self(1_000);
    /// One hour.
    pub const HOUR: Self = Self(3_600_000);
    /// One day.
    pub const DAY: Self = Self(86_400_000);

    /// A number of whole seconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds * 1_000)
    }

    /// The length in seconds.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A moment: milliseconds since the Unix epoch, UTC. Serialised as seconds since the epoch: a whole
/// number, or one with a fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 1_000 {
            0 => serializer.serialize_i64(self.0 / 1_000),
            _ => serializer.serialize_f64(self.0 as f64 / 1e3),
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(|seconds| Self((seconds * 1e3).round() as i64))
    }
}

impl Timestamp {
    /// Before every moment.
    pub const MIN: Self = Self(i64::MIN);
    /// After every moment.
    pub const MAX: Self = Self(i64::MAX);

    /// A moment at a whole second.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds * 1_000)
    }

    /// The latest multiple of `step` that is not after this moment.
    #[must_use]
    pub const fn floor(self, step: Millis) -> Self {
        Self(self.0.saturating_sub(self.0.rem_euclid(step.0)))
    }

    /// Epoch seconds as people write them: whole, or with three decimals.
    pub fn as_epoch_seconds(self) -> EpochSeconds {
        EpochSeconds(self)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(moment: SystemTime) -> Self {
        Self(Millis::from(moment.duration_since(UNIX_EPOCH).unwrap_or_default()).0)
    }
}

impl Add<Millis> for Timestamp {
    type Output = Self;
    fn add(self, length: Millis) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Sub<Millis> for Timestamp {
    type Output = Self;
    fn sub(self, length: Millis) -> Self {
        Self(self.0.saturating_sub(length.0))
    }
}

impl Sub for Timestamp {
    type Output = Millis;
    fn sub(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// Moments in stored formats, as whole milliseconds since the epoch: `#[serde(with = "epoch_millis")]`.
pub mod epoch_millis {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Timestamp;

    /// Writes milliseconds.
    pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(time.0)
    }

    /// Reads milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(deserializer).map(Timestamp)
    }
}

/// Displays a [`Timestamp`] as epoch seconds.
#[derive(Debug, Clone, Copy)]
pub struct EpochSeconds(Timestamp);

impl fmt::Display for EpochSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, millis) = (if self.0.0 < 0 { "-" } else { "" }, self.0.0.unsigned_abs());
        match millis % 1_000 {
            0 => write!(f, "{sign}{}", millis / 1_000),
            rest => write!(f, "{sign}{}.{rest:03}", millis / 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_seconds_are_whole_unless_they_are_not() {
        let shown = |ms| Timestamp(ms).as_epoch_seconds().to_string();
        assert_eq!(shown(1_525_707_211_000), "1525707211");
        assert_eq!(shown(1_525_707_211_042), "1525707211.042");
        assert_eq!(shown(-1_500), "-1.500");
    }

    #[test]
    fn a_moment_is_a_number_of_seconds_and_milliseconds_only_where_asked_for() {
        #[derive(Serialize, Deserialize, PartialEq, Debug)]
        struct Both {
            shown: Timestamp,
            #[serde(with = "epoch_millis")]
            stored: Timestamp,
        }
        for (ms, text) in [(12_000, r#"{"shown":12,"stored":12000}"#), (42, r#"{"shown":0.042,"stored":42}"#)]
        {
            let both = Both { shown: Timestamp(ms), stored: Timestamp(ms) };
            assert_eq!(serde_json::to_string(&both).unwrap(), text);
            assert_eq!(serde_json::from_str::<Both>(text).unwrap(), both);
        }
    }

    #[test]
    fn the_floor_of_a_moment_before_the_epoch_is_not_after_it() {
        assert_eq!(Timestamp(-1).floor(Millis::SECOND), Timestamp(-1_000));
        assert_eq!(Timestamp(999).floor(Millis::SECOND), Timestamp(0));
        assert_eq!(Timestamp::MIN.floor(Millis::HOUR), Timestamp::MIN);
    }
}
