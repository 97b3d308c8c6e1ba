//! Times, durations and sizes in logs. Every reader takes its numbers from here, so that none is infinite, not a number
//! or impossible.

use crate::workflow::Span;

/// Three years: tasks that run or wait longer are not believed.
pub const MAX_SECONDS: f64 = 1e8;
/// The first second of the year 10000.
const END_OF_TIME: f64 = 253_402_300_800.0;
/// Three years on ten thousand cores.
const MAX_CPU_SECONDS: f64 = 1e12;
/// More bytes than any file system holds.
const MAX_BYTES: f64 = 1e18;

/// Seconds since the epoch, if they can be a time.
pub fn time(seconds: f64) -> Option<f64> {
    (0.0..END_OF_TIME).contains(&seconds).then_some(seconds)
}

/// Parses seconds since the epoch.
pub fn parse_time(text: &str) -> Result<f64, String> {
    text.parse().ok().and_then(time).ok_or_else(|| format!("{text:?} is not a time"))
}

/// Seconds that something may have taken.
pub fn duration(seconds: f64) -> Option<f64> {
    (0.0..=MAX_SECONDS).contains(&seconds).then_some(seconds)
}

/// CPU time that a task may have used, on all of its cores.
pub fn cpu_time(seconds: f64) -> Option<f64> {
    (0.0..=MAX_CPU_SECONDS).contains(&seconds).then_some(seconds)
}

/// Bytes that a file may have.
pub fn bytes(bytes: f64) -> Option<f64> {
    (0.0..=MAX_BYTES).contains(&bytes).then_some(bytes)
}

/// A period between two times, if it has a possible duration.
pub fn span(start: f64, end: f64) -> Option<Span> {
    Span::new(time(start)?, time(end)?).ok().filter(|span| span.seconds() <= MAX_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_are_rejected() {
        for text in ["inf", "-inf", "nan", "NaN", "1e999", "-1", "1e300", "253402300800", "", "soon"] {
            assert!(parse_time(text).unwrap_err().contains("is not a time"), "{text}");
        }
        assert_eq!(parse_time("1700000000.5"), Ok(1_700_000_000.5));
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e9] {
            assert_eq!(duration(seconds), None);
            assert_eq!(cpu_time(seconds).is_some(), seconds == 1e9);
        }
        assert_eq!((bytes(f64::INFINITY), bytes(1e12)), (None, Some(1e12)));
        assert!(span(0.0, 2e11).is_none() && span(5.0, 4.0).is_none() && span(4.0, 5.0).is_some());
    }
}
