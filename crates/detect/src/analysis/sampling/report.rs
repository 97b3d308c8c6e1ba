//! The report on sampling intervals.

use std::path::{Path, PathBuf};

use report::text::{show_bytes, show_count};
use report::{Axis, Chart, Mark, Page, ReportFolder, Series};

use super::{Interval, SamplingReport};
use crate::analysis::AnalysisError;

/// Writes `sampling.html`, `sampling.json` and the charts; returns the path of the page.
pub fn write(report: &SamplingReport, folder: &Path, origin: &str) -> Result<PathBuf, AnalysisError> {
    let folder = ReportFolder::create(folder)?;
    let mut page = Page::new("Separation of kinds, and the sampling interval", origin);
    let advice = &report.advice;
    page.lead(format!("Sample every {} s: {}.", advice.interval_seconds, advice.reason));
    page.text(format!(
        "Windows of {} s, resampled at each interval and projected on their first two principal components. The silhouette \
         of the kinds in that plane is measured on {} random subsets of {} windows (seed {}).",
        report.window_seconds, report.repeats, report.subset, report.seed
    ));
    let svg = folder.chart("silhouette", &silhouettes(report))?;
    page.figure(svg, "Mean over the subsets; bars are one standard deviation.");
    let rows = report.intervals.iter().map(|interval| {
        vec![
            format!("{} s", interval.seconds),
            format!("{:.3}", interval.silhouette),
            format!("{:.3}", interval.spread),
            format!("{:.0} %", interval.explained * 100.0),
            show_count(interval.samples_per_day),
            show_bytes(interval.bytes_per_day),
        ]
    });
    let header = [
        "interval",
        ">silhouette",
        ">standard deviation",
        ">variance explained",
        ">samples per thread and day",
        ">bytes per thread and day",
    ];
    page.table(&header, rows.collect());
    page.heading("Windows in the plane of the first two components");
    let shortest = report.intervals.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let advised = report.intervals.iter().find(|interval| interval.seconds == advice.interval_seconds);
    let mut shown: Vec<&Interval> = shortest.into_iter().chain(advised).collect();
    shown.dedup_by(|a, b| a.seconds == b.seconds);
    for interval in shown {
        let svg = folder.chart(&format!("pca-{}s", interval.seconds), &scatter(report, interval))?;
        page.figure(svg, format!("One dot per window, sampled every {} s.", interval.seconds));
    }
    let windows = report.kinds.iter().map(|kind| vec![kind.kind.clone(), kind.windows.to_string()]);
    page.table(&["kind", ">windows"], windows.collect());
    if !report.too_short.is_empty() {
        page.text(format!("Left out, with fewer than two windows: {}.", report.too_short.join(", ")));
    }
    if report.left_out > 0 {
        page.text(format!("The {} rarest kinds are left out.", report.left_out));
    }
    Ok(folder.page("sampling", &page, report)?)
}

fn silhouettes(report: &SamplingReport) -> Chart {
    let points = report.intervals.iter().map(|interval| (interval.seconds, interval.silhouette)).collect();
    let mut series = Series::new("silhouette", Mark::LineAndDots, points);
    series.spread = report.intervals.iter().map(|interval| interval.spread).collect();
    let ticks = report.intervals.iter().map(|interval| interval.seconds);
    let advised = report.advice.interval_seconds;
    Chart::new(
        "Separation of kinds of jobs",
        Axis::log("sampling interval (s)").with_ticks(ticks),
        Axis::linear("silhouette"),
    )
    .with(series)
    .note(advised, format!("advised: {advised} s"))
}

fn scatter(report: &SamplingReport, interval: &Interval) -> Chart {
    let title = format!("Principal components of windows, sampled every {} s", interval.seconds);
    let [x, y] = &interval.axes;
    let mut chart = Chart::new(title, Axis::linear(x), Axis::linear(y));
    for (index, kind) in report.kinds.iter().enumerate() {
        let dots = interval.scatter.iter().filter(|dot| dot.kind == index);
        chart = chart.with(Series::new(&kind.kind, Mark::Dots, dots.map(|dot| (dot.x, dot.y)).collect()));
    }
    chart
}
