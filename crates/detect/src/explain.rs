//! Why a window is strange, in words: which channels were other than expected, by how much, and when.

use serde::Serialize;
use workload::{Millis, Timestamp};

use super::channel_errors;

/// The share of the error that a stretch of time has to hold to be named.
const MOST_OF_IT: f64 = 0.7;
/// A channel is named if it has this share of the error.
const WORTH_NAMING: f64 = 0.15;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// By how much of the error they made, the most first.
    pub channels: Vec<ChannelPart>,
    /// The shortest stretch that holds most of the error.
    pub from: Timestamp,
    pub to: Timestamp,
    pub words: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChannelPart {
    pub channel: String,
    pub share_of_error: f64,
    /// Means over the stretch.
    pub found: f64,
    pub expected: f64,
}

/// What a detector that compares threads was most surprised by.
pub fn level_in_words(level: &str) -> &'static str {
    match level {
        "restored" => "it is restored worse than windows like it",
        "peers" => "it differs from the other threads of its job",
        "job" => "all threads of its job differ together",
        "node" => "the jobs of its node differ together",
        "cluster" => "the jobs of the whole cluster differ together",
        _ => "the thread itself is unlike what was learnt",
    }
}

/// Explains a window that begins at `start` and was expected otherwise.
pub fn explain(
    window: &[f32],
    expected: &[f32],
    channels: &[&str],
    start: Timestamp,
    period: Millis,
) -> Explanation {
    let n_channels = channels.len();
    let steps = window.chunks_exact(n_channels).zip(expected.chunks_exact(n_channels));
    let errors: Vec<f64> = steps
        .map(|(step, expected)| step.iter().zip(expected).map(|(v, e)| f64::from(v - e).powi(2)).sum::<f64>())
        .collect();
    let stretch = shortest_stretch(&errors);
    let inside = |values: &[f32]| values[stretch.start * n_channels..stretch.end * n_channels].to_vec();
    let (found, wanted) = (inside(window), inside(expected));
    let of_channels = channel_errors(&found, &wanted, n_channels);
    let total: f64 = of_channels.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mean = |values: &[f32], channel: usize| {
        let n_steps = (values.len() / n_channels) as f64;
        values.chunks_exact(n_channels).map(|step| f64::from(step[channel])).sum::<f64>() / n_steps
    };
    let mut parts: Vec<ChannelPart> = channels
        .iter()
        .enumerate()
        .map(|(index, name)| ChannelPart {
            channel: (*name).to_owned(),
            share_of_error: of_channels[index] / total,
            found: mean(&found, index),
            expected: mean(&wanted, index),
        })
        .collect();
    parts.sort_by(|a, b| b.share_of_error.total_cmp(&a.share_of_error));
    let at = |step: usize| start + Millis(period.0 * step as i64);
    let words = in_words(&parts, stretch.len(), errors.len(), period);
    Explanation { channels: parts, from: at(stretch.start), to: at(stretch.end), words }
}

/// The shortest run of steps with most of the error; all of them if there is none.
fn shortest_stretch(errors: &[f64]) -> std::ops::Range<usize> {
    let wanted = errors.iter().sum::<f64>() * MOST_OF_IT;
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

fn in_words(parts: &[ChannelPart], n_inside: usize, n_steps: usize, period: Millis) -> String {
    let named: Vec<String> = parts
        .iter()
        .filter(|part| part.share_of_error >= WORTH_NAMING)
        .map(|part| {
            let (found, expected) = (part.found * 100.0, part.expected * 100.0);
            match (part.found - part.expected).abs() < 0.02 {
                true => format!("{} went up and down around its usual {found:.0} %", part.channel),
                false => format!("{} was {found:.0} % where {expected:.0} % was expected", part.channel),
            }
        })
        .collect();
    let seconds = |steps: usize| period.as_seconds() * steps as f64;
    let when = match n_inside * 4 > n_steps * 3 {
        true => format!("all along ({:.0} s)", seconds(n_steps)),
        false => format!("for {:.0} of {:.0} s", seconds(n_inside), seconds(n_steps)),
    };
    format!("{}, {when}", named.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_and_the_seconds_that_were_otherwise_are_named() {
        let expected = [0.95, 0.04, 0.0, 0.01].repeat(100);
        let mut window = expected.clone();
        for step in 30..42 {
            window[step * 4..step * 4 + 4].copy_from_slice(&[0.30, 0.04, 0.65, 0.01]);
        }
        let channels = ["user", "system", "iowait", "other"];
        let found = explain(&window, &expected, &channels, Timestamp(60_000), Millis::SECOND);
        assert!(found.from >= Timestamp(90_000) && found.to <= Timestamp(102_000), "{found:?}");
        assert_eq!(
            found.words,
            "user was 30 % where 95 % was expected; iowait was 65 % where 0 % was expected, for 9 of 100 s"
        );
        let calm = explain(&expected, &expected, &channels, Timestamp(0), Millis::SECOND);
        assert_eq!((calm.from, calm.to), (Timestamp(0), Timestamp(100_000)));
    }
}
