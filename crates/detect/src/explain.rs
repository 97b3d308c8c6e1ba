//! Explains a finding: which channels or features differed from what was expected, by how much, and when.

use serde::Serialize;
use workload::{Millis, Timestamp};

use crate::channel::names;
use crate::detector::{Finding, Level, channel_errors};
use crate::window::{WindowBatch, WindowSpec};

/// The fraction of the error that the reported stretch of time has to contain.
const STRETCH_FRACTION: f64 = 0.7;
/// A channel is named if it contributes this fraction of the error.
const NAMED_FRACTION: f64 = 0.15;
/// A feature is named if it is this many standard deviations off, and among the largest.
const NAMED_Z: f64 = 2.0;
const MAX_FEATURES: usize = 3;
/// A feature that differs by less is not named before others.
const MIN_VISIBLE: f64 = 0.005;
/// Larger deviations are not given as numbers.
const MAX_SHOWN_Z: f64 = 100.0;
/// Means that differ by less are called equal.
const SAME_RATE: f64 = 0.02;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The level that determined the score, for detectors with several.
    pub level: Option<Level>,
    /// The channels of a reconstruction, by their fraction of the error, largest first.
    pub channels: Vec<ChannelError>,
    /// The features that deviate at the level, largest deviation first.
    pub features: Vec<FeatureDeviation>,
    /// The shortest stretch of time that contains most of the error; the whole window for features.
    pub from: Timestamp,
    pub to: Timestamp,
    /// The explanation as one sentence.
    pub text: String,
}

impl Explanation {
    /// The explanation of a window about which nothing can be said.
    pub fn nothing(start: Timestamp) -> Self {
        let (channels, features, text) = (Vec::new(), Vec::new(), String::new());
        Self { level: None, channels, features, from: start, to: start, text }
    }
}

/// How one channel differs from its reconstruction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChannelError {
    pub channel: String,
    pub fraction_of_error: f64,
    /// Means over the stretch of time.
    pub observed: f64,
    pub expected: f64,
}

/// How one feature differs from what is normal at a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeatureDeviation {
    pub feature: String,
    pub observed: f64,
    pub expected: f64,
    /// The deviation in standard deviations, given the features before this one.
    pub z: f64,
}

/// Explains a window of a batch by its reconstruction.
pub fn explain_error(
    batch: &WindowBatch,
    finding: &Finding,
    window: usize,
    spec: &WindowSpec,
) -> Explanation {
    let values = &batch.threads()[window].values;
    explain_reconstruction(values, &finding.expected, &names(&spec.job_channels), batch.start(), spec.period)
}

/// Explains a window by its reconstruction.
pub fn explain_reconstruction(
    window: &[f32],
    expected: &[f32],
    channels: &[&str],
    start: Timestamp,
    period: Millis,
) -> Explanation {
    let n_channels = channels.len();
    let steps = window.chunks_exact(n_channels).zip(expected.chunks_exact(n_channels));
    let errors: Vec<f64> =
        steps.map(|(step, expected)| learn::stats::squared_distance(step, expected)).collect();
    let stretch = shortest_stretch(&errors);
    let inside = |values: &[f32]| values[stretch.start * n_channels..stretch.end * n_channels].to_vec();
    let (observed, expected) = (inside(window), inside(expected));
    let of_channels = channel_errors(&observed, &expected, n_channels);
    let total: f64 = of_channels.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mean = |values: &[f32], channel: usize| {
        let n_steps = (values.len() / n_channels) as f64;
        values.chunks_exact(n_channels).map(|step| f64::from(step[channel])).sum::<f64>() / n_steps
    };
    let mut parts: Vec<ChannelError> = channels
        .iter()
        .enumerate()
        .map(|(index, name)| ChannelError {
            channel: (*name).to_owned(),
            fraction_of_error: of_channels[index] / total,
            observed: mean(&observed, index),
            expected: mean(&expected, index),
        })
        .collect();
    parts.sort_by(|a, b| b.fraction_of_error.total_cmp(&a.fraction_of_error));
    let at = |step: usize| start + Millis(period.0 * step as i64);
    let text = channel_text(&parts, stretch.len(), errors.len(), period);
    Explanation {
        level: None,
        channels: parts,
        features: Vec::new(),
        from: at(stretch.start),
        to: at(stretch.end),
        text,
    }
}

/// Explains a window by the features that deviate at a level.
pub fn explain_features(
    level: Level,
    mut features: Vec<FeatureDeviation>,
    from: Timestamp,
    to: Timestamp,
) -> Explanation {
    // Nobody can act on a difference that is not visible, however unlikely it is.
    features.sort_by(|a, b| b.is_visible().cmp(&a.is_visible()).then(b.z.abs().total_cmp(&a.z.abs())));
    let is_named = |feature: &&FeatureDeviation| feature.z.abs() >= NAMED_Z && feature.is_visible();
    let n_named = features.iter().take_while(is_named).count();
    features.truncate(n_named.clamp(1, MAX_FEATURES));
    let named: Vec<String> = features.iter().map(FeatureDeviation::text).collect();
    let text = format!("{}: {}", level.description(), named.join("; "));
    Explanation { level: Some(level), channels: Vec::new(), features, from, to, text }
}

