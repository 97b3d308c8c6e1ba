//! The window, from Welch's spectral density of each kind and channel: a window has to contain one period of
//! what repeats most slowly.

mod dominant;
mod report;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use archive::Archive;
use learn::{Spectrum, Welch};
use rayon::prelude::*;
use serde::Serialize;
use workload::{Control, JobId, ThreadId};

use super::{AnalysisError, CHANNELS};
use crate::stretch::{Kinds, Stretch, Stretches};
use dominant::{MIN_PERIODS, dominant};
pub use report::write;

/// Lengths of segments in samples, longest first, from which one is chosen.
const SEGMENTS: [usize; 5] = [1_024, 512, 256, 128, 64];
/// Segments that each kind should have.
const MIN_SEGMENTS: usize = 8;
/// Samples that are kept per kind, and in all; more would hardly change a mean of so many segments.
const MAX_SAMPLES_PER_KIND: usize = 5_000_000;
const MAX_SAMPLES: usize = 30_000_000;
/// A channel whose rate has a smaller standard deviation decides only if all are like that.
const MIN_DEVIATION: f64 = 0.02;
/// Without a dominant frequency, a window has to contain one period of all but the slowest 5 % of the power.
const POWER_FRACTION: f64 = 0.95;
/// Windows are rounded up to a multiple of this many samples.
const WINDOW_SAMPLES: f64 = 10.0;

#[derive(Debug, Clone, Default)]
pub struct SpectrumSettings {
    /// Samples per segment; chosen if not set.
    pub segment: Option<usize>,
}

#[derive(Debug, Clone, Serialize)]
pub struct SpectrumReport {
    pub archive: String,
    /// The sampling period of the archive.
    pub period_seconds: f64,
    pub segment_seconds: f64,
    pub kinds: Vec<KindSpectrum>,
    /// Kinds without a stretch of one segment.
    pub too_short: Vec<String>,
    pub advice: Advice,
}

#[derive(Debug, Clone, Serialize)]
pub struct KindSpectrum {
    pub kind: String,
    pub jobs: usize,
    /// Thread-seconds.
    pub seconds: f64,
    pub channels: Vec<ChannelSpectrum>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ChannelSpectrum {
    pub channel: &'static str,
    pub is_constant: bool,
    /// Standard deviation within segments.
    pub deviation: f64,
    /// The number of segments in the mean.
    pub segments: usize,
    /// Lowest first.
    pub dominant: Vec<Dominant>,
    /// The frequency above which 95 % of the power lies.
    pub corner_hz: Option<f64>,
    pub frequencies_hz: Vec<f64>,
    pub density: Vec<f64>,
}

impl ChannelSpectrum {
    /// The frequency that a window has to contain one period of.
    fn slowest_hz(&self) -> Option<f64> {
        self.dominant.first().map(|peak| peak.hz).or(self.corner_hz)
    }
}

/// A frequency whose density is too high for red noise.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Dominant {
    pub hz: f64,
    /// One period.
    pub seconds: f64,
    /// Its density as a multiple of that of the noise.
    pub times_noise: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    pub window_seconds: f64,
    pub frequency_hz: f64,
    pub kind: String,
    pub channel: &'static str,
    pub reason: String,
}

/// The stretches of one kind.
#[derive(Default)]
struct KindSeries {
    /// The lengths of the stretches of each thread of each job.
    jobs: BTreeMap<JobId, BTreeMap<ThreadId, Vec<usize>>>,
    n_samples: usize,
    /// By channel, one series per stretch.
    series: [Vec<Vec<f32>>; CHANNELS.len()],
}

impl KindSeries {
    fn note(&mut self, stretch: &Stretch<'_>) {
        let threads = self.jobs.entry(stretch.job.clone()).or_default();
        threads.entry(stretch.thread.clone()).or_default().push(stretch.rates.len());
    }

    fn keep(&mut self, stretch: &Stretch<'_>) {
        self.n_samples += stretch.rates.len();
        for (channel, series) in self.series.iter_mut().enumerate() {
            series.push(stretch.rates.iter().map(|rates| rates.as_array()[channel]).collect());
        }
    }

