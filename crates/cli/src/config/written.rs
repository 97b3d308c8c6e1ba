//! Settings that are written with a unit, such as `15s` or `16MiB`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use workload::units::{parse_bytes, parse_duration};

const BINARY_UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A value that is written with its unit, together with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    pub value: T,
    text: String,
}

impl<T> Written<T> {
    pub fn new(value: T, text: &str) -> Self {
        Self { value, text: text.to_owned() }
    }
}

impl Written<u64> {
    /// Bytes in the largest unit in which they are a whole number.
    pub fn bytes(value: u64) -> Self {
        let (unit, factor) =
            BINARY_UNITS.into_iter().find(|(_, factor)| value.is_multiple_of(*factor)).unwrap_or(("B", 1));
        Self { value, text: format!("{}{unit}", value / factor) }
    }
}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

fn written<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Written<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let value = parse(&text).map_err(|reason| serde::de::Error::custom(format!("{text:?}: {reason}")))?;
    Ok(Written { value, text })
}

impl<'de> Deserialize<'de> for Written<Duration> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, parse_duration)
    }
}

impl<'de> Deserialize<'de> for Written<u64> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        written(deserializer, parse_bytes)
    }
}
