//! How batch systems write numbers: plain, as dates and times, as durations.

use chrono::{DateTime, NaiveDateTime};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// How the numbers of a column are written. Times are seconds since the epoch, durations are seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// At most this many digits after the decimal point.
    Plain {
        #[serde(deserialize_with = "decimals")]
        decimals: u8,
    },
    /// `2021-01-01 21:18:32`, with or without a fraction of a second.
    #[serde(alias = "moment")]
    DateTime,
    /// `2021-01-01T21:18:32`, as Slurm writes it.
    #[serde(alias = "momentwitht")]
    DateTimeT,
    /// `2021-01-01T21:18:32Z`, or with an offset from UTC (RFC 3339).
    #[serde(alias = "momentwithzone")]
    Rfc3339,
    /// `1-02:03:04`: days, hours, minutes, seconds.
    #[serde(alias = "length")]
    Duration,
    /// Whole minutes.
    Minutes,
}

const MINUTE: f64 = 60.0;
const MAX_DECIMALS: usize = 6;
const MICROS: f64 = 1e6;
/// Whole numbers below this are exact in an `f64`.
const MAX_EXACT: f64 = 9e15;
/// Cells that mean "unknown". The last three are Slurm's words for a missing time limit.
const MISSING: [&str; 11] =
    ["", "NA", "N/A", "nan", "NaN", "null", "Unknown", "None", "UNLIMITED", "Partition_Limit", "INVALID"];

/// Whether a cell says that its value is unknown.
pub fn is_missing(text: &str) -> bool {
    MISSING.contains(&text)
}

impl Format {
    /// The formats that can be recognised from a cell.
    const RECOGNISED: [Self; 5] =
        [Self::Plain { decimals: 0 }, Self::DateTime, Self::DateTimeT, Self::Rfc3339, Self::Duration];

    /// The format of all cells, apart from missing ones; none if some are text or all are missing.
    pub fn of<'a>(cells: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let known = cells.filter(|cell| !is_missing(cell));
        for format in Self::RECOGNISED {
            let mut n_cells = 0;
            let fits = known.clone().inspect(|_| n_cells += 1).all(|cell| format.parse(cell).is_some());
            if fits && n_cells > 0 {
                let Self::Plain { .. } = format else { return Some(format) };
                let decimals = known.map(decimals_of).max().unwrap_or(0);
                return Some(Self::Plain { decimals });
            }
        }
        None
    }

    /// The format of more than half of the cells, apart from missing ones.
    pub fn of_most<'a>(cells: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let known = cells.filter(|cell| !is_missing(cell));
        let fits = |format: Self| known.clone().filter(move |cell| format.parse(cell).is_some());
        let most = Self::RECOGNISED.into_iter().max_by_key(|format| fits(*format).count())?;
        (2 * fits(most).count() > known.clone().count()).then(|| Self::of(fits(most)))?
    }

    pub fn parse(self, text: &str) -> Option<f64> {
        let number = || text.parse().ok().filter(|value: &f64| value.is_finite());
        match self {
            Self::Plain { .. } => number(),
            Self::DateTime => parse_naive(text, "%Y-%m-%d %H:%M:%S%.f"),
            Self::DateTimeT => parse_naive(text, "%Y-%m-%dT%H:%M:%S%.f"),
            Self::Rfc3339 => {
                DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_micros() as f64 / MICROS)
            }
            Self::Duration => parse_duration(text),
            Self::Minutes => number().map(|value| value * MINUTE).filter(|seconds| seconds.is_finite()),
        }
    }

    /// An unknown value is written as an empty cell.
    pub fn show(self, value: f64) -> String {
        if value.is_nan() {
            return String::new();
        }
        match self {
            Self::Plain { decimals } => {
                let scaled = (value * 10f64.powi(i32::from(decimals))).round();
                if scaled.abs() < MAX_EXACT {
                    return show_decimal(scaled as i64, decimals);
                }
                format!("{value:.0}")
            }
            Self::DateTime => show_time(value, "%Y-%m-%d %H:%M:%S", ""),
            Self::DateTimeT => show_time(value, "%Y-%m-%dT%H:%M:%S", ""),
            Self::Rfc3339 => show_time(value, "%Y-%m-%dT%H:%M:%S", "Z"),
            Self::Duration => show_duration(value.round().max(0.0) as u64),
            Self::Minutes => format!("{:.0}", value / MINUTE),
        }
    }

    /// Appends what [`Self::show`] returns. Whole numbers, of which there are most, need no allocation.
    pub fn write(self, value: f64, out: &mut Vec<u8>) {
        let is_whole = value.fract() == 0.0 && value.abs() < MAX_EXACT;
        match self {
            Self::Plain { .. } if is_whole => write_whole(value as i64, out),
            _ => out.extend_from_slice(self.show(value).as_bytes()),
        }
    }

    pub fn is_time(self) -> bool {
        matches!(self, Self::DateTime | Self::DateTimeT | Self::Rfc3339)
    }

    /// The resolution at which values are generated: whole seconds for times, the written digits for numbers.
    pub fn round(self, value: f64) -> f64 {
        match self {
            Self::Plain { decimals } => {
                let scale = 10f64.powi(i32::from(decimals));
                (value * scale).round() / scale
            }
            Self::Minutes => (value / MINUTE).round() * MINUTE,
            _ => value.round(),
        }
    }

    /// What a written 1 stands for, if values are written as plain numbers.
    pub fn unit(self) -> Option<f64> {
        match self {
            Self::Plain { .. } => Some(1.0),
            Self::Minutes => Some(MINUTE),
            _ => None,
        }
    }
}

