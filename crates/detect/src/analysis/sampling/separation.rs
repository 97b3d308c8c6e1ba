//! How well kinds separate at one sampling interval.

use learn::stats::{mean, std_dev};
use learn::{Matrix, Pca, silhouette};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{Control, Millis};

use super::{Dot, Interval, SamplingSettings};
use crate::analysis::{AnalysisError, CHANNELS};

const DAY_SECONDS: f64 = 86_400.0;

/// Windows at the archive's own period.
pub struct Sampled<'a> {
    pub windows: Vec<&'a Vec<f32>>,
    /// The index of the kind of each window.
    pub kinds: Vec<usize>,
    pub bytes_per_sample: f64,
}

/// Resamples the windows, projects them on their principal components, and measures the silhouette of the kinds
/// on random subsets.
pub fn separation(
    sampled: &Sampled<'_>,
    interval: Millis,
    period: Millis,
    settings: &SamplingSettings,
    control: &Control<'_>,
) -> Result<Interval, AnalysisError> {
    control.check()?;
    let points = resampled(&sampled.windows, (interval.0 / period.0) as usize);
    let pca = Pca::fit(&points, settings.components.min(points.n_columns()))?;
    let projected = pca.transform(&points);
    let kinds = &sampled.kinds;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ stream(interval));
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    let mut scores = Vec::with_capacity(settings.repeats);
    while scores.len() < settings.repeats {
        control.check()?;
        order.shuffle(&mut rng);
        let chosen = &order[..settings.subset];
        let chosen_kinds: Vec<usize> = chosen.iter().map(|index| kinds[*index]).collect();
        // A subset of one kind has no silhouette; another is drawn.
        if chosen_kinds.iter().any(|kind| *kind != chosen_kinds[0]) {
            scores.push(silhouette(&projected.select(chosen), &chosen_kinds)?);
        }
    }
    let scatter = order[..settings.subset].iter().map(|index| {
        let row = projected.row(*index);
        let y = row.get(1).copied().unwrap_or(0.0);
        Dot { kind: kinds[*index], x: f64::from(row[0]), y: f64::from(y) }
    });
    let samples_per_day = DAY_SECONDS / interval.as_seconds();
    Ok(Interval {
        seconds: interval.as_seconds(),
        silhouette: mean(&scores),
        spread: std_dev(&scores),
        explained: pca.explained_share.iter().sum(),
        samples_per_day: samples_per_day.round() as u64,
        bytes_per_day: (samples_per_day * sampled.bytes_per_sample).round() as u64,
        axes: [0, 1].map(|component| pca.axis_label(component)),
        scatter: scatter.collect(),
    })
}

/// A number per interval, so that each has its own random subsets.
fn stream(interval: Millis) -> u64 {
    let millis = interval.0.unsigned_abs();
    if millis.is_multiple_of(1_000) { millis / 1_000 } else { millis << 32 }
}

/// Windows as they would be if counters had been sampled every `n_steps` steps: means over those steps, without an
/// incomplete rest.
fn resampled(windows: &[&Vec<f32>], n_steps: usize) -> Matrix {
    let width = CHANNELS.len();
    let n_columns = windows[0].len() / (n_steps * width) * width;
    let mut values = Vec::with_capacity(windows.len() * n_columns);
    for window in windows {
        for steps in window.chunks_exact(n_steps * width) {
            for channel in 0..width {
                let sum: f32 = steps.iter().skip(channel).step_by(width).sum();
                values.push(sum / n_steps as f32);
            }
        }
    }
    Matrix::new(values, n_columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_less_often_gives_means() {
        let window = vec![0.0, 1.0, 0.5, 1.0, 0.0, 0.5, 0.2, 0.2, 0.2, 0.4, 0.4, 0.4];
        let points = resampled(&[&window], 2);
        assert_eq!(points.n_columns(), 6);
        let is_close = |a: f32, b: f32| (a - b).abs() < 1e-6;
        let expected = [0.5, 0.5, 0.5, 0.3, 0.3, 0.3];
        assert!(points.row(0).iter().zip(expected).all(|(found, wanted)| is_close(*found, wanted)));
        let thrice = resampled(&[&window], 3);
        assert!(thrice.n_columns() == 3 && is_close(thrice.row(0)[0], 0.4), "the fourth step is left out");
    }
}
