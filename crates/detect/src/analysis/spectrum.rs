//! How long to look: Welch's spectral density of each kind and channel. What repeats slowest has to
//! fit into a window.

use std::collections::BTreeMap;
use std::path::Path;

use archive::Archive;
use learn::{Peak, Spectrum, Welch};
use rayon::prelude::*;
use report::{Axis, Chart, Mark, Page, ReportFolder, Series};
use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF};
use workload::{JobId, ThreadId};

use super::{AnalysisError, CHANNELS};
use crate::stretch::{Kinds, Stretches};

/// Segments that are tried, longest first, when none is asked for.
const SEGMENTS: [usize; 5] = [1_024, 512, 256, 128, 64];
/// Segments that a spectrum should be the mean of.
const ENOUGH_SEGMENTS: usize = 8;
/// Steps that are kept of one kind, and of all; more would not change a mean of so many segments.
const MOST_STEPS: usize = 5_000_000;
const MOST_STEPS_OF_ALL: usize = 30_000_000;
/// Periods that a segment has to hold of what it is said to repeat.
const LEAST_PERIODS: usize = 4;
/// Frequencies on either side of a peak over which the taper spreads it.
const WIDTH: usize = 2;
/// Chances that noise alone makes any frequency of a spectrum stand out.
const FALSE_ALARM: f64 = 0.01;
/// With many segments the smallest hump is no chance any more; it has to be so many times the noise too.
const LEAST_TIMES_NOISE: f64 = 2.0;
/// A channel that moves less is left to the others.
const LEAST_DEVIATION: f64 = 0.02;
/// Where nothing stands out, a window has to see this share of what varies.
const SHARE_SEEN: f64 = 0.95;

#[derive(Debug, Clone, Default)]
pub struct SpectrumSettings {
    /// Steps a segment; chosen if not set.
    pub segment: Option<usize>,
}

#[derive(Debug, Clone, Serialize)]
pub struct SpectrumReport {
    pub archive: String,
    pub period_seconds: f64,
    pub segment_seconds: f64,
    pub kinds: Vec<KindSpectrum>,
    /// Kinds of which no thread was owned for a whole segment.
    pub too_short: Vec<String>,
    pub advice: Advice,
}