impl FeatureDeviation {
    /// The deviation of a feature that is a square root, in natural units.
    pub fn of_square_root(feature: String, observed: f64, expected: f64, z: f64) -> Self {
        // Features are fractions of time or of memory.
        Self { feature, observed: observed.powi(2), expected: expected.clamp(0.0, 1.0).powi(2), z }
    }

    fn is_visible(&self) -> bool {
        (self.observed - self.expected).abs() >= MIN_VISIBLE
    }

    fn text(&self) -> String {
        let Self { feature, observed, expected, z } = self;
        // Features that hardly vary give huge values whose digits mean nothing.
        let z = if z.abs() < MAX_SHOWN_Z { format!("z = {z:+.1}") } else { format!("|z| > {MAX_SHOWN_Z}") };
        format!("{feature} {} (expected {}, {z})", percent(*observed), percent(*expected))
    }
}

/// A fraction as a percentage with about two significant digits.
fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    let digits = match value {
        10.0.. => 0,
        1.0.. => 1,
        0.1.. => 2,
        _ => 3,
    };
    format!("{value:.digits$} %")
}

/// The shortest run of steps with most of the error; all steps if there is no error.
fn shortest_stretch(errors: &[f64]) -> std::ops::Range<usize> {
    let wanted = errors.iter().sum::<f64>() * STRETCH_FRACTION;
    let (mut best, mut first, mut sum) = (0..errors.len(), 0, 0.0);
    if wanted <= 0.0 {
        return best;
    }
    for (last, error) in errors.iter().enumerate() {
        sum += error;
        while first <= last && sum - errors[first] >= wanted {
            sum -= errors[first];
            first += 1;
        }
        if sum >= wanted && last + 1 - first < best.len() {
            best = first..last + 1;
        }
    }
    best
}

fn channel_text(parts: &[ChannelError], n_inside: usize, n_steps: usize, period: Millis) -> String {
    let named: Vec<String> = parts
        .iter()
        .filter(|part| part.fraction_of_error >= NAMED_FRACTION)
        .map(|part| {
            let (observed, expected) = (part.observed * 100.0, part.expected * 100.0);
            if (part.observed - part.expected).abs() < SAME_RATE {
                format!("{} fluctuated around its expected {observed:.0} %", part.channel)
            } else {
                format!("{} was {observed:.0} %, expected {expected:.0} %", part.channel)
            }
        })
        .collect();
    let seconds = |steps: usize| period.as_seconds() * steps as f64;
    let when = if n_inside * 4 > n_steps * 3 {
        format!("during the whole window ({:.0} s)", seconds(n_steps))
    } else {
        format!("for {:.0} of {:.0} s", seconds(n_inside), seconds(n_steps))
    };
    if named.is_empty() {
        return format!("no single channel differs, {when}");
    }
    format!("{}, {when}", named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_and_the_seconds_that_differed_are_named() {
        let expected = [0.95, 0.04, 0.0, 0.01].repeat(100);
        let mut window = expected.clone();
        for step in 30..42 {
            window[step * 4..step * 4 + 4].copy_from_slice(&[0.30, 0.04, 0.65, 0.01]);
        }
        let channels = ["user", "system", "iowait", "other"];
        let found = explain_reconstruction(&window, &expected, &channels, Timestamp(60_000), Millis::SECOND);
        assert!(found.from >= Timestamp(90_000) && found.to <= Timestamp(102_000), "{found:?}");
        assert_eq!(found.text, "user was 30 %, expected 95 %; iowait was 65 %, expected 0 %, for 9 of 100 s");
        let calm = explain_reconstruction(&expected, &expected, &channels, Timestamp(0), Millis::SECOND);
        assert_eq!((calm.from, calm.to), (Timestamp(0), Timestamp(100_000)));
        assert_eq!(calm.text, "no single channel differs, during the whole window (100 s)");
    }

    #[test]
    fn the_features_that_deviate_most_are_named_with_their_level() {
        let feature = |feature: &str, observed, expected, z| FeatureDeviation {
            feature: feature.into(),
            observed,
            expected,
            z,
        };
        let features = vec![
            feature("mean user", 0.4, 0.5, -0.3),
            feature("mean iowait", 0.41, 0.025, 7.25),
            feature("mean system", 0.1, 0.2, -2.5),
        ];
        assert_eq!(features[1].text(), "mean iowait 41 % (expected 2.5 %, z = +7.2)");
        let constant = feature("mean other", 0.0004, 0.0, 1.6e7);
        assert_eq!(constant.text(), "mean other 0.040 % (expected 0.000 %, |z| > 100)");
        let found = explain_features(Level::Peers, features, Timestamp(0), Timestamp(1));
        assert_eq!(
            found.text,
            "the thread differs from the other threads of its job: mean iowait 41 % (expected 2.5 %, z = +7.2); \
             mean system 10 % (expected 20 %, z = -2.5)"
        );
        assert_eq!(found.level, Some(Level::Peers));
    }
}
