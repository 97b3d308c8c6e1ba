//! Classifies windows by kind of job: each labelled kind is a region of the embedding space, with calibrated confidence.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use archive::Archive;
use learn::stats::{mean, softmax, std_dev};
use serde::{Deserialize, Serialize};
use workload::{Control, JobId};

use crate::archive_windows::Reading;
use crate::data::KnownJobs;
use crate::detector::{Finding, Level};
use crate::split::WindowFilter;
use crate::trained::TrainedDetector;
use crate::usage::JobUsage;
use crate::window::{ThreadWindow, WindowBatch};

/// A kind with fewer windows has no region.
pub const MIN_KIND_WINDOWS: usize = 10;
/// The fraction of a kind's windows that its region contains.
const REGION_FRACTION: f64 = 0.95;
/// The softmax temperatures that are tried; the one with the lowest held-out cross entropy is used.
const TEMPERATURES: [f64; 9] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
/// The smallest standard deviation of a feature within a kind, relative to that of all kinds.
const MIN_STD_DEV: f64 = 0.05;
/// Folds of whole jobs for cross-validation.
const N_FOLDS: usize = 5;
/// Bins of confidence in which it is compared with accuracy.
const N_BINS: usize = 10;

/// The features of one window of a labelled job.
#[derive(Debug, Clone)]
pub struct LabelledPoint {
    pub kind: String,
    pub job: JobId,
    pub features: Vec<f64>,
}

impl LabelledPoint {
    pub fn new(kind: &str, job: &JobId, finding: &Finding, usage: Option<&JobUsage>) -> Self {
        Self { kind: kind.to_owned(), job: job.clone(), features: features_of(finding, usage) }
    }

