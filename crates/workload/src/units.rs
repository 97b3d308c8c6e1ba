//! Durations, sizes and counts as people write and read them.

use std::time::Duration;

use crate::Millis;

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

/// Rows under a header, a line each; numbers to the right (columns whose header starts with `>`).
pub fn show_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> = header.iter().map(|title| title.trim_start_matches('>').to_owned()).collect();
    let all = || std::iter::once(&titles).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().enumerate().map(|(column, cell)| match header[column].starts_with('>') {
            true => format!("{cell:>width$}", width = widths[column]),
            false => format!("{cell:<width$}", width = widths[column]),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

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