#[derive(Debug, Clone, Serialize)]
pub struct KindSpectrum {
    pub kind: String,
    pub jobs: usize,
    pub seconds: f64,
    pub channels: Vec<ChannelSpectrum>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ChannelSpectrum {
    pub channel: &'static str,
    pub is_constant: bool,
    /// Standard deviation, of what is faster than a segment.
    pub deviation: f64,
    /// Segments that the spectrum is the mean of.
    pub segments: usize,
    /// Frequencies that stand out of noise with the same memory, lowest first.
    pub dominant: Vec<Dominant>,
    /// Above this frequency lies most of what varies.
    pub corner_hz: Option<f64>,
    pub frequencies_hz: Vec<f64>,
    pub density: Vec<f64>,
}

impl ChannelSpectrum {
    /// What a window has to be long enough for.
    fn slowest_hz(&self) -> Option<f64> {
        self.dominant.first().map(|peak| peak.hz).or(self.corner_hz)
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Dominant {
    pub hz: f64,
    pub seconds: f64,
    /// Its density as a multiple of the noise's.
    pub times_noise: f64,
}

#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    pub window_seconds: u64,
    pub frequency_hz: f64,
    pub kind: String,
    pub channel: &'static str,
    pub reason: String,
}

#[derive(Default)]
struct KindSeries {
    /// How long the stretches of each thread of each job were.
    jobs: BTreeMap<JobId, BTreeMap<ThreadId, Vec<usize>>>,
    n_steps: usize,
    /// A list of series for each channel.
    series: [Vec<Vec<f32>>; 3],
}

/// Analyses an archive.
pub fn analyse(
    archive: &Archive,
    kinds: &Kinds,
    settings: &SpectrumSettings,
    progress: impl FnMut(u64, u64),
) -> Result<SpectrumReport, AnalysisError> {
    let stretches = Stretches::of(archive, kinds)?;
    let period = stretches.period.as_seconds();
    let mut found: BTreeMap<String, KindSeries> = BTreeMap::new();
    let mut n_steps_of_all = 0;
    stretches.for_each(
        |stretch| {
            let kind = found.entry(stretch.kind.to_owned()).or_default();
            let threads = kind.jobs.entry(stretch.job.clone()).or_default();
            threads.entry(stretch.thread.clone()).or_default().push(stretch.rates.len());
            if kind.n_steps < MOST_STEPS && n_steps_of_all < MOST_STEPS_OF_ALL {
                kind.n_steps += stretch.rates.len();
                n_steps_of_all += stretch.rates.len();
                for (index, series) in kind.series.iter_mut().enumerate() {
                    series.push(stretch.rates.iter().map(|rates| rates.as_array()[index]).collect());
                }
            }
        },
        progress,
    )?;
    if found.is_empty() {
        return Err(AnalysisError::NoJobs);
    }
    let longest = |kind: &KindSeries| kind.series[0].iter().map(Vec::len).max().unwrap_or(0);
    let segment = match settings.segment {
        Some(segment) => segment,
        None => choose_segment(&found),
    };
    let longest_of_all = found.values().map(longest).max().unwrap_or(0);
    if longest_of_all < segment {
        let seconds = |n_steps: usize| (n_steps as f64 * period).round() as usize;
        let (wanted, longest, what) = (seconds(segment), seconds(longest_of_all), "a shorter --segment");
        return Err(AnalysisError::TooShort { wanted, longest, what });
    }
    let welch = Welch::new(segment, segment / 2, 1.0 / period)?;
    let (usable, too_short): (Vec<_>, Vec<_>) = found.iter().partition(|(_, kind)| longest(kind) >= segment);
    let too_short = too_short.into_iter().map(|(name, _)| name.clone()).collect();
    let kinds: Vec<KindSpectrum> = usable
        .into_par_iter()
        .map(|(name, kind)| {
            let channels = CHANNELS
                .into_par_iter()
                .zip(&kind.series)
                .map(|(channel, series)| {
                    channel_spectrum(&welch, channel, series, kind.n_independent(segment))
                })
                .collect::<Result<_, AnalysisError>>()?;
            let seconds = kind.n_steps as f64 * period;
            Ok(KindSpectrum { kind: name.clone(), jobs: kind.jobs.len(), seconds, channels })
        })
        .collect::<Result<_, AnalysisError>>()?;
    let advice = advise(&kinds, segment as f64 * period)?;
    let (archive, segment_seconds) = (archive.address().to_owned(), segment as f64 * period);
    Ok(SpectrumReport { archive, period_seconds: period, segment_seconds, kinds, too_short, advice })
}

/// The longest segment of which every kind has enough, or else the shortest.
fn choose_segment(found: &BTreeMap<String, KindSeries>) -> usize {
    let of_kind = |kind: &KindSeries, segment: usize| -> usize {
        kind.series[0].iter().map(|series| n_segments(series.len(), segment)).sum()
    };
    let is_enough = |segment: &usize| found.values().all(|kind| of_kind(kind, *segment) >= ENOUGH_SEGMENTS);
    SEGMENTS.into_iter().find(is_enough).unwrap_or(SEGMENTS[SEGMENTS.len() - 1])
}

/// Segments that overlap by half in a stretch.
fn n_segments(n_steps: usize, segment: usize) -> usize {
    n_steps.checked_sub(segment).map_or(0, |rest| rest / (segment / 2) + 1)
}

impl KindSeries {
    /// Segments that say something of their own: threads of one job do the same at the same time.
    fn n_independent(&self, segment: usize) -> usize {
        let of_thread =
            |lengths: &Vec<usize>| lengths.iter().map(|n_steps| n_segments(*n_steps, segment)).sum::<usize>();
        self.jobs.values().map(|threads| threads.values().map(of_thread).max().unwrap_or(0)).sum()
    }
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
    let (dominant, corner_hz) = match is_constant {
        true => (Vec::new(), None),
        false => (dominant(&spectrum, n_independent), corner(&spectrum)),
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

/// Frequencies that stand out of red noise with the same power and memory, lowest first. Peaks are no noise:
/// the strongest is taken out, the noise fitted again to what is left, and so on until nothing stands out.
fn dominant(spectrum: &Spectrum, n_independent: usize) -> Vec<Dominant> {
    // Segments overlap by half and are tapered, so that they count for less than as many of their own.
    let freedom = (2.0 * n_independent as f64 * 0.95).max(2.0);
    let Ok(chance) = ChiSquared::new(freedom) else { return Vec::new() };
    let by_chance = chance.inverse_cdf(1.0 - FALSE_ALARM / spectrum.density.len() as f64) / freedom;
    let threshold = by_chance.max(LEAST_TIMES_NOISE);
    let index_of = |peak: &Peak| (peak.frequency / spectrum.resolution).round() as usize;
    let mut peaks: Vec<Peak> = spectrum.peaks(0.0);
    peaks.retain(|peak| index_of(peak) >= LEAST_PERIODS);
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
                cut_out(&mut floor, index_of(&peak));
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

/// Replaces a peak, as wide as the taper makes it, by a line between its feet.
fn cut_out(density: &mut [f64], index: usize) {
    let (low, high) = (index.saturating_sub(WIDTH + 1).max(1), (index + WIDTH + 1).min(density.len() - 1));
    let (from, to) = (density[low], density[high]);
    for (place, density) in density[low..=high].iter_mut().enumerate() {
        *density = from + (to - from) * place as f64 / (high - low).max(1) as f64;
    }
}

/// The spectrum of noise in which each step remembers the one before, as strongly as here.
fn red_noise(density: &[f64]) -> Vec<f64> {
    let last = (density.len() - 1).max(1) as f64;
    let angle = |index: usize| std::f64::consts::PI * index as f64 / last;
    let power: f64 = density.iter().skip(1).sum();
    let along: f64 =
        density.iter().enumerate().skip(1).map(|(index, density)| density * angle(index).cos()).sum();
    let memory = if power > 0.0 { (along / power).clamp(-0.98, 0.98) } else { 0.0 };
    let shape: Vec<f64> = (0..density.len())
        .map(|index| 1.0 / (1.0 - 2.0 * memory * angle(index).cos() + memory * memory))
        .collect();
    let scale = power / shape.iter().skip(1).sum::<f64>();
    shape.into_iter().map(|shape| shape * scale).collect()
}

/// The frequency above which a window's share of the power lies.
fn corner(spectrum: &Spectrum) -> Option<f64> {
    let power: f64 = spectrum.density.iter().skip(1).sum();
    let mut below = 0.0;
    spectrum.frequencies().zip(&spectrum.density).skip(1).find_map(|(hz, density)| {
        below += density;
        (below >= (1.0 - SHARE_SEEN) * power).then_some(hz)
    })
}

/// What is slowest decides: the lowest dominant frequency of a channel, or its corner where there is none.
fn advise(kinds: &[KindSpectrum], segment_seconds: f64) -> Result<Advice, AnalysisError> {
    let channels = || kinds.iter().flat_map(|kind| kind.channels.iter().map(move |channel| (kind, channel)));
    let slowest = |least_deviation: f64| {
        channels()
            .filter(|(_, channel)| channel.deviation >= least_deviation)
            .filter_map(|(kind, channel)| Some((channel.slowest_hz()?, kind, channel)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
    };
    // Channels that hardly move decide only if all are like that.
    let Some((hz, kind, channel)) = slowest(LEAST_DEVIATION).or_else(|| slowest(0.0)) else {
        return Err(AnalysisError::Constant);
    };
    let window_seconds = ((1.0 / hz) / 10.0 - 1e-9).ceil().max(1.0) as u64 * 10;
    let what = format!("{} time of {}", channel.channel, kind.kind);
    let mut reason = match channel.dominant.is_empty() {
        false => format!(
            "the slowest is the {what}, which repeats every {:.0} s ({hz:.4} Hz): a window of {window_seconds} s sees \
             it once as a whole",
            1.0 / hz
        ),
        true => format!(
            "the slowest is the {what}, in which nothing repeats that would stand out of noise; {:.0} % of what varies \
             there is faster than {hz:.4} Hz, and a window of {window_seconds} s sees that",
            SHARE_SEEN * 100.0
        ),
    };
    if hz < (LEAST_PERIODS as f64 + 0.5) / segment_seconds {
        reason += &format!(
            "; that is the slowest that segments of {segment_seconds:.0} s can show, so longer jobs may ask for more"
        );
    }
    let (kind, channel) = (kind.kind.clone(), channel.channel);
    Ok(Advice { window_seconds, frequency_hz: hz, kind, channel, reason })
}

/// Writes `spectrum.html`, `spectrum.json` and a chart a channel; returns the path of the page.
pub fn write(
    report: &SpectrumReport,
    folder: &Path,
    origin: &str,
) -> Result<std::path::PathBuf, AnalysisError> {
    let folder = ReportFolder::create(folder)?;
    let mut page = Page::new("How long to look", origin);
    let advice = &report.advice;
    page.lead(format!("Look at {} seconds at a time: {}.", advice.window_seconds, advice.reason));
    page.text(format!(
        "Welch's spectral density of every stretch that one job owned without a gap, in segments of {:.0} s that \
         overlap by half; each kind is the mean of its segments. A frequency is dominant if it has at least \
         {LEAST_TIMES_NOISE} times the density of red noise with the same power and memory, and such noise would show \
         it with a chance of less than {FALSE_ALARM}.",
        report.segment_seconds
    ));
    for (index, channel) in CHANNELS.iter().enumerate() {
        let mut chart = Chart::new(
            format!("Spectral density of the {channel} rate"),
            Axis::log("frequency (Hz)"),
            Axis::log("density (1/Hz)"),
        );
        for kind in &report.kinds {
            let spectrum = &kind.channels[index];
            let points =
                spectrum.frequencies_hz.iter().copied().zip(spectrum.density.iter().copied()).skip(1);
            // What is far below anything that varies is rounding.
            let points = points.filter(|point| point.1 > 1e-9).collect();
            chart = chart.with(Series::new(&kind.kind, Mark::Line, points));
        }
        if advice.channel == *channel {
            chart = chart.note(advice.frequency_hz, format!("{:.4} Hz", advice.frequency_hz));
        }
        let svg = folder.chart(&format!("spectrum-{channel}"), &chart)?;
        page.figure(svg, format!("{channel}: one line a kind of job, both axes logarithmic."));
    }
    page.heading("What stands out");
    let mut rows = Vec::new();
    for kind in &report.kinds {
        for spectrum in &kind.channels {
            let dominant = match (spectrum.is_constant, spectrum.dominant.is_empty()) {
                (true, _) => "constant".into(),
                (false, true) => "nothing".into(),
                (false, false) => {
                    let shown = spectrum.dominant.iter().take(4).map(|peak| {
                        format!("{:.4} Hz ({:.0} s, {:.1} × noise)", peak.hz, peak.seconds, peak.times_noise)
                    });
                    shown.collect::<Vec<_>>().join(", ")
                }
            };
            let corner = spectrum.corner_hz.map_or_else(String::new, |hz| format!("{hz:.4}"));
            let segments = spectrum.segments.to_string();
            let cells = [kind.kind.clone(), spectrum.channel.into(), segments, dominant, corner];
            rows.push(cells.to_vec());
        }
    }
    page.table(&["kind", "channel", ">segments", "dominant frequencies", ">corner (Hz)"], rows);
    if !report.too_short.is_empty() {
        page.text(format!("Too short for a segment: {}.", report.too_short.join(", ")));
    }
    Ok(folder.page("spectrum", &page, report)?)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn spectrum_of(make: impl Fn(usize, &mut Xoshiro256PlusPlus, f32) -> f32) -> Spectrum {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut before = 0.0;
        let values: Vec<f32> = (0..20_000)
            .map(|step| {
                before = make(step, &mut rng, before);
                before
            })
            .collect();
        Welch::new(256, 128, 1.0).unwrap().spectrum(&values).unwrap()
    }

    #[test]
    fn noise_has_no_dominant_frequency_white_or_red() {
        let white = spectrum_of(|_, rng, _| rng.random::<f32>());
        assert!(dominant(&white, white.n_segments).is_empty());
        let red = spectrum_of(|_, rng, before| 0.9 * before + rng.random::<f32>() - 0.5);
        assert!(dominant(&red, red.n_segments).is_empty());
    }

    #[test]
    fn a_beat_in_noise_is_found_where_it_is() {
        let beat = |step: usize| (step as f32 / 32.0 * std::f32::consts::TAU).sin();
        let spectrum = spectrum_of(|step, rng, _| 0.2 * beat(step) + 0.5 * rng.random::<f32>());
        let found = dominant(&spectrum, spectrum.n_segments);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!((found[0].hz - 1.0 / 32.0).abs() < 1e-6 && found[0].times_noise > 3.0);
    }
}