    /// The points of the labelled jobs of an archive, from windows that overlap by half.
    pub fn of_archive(
        detector: &TrainedDetector,
        archive: &Archive,
        control: Control<'_>,
    ) -> archive::Result<Vec<Self>> {
        let known = KnownJobs::new(&archive.labels()?);
        let mut points = Vec::new();
        if known.is_empty() {
            return Ok(points);
        }
        let spec = detector.window_spec((detector.config.window / 2).max(1));
        let reading = Reading { archive, filter: &WindowFilter::All, spec: &spec, control };
        reading.for_each_batch::<archive::Error>(|batch| {
            let is_known =
                |thread: &ThreadWindow| thread.job().is_some_and(|job| known.kind_of_job(job).is_some());
            if batch.threads().iter().any(is_known) {
                points.extend(Self::of_batch(&batch, &detector.examine(&batch), &known));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(points)
    }

    /// The points of the labelled jobs of a batch.
    fn of_batch(batch: &WindowBatch, findings: &[Finding], known: &KnownJobs) -> Vec<Self> {
        let mut points = Vec::new();
        for (thread, finding) in batch.threads().iter().zip(findings) {
            let Some((job, kind)) = thread.job().and_then(|job| Some((job, known.kind_of_job(job)?))) else {
                continue;
            };
            points.push(Self::new(kind, job, finding, batch.usage_of(thread)));
        }
        points
    }
}

/// The features that kinds are classified by: the embedding, and the logarithms of each channel's error, of the distances
/// from normal on the levels of the hierarchy, of the growth of memory and of the CPU time that others used. The levels
/// tell apart jobs whose single threads do the same, such as one with a stuck rank from a healthy one.
pub fn features_of(finding: &Finding, usage: Option<&JobUsage>) -> Vec<f64> {
    let errors = finding.errors.iter().map(|error| (error + 1e-5).log10());
    let growth = usage.and_then(|usage| usage.memory).map_or(0.0, |memory| memory.growth_per_hour);
    let foreign = usage.and_then(|usage| usage.foreign_cpu).unwrap_or(0.0);
    let of_job = [(growth + 0.05).log10(), (foreign + 0.05).log10()];
    // Levels of nodes and clusters are about other jobs as well.
    let levels = Level::ALL.iter().zip(&finding.distances);
    let of_levels = levels
        .filter(|(level, _)| matches!(level, Level::Thread | Level::Peers | Level::Job))
        .map(|(_, distance)| (distance + 0.1).log10());
    let embedding = finding.embedding.iter().map(|value| f64::from(*value));
    embedding.chain(errors).chain(of_levels).chain(of_job).collect()
}

/// The distribution of the windows of one kind.
#[derive(Debug, Clone, PartialEq)]
struct Region {
    kind: String,
    centre: Vec<f64>,
    std_devs: Vec<f64>,
    /// The distance that contains [`REGION_FRACTION`] of its windows.
    radius: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct KindClassifier {
    regions: Vec<Region>,
    temperature: f64,
    /// Absent if every kind has too few jobs to hold one out.
    pub reliability: Option<Reliability>,
}

/// The quality of the classification on held-out jobs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reliability {
    /// How often the most likely kind is the right one.
    pub accuracy: f64,
    /// The accuracy of always answering the most common kind.
    pub majority: f64,
    /// The mean confidence in the most likely kind.
    pub confidence: f64,
    /// The expected calibration error: the mean difference of confidence and accuracy over bins of confidence.
    pub calibration_error: f64,
}

/// A known kind that a window may be of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindMatch {
    pub kind: String,
    /// The probability of this kind if the window is of a known kind; sums to one over kinds.
    pub confidence: f64,
    /// The distance from the centre of the region, relative to its radius.
    pub distance: f64,
    /// Whether the window is inside the region.
    pub is_inside: bool,
}

impl KindClassifier {
    /// `None` if no kind has enough windows.
    pub fn fit<'a>(points: impl IntoIterator<Item = &'a LabelledPoint>) -> Option<Self> {
        let points: Vec<&LabelledPoint> = points.into_iter().collect();
        let regions = regions(&points);
        if regions.is_empty() {
            return None;
        }
        let held_out = cross_validate(&points);
        let temperature = best_temperature(held_out.iter());
        Some(Self { regions, temperature, reliability: Reliability::of(&held_out) })
    }

    /// A classifier for windows of one job, fitted to the points of all other jobs.
    pub fn without_job(points: &[LabelledPoint], job: &JobId) -> Option<Self> {
        Self::fit(points.iter().filter(|point| point.job != *job))
    }

    /// All known kinds, the most likely first.
    pub fn classify(&self, finding: &Finding, usage: Option<&JobUsage>) -> Vec<KindMatch> {
        self.classify_features(&features_of(finding, usage))
    }

    pub(crate) fn classify_features(&self, features: &[f64]) -> Vec<KindMatch> {
        let unlikelihoods: Vec<f64> =
            self.regions.iter().map(|region| region.unlikelihood(features)).collect();
        let confidences = confidences(&unlikelihoods, self.temperature);
        let mut found: Vec<KindMatch> = Vec::new();
        for (region, confidence) in self.regions.iter().zip(confidences) {
            let distance = region.squared_distance(features).sqrt();
            let is_inside = distance <= region.radius;
            let distance = distance / region.radius.max(f64::MIN_POSITIVE);
            found.push(KindMatch { kind: region.kind.clone(), confidence, distance, is_inside });
        }
        found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        found
    }

    pub fn kinds(&self) -> Vec<&str> {
        self.regions.iter().map(|region| region.kind.as_str()).collect()
    }
}

/// A bin of the reliability diagram.
#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    n_right: usize,
    confidence: f64,
}

impl Reliability {
    fn of(held_out: &[HeldOut]) -> Option<Self> {
        let mut bins = [Bin::default(); N_BINS];
        let mut by_kind: BTreeMap<&str, usize> = BTreeMap::new();
        for fold in 0..N_FOLDS {
            // The temperature of a fold is chosen without it.
            let temperature = best_temperature(held_out.iter().filter(|one| one.fold != fold));
            for one in held_out.iter().filter(|one| one.fold == fold) {
                let confidences = confidences(&one.unlikelihoods, temperature);
                let nearest = most_likely(&one.unlikelihoods);
                let bin = ((confidences[nearest] * N_BINS as f64) as usize).min(N_BINS - 1);
                bins[bin].n_right += usize::from(nearest == one.truth);
                bins[bin].confidence += confidences[nearest];
                *by_kind.entry(&one.kind).or_default() += 1;
            }
        }
        let fraction = |count: f64| count / held_out.len() as f64;
        Some(Self {
            majority: fraction(by_kind.into_values().max()? as f64),
            accuracy: fraction(bins.iter().map(|bin| bin.n_right as f64).sum()),
            confidence: fraction(bins.iter().map(|bin| bin.confidence).sum()),
            calibration_error: fraction(
                bins.iter().map(|bin| (bin.n_right as f64 - bin.confidence).abs()).sum(),
            ),
        })
    }
}