fn decimals<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let found = u8::deserialize(deserializer)?;
    if usize::from(found) > MAX_DECIMALS {
        return Err(D::Error::custom(format!("at most {MAX_DECIMALS} decimals can be written, not {found}")));
    }
    Ok(found)
}

fn decimals_of(text: &str) -> u8 {
    if text.contains(['e', 'E']) {
        return 0;
    }
    let after = text.split_once('.').map_or("", |(_, after)| after.trim_end_matches('0'));
    after.len().min(MAX_DECIMALS) as u8
}

fn parse_naive(text: &str, pattern: &str) -> Option<f64> {
    let time = NaiveDateTime::parse_from_str(text, pattern).ok()?;
    Some(time.and_utc().timestamp_micros() as f64 / MICROS)
}

/// Fractions of a second are written only where there are any.
fn show_time(value: f64, pattern: &str, suffix: &str) -> String {
    let Some(time) = DateTime::from_timestamp_micros((value * MICROS).round() as i64) else {
        return value.to_string();
    };
    let micros = time.timestamp_subsec_micros();
    let fraction =
        if micros == 0 { String::new() } else { format!(".{micros:06}").trim_end_matches('0').to_owned() };
    format!("{}{fraction}{suffix}", time.format(pattern))
}

/// `[days-]hours:minutes:seconds`, or `minutes:seconds`.
fn parse_duration(text: &str) -> Option<f64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u32>().ok()?, rest),
        None => (0, text),
    };
    let parts: Vec<f64> = rest.split(':').map(|part| part.parse::<f64>().ok()).collect::<Option<_>>()?;
    let is_valid = |part: &f64| part.is_finite() && *part >= 0.0;
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(is_valid) {
        return None;
    }
    let seconds = f64::from(days) * 86_400.0 + parts.into_iter().fold(0.0, |sum, part| sum * 60.0 + part);
    seconds.is_finite().then_some(seconds)
}

/// Appends the digits of a whole number.
fn write_whole(value: i64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    let mut left = value.unsigned_abs();
    while left > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[first..]);
}

/// `units` of the last of `decimals` digits, without trailing zeros.
fn show_decimal(mut units: i64, mut decimals: u8) -> String {
    while decimals > 0 && units % 10 == 0 {
        units /= 10;
        decimals -= 1;
    }
    if decimals == 0 {
        return units.to_string();
    }
    let scale = 10u64.pow(u32::from(decimals));
    let (sign, units) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
    format!("{sign}{}.{:0width$}", units / scale, units % scale, width = usize::from(decimals))
}