    fn longest(&self) -> usize {
        self.series[0].iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Segments that are independent of each other: threads of one job do the same at the same time, and count
    /// once.
    fn n_independent(&self, segment: usize) -> usize {
        let of_thread =
            |lengths: &Vec<usize>| lengths.iter().map(|n_steps| n_segments(*n_steps, segment)).sum::<usize>();
        self.jobs.values().map(|threads| threads.values().map(of_thread).max().unwrap_or(0)).sum()
    }
}

/// Analyzes the spectra of an archive, at its own sampling period.
pub fn analyze(
    archive: &Archive,
    kinds: &Kinds,
    settings: &SpectrumSettings,
    control: &Control<'_>,
) -> Result<SpectrumReport, AnalysisError> {
    let stretches = Stretches::of(archive, kinds)?;
    let period = stretches.period().as_seconds();
    let found = gather(&stretches, control)?;
    let segment = settings.segment.unwrap_or_else(|| choose_segment(&found));
    let longest = found.values().map(KindSeries::longest).max().unwrap_or(0);
    if longest < segment {
        let [wanted_seconds, longest_seconds] = [segment, longest].map(|n_steps| n_steps as f64 * period);
        return Err(AnalysisError::TooShort { wanted_seconds, longest_seconds });
    }
    let welch = Welch::new(segment, segment / 2, 1.0 / period)?;
    let (usable, too_short): (Vec<_>, Vec<_>) = found.iter().partition(|(_, kind)| kind.longest() >= segment);
    let kinds: Vec<KindSpectrum> = usable
        .into_par_iter()
        .map(|(name, kind)| {
            let channels = CHANNELS
                .into_par_iter()
                .zip(&kind.series)
                .map(|(channel, series)| {
                    control.check()?;
                    channel_spectrum(&welch, channel, series, kind.n_independent(segment))
                })
                .collect::<Result<_, AnalysisError>>()?;
            let seconds = kind.n_samples as f64 * period;
            Ok(KindSpectrum { kind: name.clone(), jobs: kind.jobs.len(), seconds, channels })
        })
        .collect::<Result<_, AnalysisError>>()?;
    let segment_seconds = segment as f64 * period;
    Ok(SpectrumReport {
        archive: archive.address().to_owned(),
        period_seconds: period,
        segment_seconds,
        too_short: too_short.into_iter().map(|(name, _)| name.clone()).collect(),
        advice: advise(&kinds, period, segment_seconds)?,
        kinds,
    })
}

fn gather(
    stretches: &Stretches<'_>,
    control: &Control<'_>,
) -> Result<BTreeMap<String, KindSeries>, AnalysisError> {
    let mut found: BTreeMap<String, KindSeries> = BTreeMap::new();
    let mut n_samples = 0;
    stretches.for_each(control, |stretch| -> Result<_, AnalysisError> {
        let kind = found.entry(stretch.kind.to_owned()).or_default();
        kind.note(&stretch);
        if kind.n_samples < MAX_SAMPLES_PER_KIND && n_samples < MAX_SAMPLES {
            n_samples += stretch.rates.len();
            kind.keep(&stretch);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if found.is_empty() { Err(AnalysisError::NoJobs) } else { Ok(found) }
}

/// The longest segment that every kind has enough of, or else the shortest.
fn choose_segment(found: &BTreeMap<String, KindSeries>) -> usize {
    let of_kind = |kind: &KindSeries, segment: usize| -> usize {
        kind.series[0].iter().map(|series| n_segments(series.len(), segment)).sum()
    };
    let is_enough = |segment: &usize| found.values().all(|kind| of_kind(kind, *segment) >= MIN_SEGMENTS);
    SEGMENTS.into_iter().find(is_enough).unwrap_or(SEGMENTS[SEGMENTS.len() - 1])
}

/// Segments that overlap by half in a stretch.
fn n_segments(n_steps: usize, segment: usize) -> usize {
    n_steps.checked_sub(segment).map_or(0, |rest| rest / (segment / 2).max(1) + 1)
}

fn channel_spectrum(
    welch: &Welch,
    channel: &'static str,
    series: &[Vec<f32>],
    n_independent: usize,
) -> Result<ChannelSpectrum, AnalysisError> {
    let spectrum = welch.spectrum_of_all(series.iter().map(Vec::as_slice))?;
    let first = series.iter().flatten().next().copied();
    let is_constant = series.iter().flatten().all(|value| Some(*value) == first);
    let (dominant, corner_hz) = if is_constant {
        (Vec::new(), None)
    } else {
        (dominant(&spectrum, n_independent), corner(&spectrum))
    };
    Ok(ChannelSpectrum {
        channel,
        is_constant,
        deviation: (spectrum.density.iter().sum::<f64>() * spectrum.resolution).sqrt(),
        segments: spectrum.n_segments,
        dominant,
        corner_hz,
        frequencies_hz: spectrum.frequencies().collect(),
        density: spectrum.density,
    })
}

/// The frequency above which most of the power lies.
fn corner(spectrum: &Spectrum) -> Option<f64> {
    let power: f64 = spectrum.density.iter().skip(1).sum();
    let mut below = 0.0;
    spectrum.frequencies().zip(&spectrum.density).skip(1).find_map(|(hz, density)| {
        below += density;
        (below >= (1.0 - POWER_FRACTION) * power).then_some(hz)
    })
}

/// The slowest channel decides: by its lowest dominant frequency, or by its corner where it has none.
fn advise(kinds: &[KindSpectrum], period: f64, segment_seconds: f64) -> Result<Advice, AnalysisError> {
    let channels = || kinds.iter().flat_map(|kind| kind.channels.iter().map(move |channel| (kind, channel)));
    let slowest = |min_deviation: f64| {
        channels()
            .filter(|(_, channel)| channel.deviation >= min_deviation)
            .filter_map(|(kind, channel)| Some((channel.slowest_hz()?, kind, channel)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
    };
    let Some((hz, kind, channel)) = slowest(MIN_DEVIATION).or_else(|| slowest(0.0)) else {
        return Err(AnalysisError::Constant);
    };
    let n_samples = (1.0 / hz / (WINDOW_SAMPLES * period) - 1e-9).ceil().max(1.0) * WINDOW_SAMPLES;
    // Periods are whole milliseconds.
    let window_seconds = (n_samples * period * 1e3).round() / 1e3;
    let mut reason = format!("the slowest channel is the {} rate of {}; ", channel.channel, kind.kind);
    reason += &if channel.dominant.is_empty() {
        format!(
            "it has no dominant frequency, {:.0} % of its variance is above {hz:.4} Hz, and a window of {window_seconds} s \
             covers that",
            POWER_FRACTION * 100.0
        )
    } else {
        format!(
            "its lowest dominant frequency is {hz:.4} Hz (period {}), and a window of {window_seconds} s contains one period",
            show_period(1.0 / hz)
        )
    };
    if hz < (MIN_PERIODS as f64 + 0.5) / segment_seconds {
        reason += &format!(
            "; this is the lowest frequency that segments of {segment_seconds} s resolve, so longer jobs may need a longer \
             window"
        );
    }
    Ok(Advice { window_seconds, frequency_hz: hz, kind: kind.kind.clone(), channel: channel.channel, reason })
}

/// A period in seconds, with two decimals where it is short.
pub fn show_period(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.2} s") } else { format!("{seconds:.0} s") }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use workload::{Millis, Stop};

    use super::*;
    use crate::analysis::recording::Recording;

    /// A job whose user rate is a noisy square wave of this period, in steps.
    fn square_wave(period: Millis, steps_per_wave: i64, n_steps: i64) -> Recording {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut recording = Recording::new(period);
        for step in 0..n_steps {
            let level = if step % steps_per_wave < steps_per_wave / 2 { 0.7 } else { 0.3 };
            recording.step(step, &[(Some("1"), level + rng.random_range(-0.2..0.2))]);
        }
        recording
    }

    fn analyzed(recording: &Recording) -> SpectrumReport {
        let settings = SpectrumSettings::default();
        analyze(&recording.archive(), &Kinds::default(), &settings, &Control::default()).unwrap()
    }

    #[test]
    fn a_square_wave_of_2_5_hz_is_found_in_an_archive_of_10_hz() {
        let report = analyzed(&square_wave(Millis(100), 4, 6_000));
        assert_eq!(report.period_seconds, 0.1);
        let user = &report.kinds[0].channels[0];
        assert_eq!(user.dominant.len(), 1, "{:?}", user.dominant);
        assert!((user.dominant[0].hz - 2.5).abs() < 1e-9);
        assert_eq!((report.advice.window_seconds, report.advice.frequency_hz), (1.0, 2.5));
        assert_eq!(report.kinds[0].seconds, 599.9);
    }

    #[test]
    fn the_window_contains_one_period_of_a_square_wave() {
        // 32 s is a frequency of the spectrum; the harmonics of a square wave are odd.
        let report = analyzed(&square_wave(Millis::SECOND, 32, 6_000));
        let dominant = &report.kinds[0].channels[0].dominant;
        assert!((dominant[0].hz - 1.0 / 32.0).abs() < 1e-9, "{dominant:?}");
        assert!((dominant[1].hz - 3.0 / 32.0).abs() < 1e-9, "{dominant:?}");
        assert_eq!(report.advice.window_seconds, 40.0);
        assert_eq!(
            report.advice.reason,
            "the slowest channel is the user rate of 1; its lowest dominant frequency is 0.0312 Hz (period 32 s), and a \
             window of 40 s contains one period"
        );
    }

    #[test]
    fn short_jobs_are_rejected_and_an_analysis_can_be_stopped() {
        let recording = square_wave(Millis::SECOND, 4, 30);
        let (archive, kinds, settings) =
            (recording.archive(), Kinds::default(), SpectrumSettings { segment: Some(64) });
        let short = analyze(&archive, &kinds, &settings, &Control::default()).unwrap_err();
        assert_eq!(
            short.to_string(),
            "no job owned a thread for 64 s without a gap; the longest stretch has 29 s"
        );
        let stop = Stop::default();
        stop.now();
        let stopped = analyze(&archive, &kinds, &settings, &Control::new(&stop, &|_, _| {}));
        assert!(matches!(stopped, Err(AnalysisError::Stopped(_))), "{stopped:?}");
    }
}
