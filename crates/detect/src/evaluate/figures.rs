//! The charts of an evaluation: windows and their reconstructions, errors by kind, embeddings in two dimensions, distance
//! from a known anomaly, ROC and precision-recall curves. Figure numbers refer to Mohammed et al. (CHEP 2024).

use std::collections::BTreeMap;

use learn::metrics::curve;
use learn::umap::{Umap, UmapSettings};
use learn::{Matrix, Pca};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use report::{Axis, Chart, Mark, Series};
use workload::label::family;

use super::TestSet;
use crate::channel::RATES;
use crate::detector::Finding;
use crate::sample::Sample;
use crate::trained::TrainedDetector;
use crate::window::{ThreadWindow, WindowBatch};

/// The largest number of dots in a chart.
const MAX_DOTS: usize = 1_500;
/// The bins of a histogram.
const N_BINS: usize = 60;

/// A window with the finding of a detector.
pub struct Seen<'a> {
    pub kind: &'a str,
    pub window: &'a ThreadWindow,
    pub finding: Finding,
}

/// The findings of a random subset of a sample.
pub fn examine_sample<'a>(
    detector: &TrainedDetector,
    sample: &'a Sample,
    test: &'a TestSet<'_>,
) -> Vec<Seen<'a>> {
    let mut batches: Vec<&WindowBatch> = sample.batches.iter().collect();
    batches.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(0));
    let mut seen = Vec::new();
    for batch in batches {
        if seen.len() > 4 * MAX_DOTS {
            break;
        }
        for (window, finding) in batch.threads().iter().zip(detector.examine(batch)) {
            seen.push(Seen { kind: family(test.kind_of(&window.owner)), window, finding });
        }
    }
    seen.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(1));
    seen
}