impl Region {
    /// `all_std_devs` are those of all kinds together.
    fn fit(kind: &str, points: &[&[f64]], all_std_devs: &[f64]) -> Self {
        let size = points[0].len();
        let centre: Vec<f64> = (0..size).map(|axis| mean(&column(points, axis))).collect();
        let std_dev_of = |axis: usize| {
            let smallest = (MIN_STD_DEV * all_std_devs[axis]).max(1e-6);
            std_dev(&column(points, axis)).max(smallest)
        };
        let std_devs = (0..size).map(std_dev_of).collect();
        let mut region = Self { kind: kind.to_owned(), centre, std_devs, radius: 0.0 };
        let mut distances: Vec<f64> =
            points.iter().map(|point| region.squared_distance(point).sqrt()).collect();
        distances.sort_by(f64::total_cmp);
        region.radius = distances[((distances.len() - 1) as f64 * REGION_FRACTION) as usize];
        region
    }

    /// The mean squared z-score over all dimensions.
    fn squared_distance(&self, point: &[f64]) -> f64 {
        let terms = point.iter().zip(&self.centre).zip(&self.std_devs);
        terms.map(|((value, centre), std_dev)| ((value - centre) / std_dev).powi(2)).sum::<f64>()
            / point.len() as f64
    }

    /// How unlikely the point is: twice the negative logarithm of its density, per dimension. A kind that varies much is
    /// near to everything, and its density is low everywhere.
    fn unlikelihood(&self, point: &[f64]) -> f64 {
        let logarithms: f64 = self.std_devs.iter().map(|std_dev| 2.0 * std_dev.ln()).sum();
        self.squared_distance(point) + logarithms / point.len() as f64
    }
}

/// The values of one feature.
fn column(points: &[&[f64]], axis: usize) -> Vec<f64> {
    points.iter().map(|point| point[axis]).collect()
}

fn regions(points: &[&LabelledPoint]) -> Vec<Region> {
    let all: Vec<&[f64]> = points.iter().map(|point| &point.features[..]).collect();
    let n_features = all.first().map_or(0, |point| point.len());
    let std_devs: Vec<f64> = (0..n_features).map(|axis| std_dev(&column(&all, axis))).collect();
    let mut by_kind: BTreeMap<&str, Vec<&[f64]>> = BTreeMap::new();
    for point in points {
        by_kind.entry(&point.kind).or_default().push(&point.features);
    }
    let enough = by_kind.into_iter().filter(|(_, points)| points.len() >= MIN_KIND_WINDOWS);
    enough.map(|(kind, points)| Region::fit(kind, &points, &std_devs)).collect()
}

/// Softmax of negative unlikelihoods.
fn confidences(unlikelihoods: &[f64], temperature: f64) -> Vec<f64> {
    softmax(&unlikelihoods.iter().map(|value| -value / temperature).collect::<Vec<_>>())
}

fn most_likely(unlikelihoods: &[f64]) -> usize {
    let all = unlikelihoods.iter().enumerate();
    all.min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(index, _)| index)
}

/// The temperature with the lowest cross entropy; one without held-out windows.
fn best_temperature<'a>(held_out: impl Iterator<Item = &'a HeldOut> + Clone) -> f64 {
    if held_out.clone().next().is_none() {
        return 1.0;
    }
    let loss = |temperature: f64| -> f64 {
        held_out
            .clone()
            .map(|one| -confidences(&one.unlikelihoods, temperature)[one.truth].max(1e-9).ln())
            .sum()
    };
    TEMPERATURES.into_iter().min_by(|a, b| loss(*a).total_cmp(&loss(*b))).unwrap_or(1.0)
}

/// A window of a held-out job.
struct HeldOut {
    fold: usize,
    kind: String,
    /// How unlikely it is in regions fitted without its fold.
    unlikelihoods: Vec<f64>,
    /// The index of its kind among them.
    truth: usize,
}

