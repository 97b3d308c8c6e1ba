//! The report of the spectra.

use std::path::{Path, PathBuf};

use report::{Axis, Chart, Mark, Page, ReportFolder, Series};

use super::dominant::{FALSE_POSITIVE_RATE, MIN_TIMES_NOISE};
use super::{ChannelSpectrum, SpectrumReport, show_period};
use crate::analysis::{AnalysisError, CHANNELS};

/// Densities below this are rounding errors, and not drawn.
const MIN_DENSITY: f64 = 1e-9;
/// Dominant frequencies that the table shows for a channel.
const MAX_SHOWN: usize = 4;

/// Writes `spectrum.html`, `spectrum.json` and one chart per channel; returns the path of the page.
pub fn write(report: &SpectrumReport, folder: &Path, origin: &str) -> Result<PathBuf, AnalysisError> {
    let folder = ReportFolder::create(folder)?;
    let mut page = Page::new("Spectra of jobs, and the window", origin);
    let advice = &report.advice;
    page.lead(format!("Use windows of {} s: {}.", advice.window_seconds, advice.reason));
    page.text(format!(
        "Welch's spectral density of all stretches that one job owned without a gap, sampled every {} s, in segments of \
         {} s that overlap by half; each kind is the mean of its segments. A frequency is dominant if its density is at \
         least {MIN_TIMES_NOISE} times that of red noise with the same power and autocorrelation, and if the probability \
         that such noise has a dominant frequency is below {FALSE_POSITIVE_RATE}.",
        report.period_seconds, report.segment_seconds
    ));
    for (index, channel) in CHANNELS.iter().enumerate() {
        let mut chart = Chart::new(
            format!("Spectral density of the {channel} rate"),
            Axis::log("frequency (Hz)"),
            Axis::log("density (1/Hz)"),
        );
        for kind in &report.kinds {
            let spectrum = &kind.channels[index];
            let points = spectrum.frequencies_hz.iter().copied().zip(spectrum.density.iter().copied());
            let points = points.skip(1).filter(|point| point.1 > MIN_DENSITY).collect();
            chart = chart.with(Series::new(&kind.kind, Mark::Line, points));
        }
        if advice.channel == *channel {
            chart = chart.note(advice.frequency_hz, format!("{:.4} Hz", advice.frequency_hz));
        }
        let svg = folder.chart(&format!("spectrum-{channel}"), &chart)?;
        page.figure(svg, format!("{channel}: one line per kind of job, both axes logarithmic."));
    }
    page.heading("Dominant frequencies");
    let mut rows = Vec::new();
    for kind in &report.kinds {
        for spectrum in &kind.channels {
            let corner = spectrum.corner_hz.map_or_else(String::new, |hz| format!("{hz:.4}"));
            let segments = spectrum.segments.to_string();
            let frequencies = dominant_frequencies(spectrum);
            rows.push(vec![kind.kind.clone(), spectrum.channel.into(), segments, frequencies, corner]);
        }
    }
    page.table(&["kind", "channel", ">segments", "dominant frequencies", ">corner (Hz)"], rows);
    if !report.too_short.is_empty() {
        page.text(format!("Kinds without a stretch of one segment: {}.", report.too_short.join(", ")));
    }
    Ok(folder.page("spectrum", &page, report)?)
}

fn dominant_frequencies(spectrum: &ChannelSpectrum) -> String {
    if spectrum.is_constant {
        return "constant".into();
    }
    if spectrum.dominant.is_empty() {
        return "none".into();
    }
    let shown = spectrum.dominant.iter().take(MAX_SHOWN).map(|peak| {
        format!("{:.4} Hz ({}, {:.1} × noise)", peak.hz, show_period(peak.seconds), peak.times_noise)
    });
    shown.collect::<Vec<_>>().join(", ")
}
