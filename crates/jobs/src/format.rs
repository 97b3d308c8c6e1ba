//! Numbers as batch systems write them: plain, as moments, as lengths of time.

use chrono::{DateTime, NaiveDateTime};
use serde::{Deserialize, Serialize};

/// How the numbers of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// With this many digits after the point at most.
    Plain { decimals: u8 },
    /// `2021-01-01 21:18:32`, in epoch seconds.
    Moment,
    /// `2021-01-01T21:18:32`, as Slurm writes it.
    MomentWithT,
    /// `2021-01-01T21:18:32Z`, or with an offset from universal time (RFC 3339).
    MomentWithZone,
    /// `1-02:03:04`, in seconds.
    Length,
    /// Whole minutes, in seconds.
    Minutes,
}

const MINUTE: f64 = 60.0;
/// Digits after the point that are worth keeping.
const MOST_DECIMALS: u8 = 6;
/// Whole numbers below are exact.
const MOST_EXACT: f64 = 9e15;
/// The last three are what Slurm says of a limit that there is not.
const WORDS_FOR_NOTHING: [&str; 11] =
    ["", "NA", "N/A", "nan", "NaN", "null", "Unknown", "None", "UNLIMITED", "Partition_Limit", "INVALID"];

/// Whether a cell says that nothing is known.
pub fn is_missing(text: &str) -> bool {
    WORDS_FOR_NOTHING.contains(&text)
}

impl Format {
    /// Those that a cell can be seen to be written in.
    const VISIBLE: [Self; 5] =
        [Self::Plain { decimals: 0 }, Self::Moment, Self::MomentWithT, Self::MomentWithZone, Self::Length];

    /// The format that all of these cells are written in, missing ones aside; nothing if some are words.
    pub fn of<'a>(cells: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let known = cells.filter(|cell| !is_missing(cell));
        for format in Self::VISIBLE {
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

    /// The format that most of these cells are written in, where some are not.
    pub fn of_most<'a>(cells: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let known = cells.filter(|cell| !is_missing(cell));
        let fits = |format: Self| known.clone().filter(move |cell| format.parse(cell).is_some());
        let most = Self::VISIBLE.into_iter().max_by_key(|format| fits(*format).count())?;
        (2 * fits(most).count() > known.clone().count()).then(|| Self::of(fits(most)))?
    }

    pub fn parse(self, text: &str) -> Option<f64> {
        match self {
            Self::Plain { .. } => text.parse().ok().filter(|value: &f64| value.is_finite()),
            Self::Moment | Self::MomentWithT => {
                let pattern = self.pattern()?;
                let moment = NaiveDateTime::parse_from_str(text, pattern).ok()?;
                Some(moment.and_utc().timestamp() as f64)
            }
            Self::MomentWithZone => {
                DateTime::parse_from_rfc3339(text).ok().map(|moment| moment.timestamp() as f64)
            }
            Self::Length => parse_length(text),
            Self::Minutes => {
                text.parse().ok().filter(|value: &f64| value.is_finite()).map(|value| value * MINUTE)
            }
        }
    }

    fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Moment => Some("%Y-%m-%d %H:%M:%S"),
            Self::MomentWithT => Some("%Y-%m-%dT%H:%M:%S"),
            Self::MomentWithZone => Some("%Y-%m-%dT%H:%M:%SZ"),
            _ => None,
        }
    }

    /// Nothing known is written as nothing.
    pub fn show(self, value: f64) -> String {
        if value.is_nan() {
            return String::new();
        }
        match self {
            Self::Plain { decimals } => {
                let scaled = (value * 10f64.powi(i32::from(decimals))).round();
                if scaled.abs() < MOST_EXACT {
                    return show_decimal(scaled as i64, decimals);
                }
                format!("{value:.0}")
            }
            Self::Moment | Self::MomentWithT | Self::MomentWithZone => {
                let moment = DateTime::from_timestamp(value.round() as i64, 0);
                let pattern = self.pattern().unwrap_or_default();
                moment.map_or_else(|| value.to_string(), |moment| moment.format(pattern).to_string())
            }
            Self::Length => show_length(value.round().max(0.0) as u64),
            Self::Minutes => format!("{:.0}", value / MINUTE),
        }
    }

    pub fn is_moment(self) -> bool {
        matches!(self, Self::Moment | Self::MomentWithT | Self::MomentWithZone)
    }

    /// A value as it would be read back.
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

    /// What one of the units that are written stands for, where a number is written.
    pub fn unit(self) -> Option<f64> {
        match self {
            Self::Plain { .. } => Some(1.0),
            Self::Minutes => Some(MINUTE),
            _ => None,
        }
    }
}

fn decimals_of(text: &str) -> u8 {
    if text.contains(['e', 'E']) {
        return 0;
    }
    let after = text.split_once('.').map_or("", |(_, after)| after.trim_end_matches('0'));
    (after.len() as u8).min(MOST_DECIMALS)
}

/// `[days-]hours:minutes:seconds`, or `minutes:seconds`; `UNLIMITED` is none.
fn parse_length(text: &str) -> Option<f64> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u32>().ok()?, rest),
        None => (0, text),
    };
    let parts: Vec<f64> = rest.split(':').map(|part| part.parse::<f64>().ok()).collect::<Option<_>>()?;
    if !(2..=3).contains(&parts.len()) || parts.iter().any(|part| *part < 0.0) {
        return None;
    }
    Some(f64::from(days) * 86_400.0 + parts.into_iter().fold(0.0, |sum, part| sum * 60.0 + part))
}

/// A number of units of the last of so many decimals; zeros at the end are left out.
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

fn show_length(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_the_same() {
        for (cells, format) in [
            (["1", "20"], Format::Plain { decimals: 0 }),
            (["1.25", "3"], Format::Plain { decimals: 2 }),
            (["2021-01-01 21:18:32", "2021-01-02 00:00:00"], Format::Moment),
            (["2021-01-01T21:18:32", "2021-01-02T00:00:00"], Format::MomentWithT),
            (["2021-01-01T21:18:32Z", "2021-01-02T00:00:00Z"], Format::MomentWithZone),
            (["1-02:03:04", "00:00:10"], Format::Length),
        ] {
            assert_eq!(Format::of(cells.into_iter().chain(["", "Unknown"])), Some(format));
            for cell in cells {
                assert_eq!(format.show(format.parse(cell).unwrap()), cell);
            }
        }
        assert_eq!(Format::of(["1", "normal"].into_iter()), None, "one word makes it words");
        assert_eq!(Format::of(["", "NA"].into_iter()), None, "nothing known is no number");
        let most = ["1.5", "2", "banana", "inf"].into_iter();
        assert_eq!(Format::of_most(most), None, "half is not most");
        assert_eq!(
            Format::of_most(["1.5", "2", "3", "inf"].into_iter()),
            Some(Format::Plain { decimals: 1 })
        );
        let zones = ["2021-01-01T23:18:32+02:00"].into_iter();
        assert_eq!(Format::of(zones), Some(Format::MomentWithZone));
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
}