fn show_duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_decimals_than_can_be_written_are_rejected() {
        let parsed = |text: &str| serde_json::from_str::<Format>(text);
        assert_eq!(parsed(r#"{"plain":{"decimals":6}}"#).unwrap(), Format::Plain { decimals: 6 });
        assert!(parsed(r#"{"plain":{"decimals":200}}"#).unwrap_err().to_string().contains("at most 6"));
    }

    #[test]
    fn cells_are_recognised_and_written_as_they_were_read() {
        for (cells, format) in [
            (["1", "20"], Format::Plain { decimals: 0 }),
            (["1.25", "3"], Format::Plain { decimals: 2 }),
            (["2021-01-01 21:18:32", "2021-01-02 00:00:00"], Format::DateTime),
            (["2021-01-01 21:18:32.25", "2021-01-02 00:00:00.000001"], Format::DateTime),
            (["2021-01-01T21:18:32", "2021-01-02T00:00:00"], Format::DateTimeT),
            (["2021-01-01T21:18:32Z", "2021-01-02T00:00:00Z"], Format::Rfc3339),
            (["1-02:03:04", "00:00:10"], Format::Duration),
        ] {
            assert_eq!(Format::of(cells.into_iter().chain(["", "Unknown"])), Some(format));
            for cell in cells {
                assert_eq!(format.show(format.parse(cell).unwrap()), cell);
            }
        }
        assert_eq!(Format::of(["1", "normal"].into_iter()), None, "one cell of text makes a column of text");
        assert_eq!(Format::of(["", "NA"].into_iter()), None, "missing cells have no format");
        let most = ["1.5", "2", "banana", "inf"].into_iter();
        assert_eq!(Format::of_most(most), None, "half is not most");
        assert_eq!(
            Format::of_most(["1.5", "2", "3", "inf"].into_iter()),
            Some(Format::Plain { decimals: 1 })
        );
        let zones = ["2021-01-01T23:18:32+02:00"].into_iter();
        assert_eq!(Format::of(zones), Some(Format::Rfc3339));
        assert_eq!(Format::Minutes.show(Format::Minutes.parse("720").unwrap()), "720");
        let plain = Format::Plain { decimals: 2 };
        for (value, shown) in [
            (f64::NAN, ""),
            (-0.001, "0"),
            (-0.05, "-0.05"),
            (-12.5, "-12.5"),
            (1e17, "100000000000000000"),
            (0.999, "1"),
        ] {
            assert_eq!(plain.show(value), shown);
        }
    }

    #[test]
    fn trailing_zeros_and_long_fractions_are_read() {
        let time = Format::DateTime.parse("2021-01-01 21:18:32.000000").unwrap();
        assert_eq!(Format::DateTime.show(time), "2021-01-01 21:18:32");
        assert_eq!(Format::Rfc3339.show(Format::Rfc3339.parse("2021-01-01T00:00:00.5Z").unwrap()).len(), 22);
        assert_eq!(decimals_of(&format!("0.{}", "1".repeat(300))), 6);
        assert_eq!(Format::Duration.parse("nan:1"), None);
        assert_eq!(Format::Duration.parse("inf:00"), None);
    }

    fn any_format() -> impl Strategy<Value = Format> {
        prop_oneof![
            (0u8..=6).prop_map(|decimals| Format::Plain { decimals }),
            Just(Format::DateTime),
            Just(Format::DateTimeT),
            Just(Format::Rfc3339),
            Just(Format::Duration),
            Just(Format::Minutes),
        ]
    }

    proptest! {
        #[test]
        fn rounded_values_survive_writing_and_reading(format in any_format(), value in 0.0..4e9f64) {
            let value = format.round(value);
            let again = format.parse(&format.show(value)).unwrap();
            prop_assert!((again - value).abs() < 1e-6, "{value} became {again}");
        }

        #[test]
        fn any_text_is_parsed_to_a_finite_number_or_not_at_all(format in any_format(), text in "\\PC{0,30}") {
            prop_assert!(format.parse(&text).is_none_or(f64::is_finite));
        }

        #[test]
        fn text_like_numbers_is_parsed_to_a_finite_number_or_not_at_all(
            format in any_format(),
            text in "[-+0-9.:eTZ infa]{0,25}",
        ) {
            prop_assert!(format.parse(&text).is_none_or(f64::is_finite));
        }

        #[test]
        fn any_number_can_be_written(format in any_format(), value in proptest::num::f64::ANY) {
            let mut written = Vec::new();
            format.write(value, &mut written);
            prop_assert_eq!(String::from_utf8(written), Ok(format.show(value)));
        }

        #[test]
        fn whole_numbers_are_written_like_others(format in any_format(), value in -10_000_000_000_000_000i64..10_000_000_000_000_000) {
            let mut written = Vec::new();
            format.write(value as f64, &mut written);
            prop_assert_eq!(String::from_utf8(written), Ok(format.show(value as f64)));
        }
    }
}
