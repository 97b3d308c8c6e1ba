//! The report of a comparison.

use std::path::{Path, PathBuf};

use detect::analysis::CHANNELS;
use report::{Axis, Chart, Mark, Page, ReportFolder, Series};

use super::{CompareError, Comparison, FEATURES, KindComparison};

/// Writes `comparison.html`, `comparison.json` and the charts; returns the path of the page.
pub fn write(comparison: &Comparison, folder: &Path, origin: &str) -> Result<PathBuf, CompareError> {
    let folder = ReportFolder::create(folder)?;
    let mut page = Page::new("Simulated and recorded jobs", origin);
    page.lead(format!(
        "A classifier separates simulated from recorded windows with an AUC of {} (0.5: not at all, 1: always). The \
         baseline, recorded windows with shuffled seconds, has {}.",
        shown(comparison.auc),
        shown(comparison.auc_of_shuffled)
    ));
    page.text(format!(
        "One classifier per kind: gradient-boosted trees on windows of {} s of one thread. The features of each channel \
         are {}; further features are the correlation with the next thread of the job, and whether it is the first \
         thread. Cross-validation: each recorded job is scored by trees that were not trained on it. If the simulator \
         was fitted to this recording, another recording would give a larger AUC. Kinds with one recorded job have \
         no AUC.",
        comparison.window_seconds,
        FEATURES.join(", ")
    ));
    let header = [
        "kind",
        ">threads",
        ">jobs",
        ">windows",
        ">AUC simulated",
        ">AUC shuffled",
        ">user (rec / sim)",
        ">system",
        ">iowait",
    ];
    page.table(&header, comparison.kinds.iter().map(row).collect());
    for kind in &comparison.kinds {
        for (channel, [recorded, simulated]) in CHANNELS.iter().zip(&kind.distributions) {
            let is_flat = |points: &Vec<(f64, f64)>| points.last().is_none_or(|last| last.0 < 0.02);
            if is_flat(recorded) && is_flat(simulated) {
                continue;
            }
            let what = format!("{} on {} threads", kind.kind, kind.threads);
            let fraction = Axis::linear("fraction of seconds").including([0.0, 1.0]);
            let rate = Axis::linear("rate").including([0.0, 1.0]);
            let chart = Chart::new(format!("{what}: {channel} rate"), rate, fraction)
                .with(Series::new("recorded", Mark::Line, recorded.clone()))
                .with(Series::new("simulated", Mark::Line, simulated.clone()));
            let svg = folder.chart(&format!("{}-{}-{channel}", kind.kind, kind.threads), &chart)?;
            page.figure(svg, format!("Cumulative distribution of the {channel} rate of {what}."));
        }
    }
    Ok(folder.page("comparison", &page, comparison)?)
}

fn row(kind: &KindComparison) -> Vec<String> {
    let counts = [kind.threads, kind.recorded_jobs, kind.recorded_windows].map(|count| count.to_string());
    let mut row = vec![kind.kind.clone()];
    row.extend(counts);
    row.extend([shown(kind.auc), shown(kind.auc_of_shuffled)]);
    row.extend(CHANNELS.iter().map(|channel| {
        let [recorded, simulated] = kind.means[channel];
        format!("{recorded:.3} / {simulated:.3}")
    }));
    row
}

fn shown(auc: Option<f64>) -> String {
    auc.map_or_else(|| "–".into(), |auc| format!("{auc:.3}"))
}
