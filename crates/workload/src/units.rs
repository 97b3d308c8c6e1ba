//! Durations and sizes as people write them in settings.

use std::time::Duration;

const MILLISECOND: Duration = Duration::from_millis(1);
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A duration such as `15s` or `90d`, between a millisecond and a century.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration =
        humantime::parse_duration(text).map_err(|_| "write it like 15s, 100ms, 2h or 90d".to_owned())?;
    if (MILLISECOND..CENTURY).contains(&duration) {
        Ok(duration)
    } else {
        Err("it must be between 1ms and a century".into())
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
    let number: f64 = text.strip_suffix(unit).unwrap_or(text).trim().parse().map_err(|_| wrong())?;
    let bytes = number * factor as f64;
    if (0.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_lie_between_a_millisecond_and_a_century() {
        assert_eq!(parse_duration("15s"), Ok(Duration::from_secs(15)));
        for bad in ["0s", "500us", "1000000000y", "-1s", "15"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("500GB"), Ok(500_000_000_000));
        assert_eq!(parse_bytes("1.5 KiB"), Ok(1_536));
        for bad in ["500", "GB", "-1GB", "1e30TB", "5GBGB", "5GBB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
