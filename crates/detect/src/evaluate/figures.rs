//! The pictures of an evaluation: windows and what was expected of them, errors by kind, embeddings in the plane,
//! distance from a known trouble, curves.

use std::collections::BTreeMap;

use learn::metrics::curve;
use learn::umap::{Umap, UmapSettings};
use learn::{Matrix, Pca};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use report::{Axis, Chart, Mark, Series};
use workload::label::family;

use super::Test;
use crate::channel::RATES;
use crate::{Finding, Moment, Sample, ThreadWindow, Trained};

/// Dots that a picture has room for.
const MOST_DOTS: usize = 1_500;
/// Steps of a histogram from the least error to the most.
const N_BINS: usize = 60;

/// A window that a detector has looked at.
pub struct Seen<'a> {
    pub kind: &'a str,
    pub window: &'a ThreadWindow,
    pub finding: Finding,
}

/// A random part of a sample, seen by a detector.
pub fn look<'a>(trained: &Trained, sample: &'a Sample, test: &'a Test<'_>) -> Vec<Seen<'a>> {
    let mut moments: Vec<&Moment> = sample.moments.iter().collect();
    moments.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(0));
    let mut seen = Vec::new();
    for moment in moments {
        if seen.len() > 4 * MOST_DOTS {
            break;
        }
        for (window, finding) in moment.threads.iter().zip(trained.examine(moment)) {
            seen.push(Seen { kind: family(test.kind_of(&window.job)), window, finding });
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

/// What a logarithm can be taken of.
fn error(finding: &Finding) -> f64 {
    finding.error().max(1e-9)
}

/// The window of a kind whose error is in the middle, and what was expected of it (the seed's figure 2).
pub fn window_chart(seen: &[Seen<'_>], kind: &str, n_channels: usize) -> Option<Chart> {
    let mut of_kind: Vec<&Seen<'_>> = seen.iter().filter(|one| one.kind == kind).collect();
    of_kind.sort_by(|a, b| error(&a.finding).total_cmp(&error(&b.finding)));
    let chosen = of_kind.get(of_kind.len() / 2)?;
    let title = format!("{kind}: a window and what was expected (error {:.4})", error(&chosen.finding));
    let mut chart =
        Chart::new(title, Axis::linear("seconds"), Axis::linear("share of the second").including([0.0, 1.0]));
    for (channel, name) in RATES.iter().enumerate().filter(|(_, name)| **name != "other") {
        let line = |values: &[f32]| -> Vec<(f64, f64)> {
            let steps = values.chunks_exact(n_channels).enumerate();
            steps.map(|(step, values)| (step as f64, f64::from(values[channel]))).collect()
        };
        chart = chart.with(Series::new(*name, Mark::Line, line(&chosen.window.values)));
        chart =
            chart.with(Series::new(format!("{name}, expected"), Mark::Line, line(&chosen.finding.expected)));
    }
    Some(chart)
}

/// How errors are spread in each kind (the seed's figure 3).
pub fn error_chart(seen: &[Seen<'_>]) -> Chart {
    let logs = || seen.iter().map(|one| error(&one.finding).log10());
    let (least, most) = (logs().fold(f64::MAX, f64::min), logs().fold(f64::MIN, f64::max).max(-8.0));
    let width = ((most - least) / N_BINS as f64).max(1e-6);
    let mut chart = Chart::new(
        "Errors by kind of job",
        Axis::log("reconstruction error"),
        Axis::linear("share of the kind's windows"),
    );
    for kind in kinds(seen) {
        let of_kind: Vec<f64> =
            seen.iter().filter(|one| one.kind == kind).map(|one| error(&one.finding).log10()).collect();
        let mut bins = vec![0.0; N_BINS + 1];
        of_kind.iter().for_each(|log| bins[((log - least) / width) as usize] += 1.0 / of_kind.len() as f64);
        let points =
            bins.iter().enumerate().map(|(at, share)| (10f64.powf(least + at as f64 * width), *share));
        chart = chart.with(Series::new(kind, Mark::Line, points.collect()));
    }
    chart
}

/// How points are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    Components,
    Neighbours,
}

/// Points in the plane: fitted to those of the train set, applied to those of the test (the seed's figure 4a).
pub fn plane_chart(
    title: &str,
    plane: Plane,
    (train, test): (&[Seen<'_>], &[Seen<'_>]),
    point: impl Fn(&Seen<'_>) -> Vec<f32>,
) -> Option<Chart> {
    let matrix = |seen: &[Seen<'_>]| {
        let rows: Vec<Vec<f32>> = seen.iter().take(MOST_DOTS).map(&point).collect();
        let size = rows.first().map_or(1, Vec::len);
        Matrix::new(rows.concat(), size)
    };
    let (train, points) = (matrix(train), matrix(test));
    if train.n_rows() < 3 || points.n_rows() == 0 {
        return None;
    }
    let (placed, names) = match plane {
        Plane::Components => {
            (Pca::fit(&train, 2).ok()?.transform(&points), ["first component", "second component"])
        }
        Plane::Neighbours => {
            let settings = UmapSettings::default();
            (Umap::fit(&train, &settings).ok()?.transform(&points), ["first axis", "second axis"])
        }
    };
    let mut chart = Chart::new(title, Axis::linear(names[0]), Axis::linear(names[1]));
    let mut of_kind: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (one, place) in test.iter().zip(placed.rows()) {
        of_kind.entry(one.kind).or_default().push((f64::from(place[0]), f64::from(place[1])));
    }
    for (kind, points) in of_kind {
        chart = chart.with(Series::new(kind, Mark::Dots, points));
    }
    Some(chart)
}

/// How far windows are from the middle of a known trouble, and how much they waited at most (the seed's figure 4b).
pub fn distance_chart(seen: &[Seen<'_>], trouble: &str, test: &Test<'_>, n_channels: usize) -> Option<Chart> {
    let of_trouble: Vec<&Seen<'_>> = seen.iter().filter(|one| one.kind == trouble).collect();
    let size = of_trouble.first()?.finding.embedding.len();
    let embeddings = of_trouble.iter().flat_map(|one| one.finding.embedding.iter().copied()).collect();
    let centre = Matrix::new(embeddings, size).column_means();
    let mut chart = Chart::new(
        format!("Distance from {trouble} and the most iowait of a second"),
        Axis::linear(format!("distance from the middle of {trouble}")),
        Axis::linear("most iowait").including([0.0, 1.0]),
    );
    for kind in kinds(seen).into_iter().filter(|kind| *kind == trouble || !test.is_anomalous(kind)) {
        let points = seen.iter().take(2 * MOST_DOTS).filter(|one| one.kind == kind).map(|one| {
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
        Curve::Roc => {
            ("False alarms and recall", "share of normal windows", "share of anomalous windows found")
        }
        Curve::PrecisionRecall => ("Recall and precision", "share of anomalous windows found", "precision"),
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
