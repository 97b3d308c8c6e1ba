//! Times as people write and read them.

use chrono::{DateTime, NaiveDate};
use workload::Timestamp;

/// Epoch seconds, RFC 3339, or a day.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1_000).map(Timestamp).ok_or_else(|| "it is out of range".into());
    }
    if let Ok(seconds) = text.parse::<f64>() {
        let is_sane = seconds.is_finite() && seconds.abs() < 1e12;
        return if is_sane {
            Ok(Timestamp((seconds * 1e3).round() as i64))
        } else {
            Err("it is out of range".into())
        };
    }
    if let Ok(moment) = DateTime::parse_from_rfc3339(text) {
        return Ok(Timestamp(moment.timestamp_millis()));
    }
    if let Ok(day) = text.parse::<NaiveDate>() {
        return Ok(Timestamp(day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis()));
    }
    Err("write epoch seconds (1763193600), RFC 3339 (2026-11-15T08:00:00Z) or a day (2026-11-15)".into())
}

/// RFC 3339 in UTC, to the second.
pub fn show_time(time: Timestamp) -> String {
    let moment = DateTime::from_timestamp_millis(time.0);
    moment.map_or_else(|| time.0.to_string(), |moment| moment.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_can_be_written_in_four_ways() {
        let expected = Timestamp::from_seconds(1_763_193_600);
        for text in ["1763193600", "1763193600.0", "2025-11-15T08:00:00Z", "2025-11-15T09:00:00+01:00"] {
            assert_eq!(parse_time(text), Ok(expected), "{text}");
        }
        assert_eq!(parse_time("2025-11-15"), Ok(Timestamp::from_seconds(1_763_164_800)));
        assert!(parse_time("yesterday").is_err());
        assert!(parse_time("inf").is_err());
    }
}
