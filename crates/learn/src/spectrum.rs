//! Welch's estimate of the power spectral density: the mean over overlapping, windowed segments.

use std::f64::consts::PI;
use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpectrumError {
    #[error("{n_values} values are fewer than a segment of {segment}")]
    TooShort { n_values: usize, segment: usize },
    #[error("a segment must have at least 2 values and be longer than its overlap")]
    Segment,
}

/// An estimator of spectra with Hann windows; the mean of each segment is removed.
#[derive(Clone)]
pub struct Welch {
    transform: Arc<dyn RealToComplex<f64>>,
    window: Vec<f64>,
    step: usize,
    sample_rate: f64,
}

impl std::fmt::Debug for Welch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { window, step, sample_rate, .. } = self;
        f.debug_struct("Welch")
            .field("segment", &window.len())
            .field("step", step)
            .field("sample_rate", sample_rate)
            .finish()
    }
}

/// Power per hertz, by frequency from zero to half the sample rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Spectrum {
    pub density: Vec<f64>,
    /// Hertz between neighbouring densities.
    pub resolution: f64,
    /// The number of segments averaged.
    pub n_segments: usize,
}

/// A local maximum of a spectrum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    pub frequency: f64,
    pub density: f64,
}

impl Welch {
    /// Segments of `segment` values that share `overlap` values with the next; `sample_rate` in hertz.
    pub fn new(segment: usize, overlap: usize, sample_rate: f64) -> Result<Self, SpectrumError> {
        if segment < 2 || overlap >= segment {
            return Err(SpectrumError::Segment);
        }
        let window =
            (0..segment).map(|at| 0.5 - 0.5 * (2.0 * PI * at as f64 / segment as f64).cos()).collect();
        let transform = RealFftPlanner::new().plan_fft_forward(segment);
        Ok(Self { transform, window, step: segment - overlap, sample_rate })
    }

    /// The spectrum of one series.
    pub fn spectrum(&self, values: &[f32]) -> Result<Spectrum, SpectrumError> {
        self.spectrum_of_all([values])
    }

    /// The mean spectrum of the segments of several series. Series shorter than a segment are skipped; it is
    /// an error if all are.
    pub fn spectrum_of_all<'a>(
        &self,
        series: impl IntoIterator<Item = &'a [f32]>,
    ) -> Result<Spectrum, SpectrumError> {
        let segment = self.window.len();
        let mut input = self.transform.make_input_vec();
        let mut output = self.transform.make_output_vec();
        let mut scratch = self.transform.make_scratch_vec();
        let mut density = vec![0.0; output.len()];
        let (mut n_segments, mut longest) = (0, 0);
        for values in series {
            longest = longest.max(values.len());
            for part in values.windows(segment).step_by(self.step) {
                let mean = part.iter().map(|value| f64::from(*value)).sum::<f64>() / segment as f64;
                for ((input, value), weight) in input.iter_mut().zip(part).zip(&self.window) {
                    *input = (f64::from(*value) - mean) * weight;
                }
                // Cannot fail: the buffers have the lengths that the transform asked for.
                let _ = self.transform.process_with_scratch(&mut input, &mut output, &mut scratch);
                density.iter_mut().zip(&output).for_each(|(sum, value)| *sum += value.norm_sqr());
                n_segments += 1;
            }
        }
        if n_segments == 0 {
            return Err(SpectrumError::TooShort { n_values: longest, segment });
        }
        self.scale(&mut density, n_segments);
        Ok(Spectrum { density, resolution: self.sample_rate / segment as f64, n_segments })
    }

    /// Converts sums of squares to power per hertz, one-sided.
    fn scale(&self, density: &mut [f64], n_segments: usize) {
        let power: f64 = self.window.iter().map(|weight| weight * weight).sum();
        let scale = 1.0 / (self.sample_rate * power * n_segments as f64);
        let has_middle = self.window.len().is_multiple_of(2);
        let last = density.len() - 1;
        for (at, value) in density.iter_mut().enumerate() {
            let is_alone = at == 0 || (at == last && has_middle);
            *value *= if is_alone { scale } else { 2.0 * scale };
        }
    }
}

impl Spectrum {
    pub fn frequencies(&self) -> impl Iterator<Item = f64> {
        (0..self.density.len()).map(|at| at as f64 * self.resolution)
    }

    /// Frequencies above zero whose density exceeds that of their neighbours and is at least `fraction` of
    /// the largest; lowest first.
    pub fn peaks(&self, fraction: f64) -> Vec<Peak> {
        let most = self.density.iter().skip(1).copied().fold(0.0, f64::max);
        let at = |index: usize| self.density.get(index).copied().unwrap_or(0.0);
        let is_peak = |index: &usize| {
            let (before, here, after) =
                (if *index == 1 { 0.0 } else { at(index - 1) }, at(*index), at(index + 1));
            here > 0.0 && here >= fraction * most && here > before && here >= after
        };
        let peak = |index: usize| Peak { frequency: index as f64 * self.resolution, density: at(index) };
        (1..self.density.len()).filter(is_peak).map(peak).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(frequency: f64, n_values: usize) -> Vec<f32> {
        (0..n_values).map(|at| (2.0 * PI * frequency * at as f64).sin() as f32).collect()
    }

    #[test]
    fn a_wave_is_found_at_its_frequency_with_its_power() {
        let welch = Welch::new(200, 100, 1.0).unwrap();
        let spectrum = welch.spectrum(&wave(0.05, 2_000)).unwrap();
        let peaks = spectrum.peaks(0.5);
        assert_eq!(peaks.len(), 1);
        assert!((peaks[0].frequency - 0.05).abs() < 1e-9);
        let power: f64 = spectrum.density.iter().sum::<f64>() * spectrum.resolution;
        assert!((power - 0.5).abs() < 0.01, "{power}");
    }

    #[test]
    fn short_series_are_rejected_and_a_constant_has_no_peak() {
        let welch = Welch::new(100, 50, 1.0).unwrap();
        let short = welch.spectrum(&[0.0; 99]).unwrap_err();
        assert_eq!(short, SpectrumError::TooShort { n_values: 99, segment: 100 });
        assert!(welch.spectrum(&[0.25; 400]).unwrap().peaks(0.1).is_empty());
        assert_eq!(Welch::new(10, 10, 1.0).unwrap_err(), SpectrumError::Segment);
    }
}