/// Cross-validation over whole jobs: each window whose kind also has a job in another fold.
fn cross_validate(points: &[&LabelledPoint]) -> Vec<HeldOut> {
    let mut jobs: Vec<&JobId> = points.iter().map(|point| &point.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let mut found = Vec::new();
    for fold in 0..N_FOLDS {
        let is_held_out = |point: &LabelledPoint| {
            jobs.binary_search(&&point.job).is_ok_and(|index| index % N_FOLDS == fold)
        };
        let (held_out, kept): (Vec<&LabelledPoint>, Vec<&LabelledPoint>) =
            points.iter().partition(|point| is_held_out(point));
        let regions = regions(&kept);
        for point in held_out {
            if let Some(truth) = regions.iter().position(|region| region.kind == point.kind) {
                let unlikelihoods =
                    regions.iter().map(|region| region.unlikelihood(&point.features)).collect();
                found.push(HeldOut { fold, kind: point.kind.clone(), unlikelihoods, truth });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<LabelledPoint> {
        let point = |index: usize| {
            let kind = ["np", "bad-io"][index % 2];
            let noise = (index as f64 * 0.618).fract() - 0.5;
            let job = JobId::new(format!("{kind}-{}", index % 12)).unwrap();
            let features = vec![(index % 2) as f64 * 3.0 + noise, noise];
            LabelledPoint { kind: kind.into(), job, features }
        };
        (0..200).map(point).collect()
    }

    #[test]
    fn a_window_gets_the_kind_whose_region_it_is_in() {
        let classifier = KindClassifier::fit(&points()).unwrap();
        let reliability = classifier.reliability.unwrap();
        assert!(reliability.accuracy > 0.95 && reliability.majority == 0.5, "{reliability:?}");
        assert!(reliability.calibration_error < 0.05, "{reliability:?}");
        let found = classifier.classify_features(&[3.1, 0.1]);
        assert!(found[0].kind == "bad-io" && found[0].confidence > 0.9 && found[0].is_inside, "{found:?}");
        assert!(found[0].distance < 1.0 && found[1].distance > 1.0 && !found[1].is_inside);
        assert!((found.iter().map(|one| one.confidence).sum::<f64>() - 1.0).abs() < 1e-9);
        let far = classifier.classify_features(&[30.0, 9.0]);
        assert!(far.iter().all(|one| !one.is_inside), "an unknown kind is inside no region");
    }

    #[test]
    fn a_kind_that_varies_much_does_not_claim_everything() {
        let mut points = points();
        for (index, point) in points.iter_mut().enumerate().filter(|(_, point)| point.kind == "np") {
            point.features = [0.618, 0.414].map(|step| (index as f64 * step).fract() * 40.0 - 20.0).to_vec();
        }
        let classifier = KindClassifier::fit(&points).unwrap();
        // Just outside the narrow region, and well inside the wide one.
        let found = classifier.classify_features(&[3.6, 0.4]);
        assert_eq!(found[0].kind, "bad-io", "{found:?}");
        assert_eq!(classifier.classify_features(&[-15.0, 10.0])[0].kind, "np");
    }

    #[test]
    fn a_job_does_not_vouch_for_itself() {
        let mut points = points();
        let own = JobId::new("lonely").unwrap();
        for index in 0..20 {
            let features = vec![-5.0 + 0.01 * f64::from(index), 4.0];
            points.push(LabelledPoint { kind: "leak".into(), job: own.clone(), features });
        }
        let with = KindClassifier::fit(&points).unwrap();
        assert_eq!(with.classify_features(&[-4.9, 4.0])[0].kind, "leak");
        let without = KindClassifier::without_job(&points, &own).unwrap();
        assert!(!without.kinds().contains(&"leak"));
        assert!(without.classify_features(&[-4.9, 4.0]).iter().all(|one| !one.is_inside));
    }

    #[test]
    fn where_kinds_overlap_confidence_matches_accuracy() {
        let mut mixed = points();
        for (index, point) in mixed.iter_mut().enumerate() {
            point.features = [0.618, 0.414].map(|step| (index as f64 * step).fract() * 2.0).to_vec();
            point.features[0] += if point.kind == "np" { 0.7 } else { 0.0 };
        }
        let reliability = KindClassifier::fit(&mixed).unwrap().reliability.unwrap();
        assert!((0.6..0.9).contains(&reliability.accuracy), "{reliability:?}");
        assert!((reliability.confidence - reliability.accuracy).abs() < 0.1, "{reliability:?}");
    }

    #[test]
    fn without_labelled_windows_there_is_no_classifier() {
        assert_eq!(KindClassifier::fit(&[]), None);
        assert_eq!(KindClassifier::fit(&points()[..4]), None);
    }
}
