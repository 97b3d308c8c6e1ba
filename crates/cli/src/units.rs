//! Times, durations and sizes as people write and read them.

use std::time::Duration;

use chrono::{DateTime, NaiveDate};
use workload::{Millis, Timestamp};

/// Epoch seconds, RFC 3339, or a day.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1_000).map(Timestamp).ok_or_else(|| "too far away".into());
    }
    if let Ok(seconds) = text.parse::<f64>() {
        let is_sane = seconds.is_finite() && seconds.abs() < 1e12;
        return if is_sane {
            Ok(Timestamp((seconds * 1e3).round() as i64))
        } else {
            Err("too far away".into())
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

const MILLISECOND: Duration = Duration::from_millis(1);
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration =
        humantime::parse_duration(text).map_err(|_| "write it like 15s, 100ms, 2h or 90d".to_owned())?;
    if (MILLISECOND..CENTURY).contains(&duration) {
        Ok(duration)
    } else {
        Err("it has to be between 1ms and a century".into())
    }
}

const UNITS: [(&str, u64); 10] = [
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("B", 1),
];

/// A size such as `500GB` or `64MiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "write it like 500GB, 64MiB or 1000B".to_owned();
    let (unit, factor) = UNITS.into_iter().find(|(unit, _)| text.ends_with(unit)).ok_or_else(wrong)?;
    let number: f64 = text.trim_end_matches(unit).trim().parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if (0.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// RFC 3339 in UTC, to the second.
pub fn show_time(time: Timestamp) -> String {
    let moment = DateTime::from_timestamp_millis(time.0);
    moment.map_or_else(|| time.0.to_string(), |moment| moment.format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

pub fn show_bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Whole numbers with a mark at every thousand.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

pub fn show_length(length: Millis) -> String {
    humantime::format_duration(Duration::from_secs((length.0.max(0) as u64 + 500) / 1_000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_can_be_written_in_four_ways() {
        let expected = Timestamp::from_seconds(1_763_193_600);
        for text in ["1763193600", "1763193600.0", "2025-11-15T08:00:00Z", "2025-11-15T09:00:00+01:00"] {
            assert_eq!(parse_time(text), Ok(expected), "{text}");
        }
        assert_eq!(parse_time("2025-11-15"), Ok(Timestamp::from_seconds(1_763_164_800)));
        assert!(parse_time("yesterday").is_err());
        assert!(parse_time("inf").is_err());
    }

    #[test]
    fn durations_are_neither_nothing_nor_forever() {
        assert_eq!(parse_duration("15s"), Ok(Duration::from_secs(15)));
        for bad in ["0s", "500us", "1000000000y", "-1s", "15"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("500GB"), Ok(500_000_000_000));
        assert_eq!(parse_bytes("1.5 KiB"), Ok(1_536));
        for bad in ["500", "GB", "-1GB", "1e30TB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn large_numbers_are_easy_to_read() {
        assert_eq!(show_count(0), "0");
        assert_eq!(show_count(1_234_567), "1,234,567");
    }
}
