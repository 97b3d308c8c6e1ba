//! Dominant frequencies of a spectrum: peaks that are too high for red noise.

use learn::{Peak, Spectrum};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::Dominant;

/// Periods of a dominant frequency that a segment has to contain.
pub const MIN_PERIODS: usize = 4;
/// Frequencies on either side of a peak over which the Hann taper spreads it.
const PEAK_WIDTH: usize = 2;
/// The probability that noise alone has a dominant frequency.
pub const FALSE_POSITIVE_RATE: f64 = 0.01;
/// With many segments, tiny peaks are significant; a dominant frequency also has this multiple of the density of
/// the noise.
pub const MIN_TIMES_NOISE: f64 = 2.0;
/// Segments overlap by half and are tapered, so each has this fraction of the two degrees of freedom of an
/// independent one.
const INDEPENDENT_FRACTION: f64 = 0.95;
/// Autocorrelation of red noise is limited to this.
const MAX_AUTOCORRELATION: f64 = 0.98;

/// The dominant frequencies, lowest first. `n_independent` is the number of independent segments. The strongest
/// peak is removed and the noise fitted to the rest, until no peak exceeds the threshold.
pub fn dominant(spectrum: &Spectrum, n_independent: usize) -> Vec<Dominant> {
    let freedom = (2.0 * n_independent as f64 * INDEPENDENT_FRACTION).max(2.0);
    let Ok(noise_distribution) = ChiSquared::new(freedom) else { return Vec::new() };
    let probability = 1.0 - FALSE_POSITIVE_RATE / spectrum.density.len() as f64;
    let threshold = (noise_distribution.inverse_cdf(probability) / freedom).max(MIN_TIMES_NOISE);
    let index_of = |peak: &Peak| (peak.frequency / spectrum.resolution).round() as usize;
    let mut peaks: Vec<Peak> = spectrum.peaks(0.0);
    peaks.retain(|peak| index_of(peak) >= MIN_PERIODS);
    let mut floor = spectrum.density.clone();
    let mut found: Vec<Peak> = Vec::new();
    loop {
        let noise = red_noise(&floor);
        let times_noise = |peak: &Peak| peak.density / noise[index_of(peak)];
        let strongest =
            (0..peaks.len()).max_by(|a, b| times_noise(&peaks[*a]).total_cmp(&times_noise(&peaks[*b])));
        match strongest.filter(|index| times_noise(&peaks[*index]) > threshold) {
            Some(index) => {
                let peak = peaks.swap_remove(index);
                remove_peak(&mut floor, index_of(&peak));
                found.push(peak);
            }
            None => {
                found.retain(|peak| times_noise(peak) > threshold);
                found.sort_by(|a, b| a.frequency.total_cmp(&b.frequency));
                let dominant = |peak: &Peak| Dominant {
                    hz: peak.frequency,
                    seconds: 1.0 / peak.frequency,
                    times_noise: times_noise(peak),
                };
                return found.iter().map(dominant).collect();
            }
        }
    }
}

/// Replaces a peak, as wide as the taper makes it, by a straight line.
fn remove_peak(density: &mut [f64], index: usize) {
    let low = index.saturating_sub(PEAK_WIDTH + 1).max(1);
    let high = (index + PEAK_WIDTH + 1).min(density.len() - 1);
    let (from, to) = (density[low], density[high]);
    for (place, density) in density[low..=high].iter_mut().enumerate() {
        *density = from + (to - from) * place as f64 / (high - low).max(1) as f64;
    }
}

/// The spectrum of red noise (a first-order autoregressive process) with the same power and autocorrelation.
fn red_noise(density: &[f64]) -> Vec<f64> {
    let last = (density.len() - 1).max(1) as f64;
    let angle = |index: usize| std::f64::consts::PI * index as f64 / last;
    let power: f64 = density.iter().skip(1).sum();
    let covariance: f64 =
        density.iter().enumerate().skip(1).map(|(index, density)| density * angle(index).cos()).sum();
    let autocorrelation =
        if power > 0.0 { (covariance / power).clamp(-MAX_AUTOCORRELATION, MAX_AUTOCORRELATION) } else { 0.0 };
    let shape: Vec<f64> = (0..density.len())
        .map(|index| {
            1.0 / (1.0 - 2.0 * autocorrelation * angle(index).cos() + autocorrelation * autocorrelation)
        })
        .collect();
    let scale = power / shape.iter().skip(1).sum::<f64>();
    shape.into_iter().map(|shape| shape * scale).collect()
}

#[cfg(test)]
mod tests {
    use learn::Welch;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn spectrum_of(signal: impl Fn(usize, &mut Xoshiro256PlusPlus, f32) -> f32) -> Spectrum {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut previous = 0.0;
        let values: Vec<f32> = (0..20_000)
            .map(|step| {
                previous = signal(step, &mut rng, previous);
                previous
            })
            .collect();
        Welch::new(256, 128, 1.0).unwrap().spectrum(&values).unwrap()
    }

    #[test]
    fn white_and_red_noise_have_no_dominant_frequency() {
        let white = spectrum_of(|_, rng, _| rng.random::<f32>());
        assert!(dominant(&white, white.n_segments).is_empty());
        let red = spectrum_of(|_, rng, previous| 0.9 * previous + rng.random::<f32>() - 0.5);
        assert!(dominant(&red, red.n_segments).is_empty());
    }

    #[test]
    fn a_sine_in_noise_is_found_at_its_frequency() {
        let sine = |step: usize| (step as f32 / 32.0 * std::f32::consts::TAU).sin();
        let spectrum = spectrum_of(|step, rng, _| 0.2 * sine(step) + 0.5 * rng.random::<f32>());
        let found = dominant(&spectrum, spectrum.n_segments);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!((found[0].hz - 1.0 / 32.0).abs() < 1e-6 && found[0].times_noise > 3.0);
    }
}