fn kinds<'a>(seen: &'a [Seen<'_>]) -> Vec<&'a str> {
    let mut kinds: Vec<&str> = seen.iter().map(|one| one.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The reconstruction error, bounded away from zero for logarithms.
fn error(finding: &Finding) -> f64 {
    finding.error().max(1e-9)
}

/// The window of a kind with the median error, and its reconstruction (figure 2).
pub fn window_chart(seen: &[Seen<'_>], kind: &str, n_channels: usize) -> Option<Chart> {
    let mut of_kind: Vec<&Seen<'_>> = seen.iter().filter(|one| one.kind == kind).collect();
    of_kind.sort_by(|a, b| error(&a.finding).total_cmp(&error(&b.finding)));
    let chosen = of_kind.get(of_kind.len() / 2)?;
    let title = format!("{kind}: a window and its reconstruction (error {:.4})", error(&chosen.finding));
    let mut chart =
        Chart::new(title, Axis::linear("step"), Axis::linear("fraction of the step").including([0.0, 1.0]));
    for (channel, name) in RATES.iter().enumerate().filter(|(_, name)| **name != "other") {
        let line = |values: &[f32]| -> Vec<(f64, f64)> {
            let steps = values.chunks_exact(n_channels).enumerate();
            steps.map(|(step, values)| (step as f64, f64::from(values[channel]))).collect()
        };
        chart = chart.with(Series::new(*name, Mark::Line, line(&chosen.window.values)));
        chart = chart.with(Series::new(
            format!("{name}, reconstructed"),
            Mark::Line,
            line(&chosen.finding.expected),
        ));
    }
    Some(chart)
}

/// The distribution of errors of each kind (figure 3).
pub fn error_chart(seen: &[Seen<'_>]) -> Chart {
    let logs = || seen.iter().map(|one| error(&one.finding).log10());
    let (least, most) = (logs().fold(f64::MAX, f64::min), logs().fold(f64::MIN, f64::max).max(-8.0));
    let width = ((most - least) / N_BINS as f64).max(1e-6);
    let mut chart = Chart::new(
        "Errors by kind of job",
        Axis::log("reconstruction error"),
        Axis::linear("fraction of the kind's windows"),
    );
    for kind in kinds(seen) {
        let of_kind: Vec<f64> =
            seen.iter().filter(|one| one.kind == kind).map(|one| error(&one.finding).log10()).collect();
        let mut bins = vec![0.0; N_BINS + 1];
        for log in &of_kind {
            bins[((log - least) / width) as usize] += 1.0 / of_kind.len() as f64;
        }
        let points =
            bins.iter().enumerate().map(|(at, fraction)| (10f64.powf(least + at as f64 * width), *fraction));
        chart = chart.with(Series::new(kind, Mark::Line, points.collect()));
    }
    chart
}

/// The projection to two dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    Components,
    Neighbours,
}

/// The windows that a projection is fitted to, and those that it is applied to.
pub struct Points<'a, 'b> {
    pub train: &'a [Seen<'b>],
    pub test: &'a [Seen<'b>],
}

/// A scatter plot: fitted to the training set, applied to the test set (figure 4a).
pub fn plane_chart(
    title: &str,
    plane: Plane,
    points: Points<'_, '_>,
    point: impl Fn(&Seen<'_>) -> Vec<f32>,
) -> Option<Chart> {
    let matrix = |seen: &[Seen<'_>]| {
        let rows: Vec<Vec<f32>> = seen.iter().take(MAX_DOTS).map(&point).collect();
        let size = rows.first().map_or(1, Vec::len);
        Matrix::new(rows.concat(), size)
    };
    let Points { train, test } = points;
    let (train, points) = (matrix(train), matrix(test));
    if train.n_rows() < 3 || points.n_rows() == 0 {
        return None;
    }
    let (placed, [x, y]) = match plane {
        Plane::Components => {
            let pca = Pca::fit(&train, 2).ok()?;
            (pca.transform(&points), [0, 1].map(|component| pca.axis_label(component)))
        }
        Plane::Neighbours => {
            let umap = Umap::fit(&train, &UmapSettings::default()).ok()?;
            (umap.transform(&points), ["first axis", "second axis"].map(str::to_owned))
        }
    };
    let mut chart = Chart::new(title, Axis::linear(x), Axis::linear(y));
    let mut of_kind: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (one, place) in test.iter().zip(placed.rows()) {
        of_kind.entry(one.kind).or_default().push((f64::from(place[0]), f64::from(place[1])));
    }
    for (kind, points) in of_kind {
        chart = chart.with(Series::new(kind, Mark::Dots, points));
    }
    Some(chart)
}

/// The distance of windows from the centroid of a known anomaly, against their maximum iowait (figure 4b).
pub fn distance_chart(
    seen: &[Seen<'_>],
    anomaly: &str,
    test: &TestSet<'_>,
    n_channels: usize,
) -> Option<Chart> {
    let of_anomaly: Vec<&Seen<'_>> = seen.iter().filter(|one| one.kind == anomaly).collect();
    let size = of_anomaly.first()?.finding.embedding.len();
    let embeddings = of_anomaly.iter().flat_map(|one| one.finding.embedding.iter().copied()).collect();
    let centre = Matrix::new(embeddings, size).column_means();
    let mut chart = Chart::new(
        format!("Distance from {anomaly} and maximum iowait"),
        Axis::linear(format!("distance from the centroid of {anomaly}")),
        Axis::linear("maximum iowait").including([0.0, 1.0]),
    );
    for kind in kinds(seen).into_iter().filter(|kind| *kind == anomaly || !test.known.is_anomalous_kind(kind))
    {
        let points = seen.iter().take(2 * MAX_DOTS).filter(|one| one.kind == kind).map(|one| {
            let off = one
                .finding
                .embedding
                .iter()
                .zip(&centre)
                .map(|(value, centre)| (f64::from(*value) - centre).powi(2));
            let most = one.window.values.chunks_exact(n_channels).map(|step| step[2]).fold(0.0, f32::max);
            (off.sum::<f64>().sqrt(), f64::from(most))
        });
        chart = chart.with(Series::new(kind, Mark::Dots, points.collect()));
    }
    Some(chart)
}

/// Which curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    Roc,
    PrecisionRecall,
}

/// One curve for each detector, from its scores of the test.
pub fn curve_chart(which: Curve, scored: &[(&str, Vec<f64>, Vec<bool>)]) -> Chart {
    let (title, x, y) = match which {
        Curve::Roc => ("ROC curve", "false-positive rate", "recall"),
        Curve::PrecisionRecall => ("Precision-recall curve", "recall", "precision"),
    };
    let unit = |name: &str| Axis::linear(name).including([0.0, 1.0]);
    let mut chart = Chart::new(title, unit(x), unit(y));
    for (name, scores, truth) in scored {
        let points = curve(scores, truth).into_iter().map(|point| match which {
            Curve::Roc => (point.false_alarms, point.recall),
            Curve::PrecisionRecall => (point.recall, point.precision),
        });
        chart = chart.with(Series::new(*name, Mark::Line, points.collect()));
    }
    chart
}
