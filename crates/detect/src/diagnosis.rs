//! Which known kind a window is like: kinds of labelled jobs as regions of the embedding, and how sure that is.

use std::collections::BTreeMap;

use learn::moments::mean;
use serde::Serialize;
use workload::JobId;

use super::{Finding, Moment, Trained};

/// Windows of a kind below which it is no region.
const LEAST_WINDOWS: usize = 10;
/// The share of a kind's windows that its region holds.
const REGION_SHARE: f64 = 0.95;
/// Sharpness of confidence that is tried: the one that is right about itself is taken.
const TEMPERATURES: [f64; 9] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
/// Folds of whole jobs that are left out in turn.
const N_FOLDS: usize = 5;
/// Steps of confidence within which it is compared with how often it was right.
const N_STEPS: usize = 10;

/// One labelled window: where it lies.
#[derive(Debug, Clone)]
pub struct Placed {
    pub kind: String,
    pub job: JobId,
    pub point: Vec<f64>,
}

impl Placed {
    pub fn new(kind: &str, job: &JobId, finding: &Finding) -> Self {
        Self { kind: kind.to_owned(), job: job.clone(), point: point_of(finding) }
    }
}

/// Where a window lies: its embedding, and how wrong each channel was.
pub fn point_of(finding: &Finding) -> Vec<f64> {
    let errors = finding.errors.iter().map(|error| (error + 1e-5).log10());
    finding.embedding.iter().map(|value| f64::from(*value)).chain(errors).collect()
}

/// Places the windows of labelled jobs of a moment.
pub fn place(trained: &Trained, moment: &Moment, kinds: &BTreeMap<JobId, String>, into: &mut Vec<Placed>) {
    for (thread, finding) in moment.threads.iter().zip(trained.examine(moment)) {
        if let Some(kind) = kinds.get(&thread.job) {
            into.push(Placed::new(kind, &thread.job, &finding));
        }
    }
}

/// Where the windows of a kind lie.
#[derive(Debug, Clone, PartialEq)]
struct Region {
    kind: String,
    centre: Vec<f64>,
    widths: Vec<f64>,
    /// The distance that most of its windows are within.
    reach: f64,
}

/// What is known of kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Atlas {
    regions: Vec<Region>,
    temperature: f64,
    /// Unless a kind has too few jobs for one to be left out.
    pub reliability: Option<Reliability>,
}

/// How far to trust it that a window is of a kind, for jobs that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reliability {
    /// How often the likeliest kind is the right one.
    pub accuracy: f64,
    /// How often the commonest kind would be.
    pub commonest: f64,
    /// How sure it was of the likeliest, on the average.
    pub confidence: f64,
    /// By how much confidence and being right differ on the average, over steps of confidence.
    pub calibration_error: f64,
}

/// A kind that a window may be of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Likeness {
    pub kind: String,
    /// Of all known kinds; they sum to one.
    pub confidence: f64,
    /// In widths of the kind's region.
    pub distance: f64,
    /// Whether the window lies where most windows of the kind do.
    pub is_inside: bool,
}

impl Atlas {
    /// `None` if no kind has enough windows.
    pub fn fit(placed: &[Placed]) -> Option<Self> {
        let regions = regions(placed);
        if regions.is_empty() {
            return None;
        }
        let held_out = leave_jobs_out(placed);
        let temperature = temperature_for(held_out.iter());
        Some(Self { regions, temperature, reliability: Reliability::of(&held_out) })
    }

    /// The kinds that a window may be of, the likeliest first.
    pub fn likenesses(&self, point: &[f64]) -> Vec<Likeness> {
        let distances: Vec<f64> = self.regions.iter().map(|region| region.distance(point)).collect();
        let sure = confidences(&distances, self.temperature);
        let mut found: Vec<Likeness> = self
            .regions
            .iter()
            .zip(distances.iter().zip(sure))
            .map(|(region, (distance, confidence))| Likeness {
                kind: region.kind.clone(),
                confidence,
                distance: distance.sqrt(),
                is_inside: distance.sqrt() <= region.reach,
            })
            .collect();
        found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        found
    }

    pub fn kinds(&self) -> Vec<&str> {
        self.regions.iter().map(|region| region.kind.as_str()).collect()
    }
}

impl Reliability {
    fn of(held_out: &[HeldOut]) -> Option<Self> {
        let mut by_step = [(0usize, 0usize, 0.0); N_STEPS];
        let mut by_kind: BTreeMap<&str, usize> = BTreeMap::new();
        for fold in 0..N_FOLDS {
            // What a fold's confidence is judged by has no part in it.
            let temperature = temperature_for(held_out.iter().filter(|one| one.fold != fold));
            for one in held_out.iter().filter(|one| one.fold == fold) {
                let sure = confidences(&one.distances, temperature);
                let likeliest = nearest(&one.distances);
                let step = ((sure[likeliest] * N_STEPS as f64) as usize).min(N_STEPS - 1);
                let (n_windows, n_right, confidence) = &mut by_step[step];
                *n_windows += 1;
                *n_right += usize::from(likeliest == one.truth);
                *confidence += sure[likeliest];
                *by_kind.entry(&one.kind).or_default() += 1;
            }
        }
        let share = |count: f64| count / held_out.len() as f64;
        let off = |(_, n_right, confidence): &(usize, usize, f64)| (*n_right as f64 - confidence).abs();
        Some(Self {
            commonest: share(by_kind.into_values().max()? as f64),
            accuracy: share(by_step.iter().map(|(_, n_right, _)| *n_right as f64).sum()),
            confidence: share(by_step.iter().map(|(.., confidence)| confidence).sum()),
            calibration_error: share(by_step.iter().map(off).sum()),
        })
    }
}

impl Region {
    fn fit(kind: &str, points: &[&[f64]]) -> Self {
        let size = points[0].len();
        let column = |axis: usize| -> Vec<f64> { points.iter().map(|point| point[axis]).collect() };
        let centre: Vec<f64> = (0..size).map(|axis| mean(&column(axis))).collect();
        let widths = (0..size).map(|axis| learn::moments::deviation(&column(axis)).max(1e-3)).collect();
        let mut region = Self { kind: kind.to_owned(), centre, widths, reach: 0.0 };
        let mut distances: Vec<f64> = points.iter().map(|point| region.distance(point).sqrt()).collect();
        distances.sort_by(f64::total_cmp);
        region.reach = distances[((distances.len() - 1) as f64 * REGION_SHARE) as usize];
        region
    }

    /// Squared, in widths, for one dimension on the average; wide regions are far from everything.
    fn distance(&self, point: &[f64]) -> f64 {
        let terms = point.iter().zip(&self.centre).zip(&self.widths);
        terms.map(|((value, centre), width)| ((value - centre) / width).powi(2)).sum::<f64>()
            / point.len() as f64
    }
}

fn regions(placed: &[Placed]) -> Vec<Region> {
    let mut by_kind: BTreeMap<&str, Vec<&[f64]>> = BTreeMap::new();
    placed.iter().for_each(|one| by_kind.entry(&one.kind).or_default().push(&one.point));
    let enough = by_kind.into_iter().filter(|(_, points)| points.len() >= LEAST_WINDOWS);
    enough.map(|(kind, points)| Region::fit(kind, &points)).collect()
}

/// How sure one can be of each kind, given the squared distances from all.
fn confidences(distances: &[f64], temperature: f64) -> Vec<f64> {
    let least = distances.iter().copied().fold(f64::MAX, f64::min);
    let weights: Vec<f64> =
        distances.iter().map(|distance| (-(distance - least) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

fn nearest(distances: &[f64]) -> usize {
    let all = distances.iter().enumerate();
    all.min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(index, _)| index)
}

/// The sharpness that gives the right kinds the most confidence; one where nothing tells.
fn temperature_for<'a>(held_out: impl Iterator<Item = &'a HeldOut> + Clone) -> f64 {
    if held_out.clone().next().is_none() {
        return 1.0;
    }
    let loss = |temperature: f64| -> f64 {
        held_out.clone().map(|one| -confidences(&one.distances, temperature)[one.truth].max(1e-9).ln()).sum()
    };
    TEMPERATURES.into_iter().min_by(|a, b| loss(*a).total_cmp(&loss(*b))).unwrap_or(1.0)
}

/// A window of a job that was left out.
struct HeldOut {
    fold: usize,
    kind: String,
    /// From regions that were made without its fold.
    distances: Vec<f64>,
    /// The place of its kind among them.
    truth: usize,
}

/// Each window whose kind is also that of a job in another fold.
fn leave_jobs_out(placed: &[Placed]) -> Vec<HeldOut> {
    let mut jobs: Vec<&JobId> = placed.iter().map(|one| &one.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let mut found = Vec::new();
    for fold in 0..N_FOLDS {
        let is_out = |one: &Placed| jobs.binary_search(&&one.job).is_ok_and(|index| index % N_FOLDS == fold);
        let kept: Vec<Placed> = placed.iter().filter(|one| !is_out(one)).cloned().collect();
        let regions = regions(&kept);
        for one in placed.iter().filter(|one| is_out(one)) {
            if let Some(truth) = regions.iter().position(|region| region.kind == one.kind) {
                let distances = regions.iter().map(|region| region.distance(&one.point)).collect();
                found.push(HeldOut { fold, kind: one.kind.clone(), distances, truth });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed() -> Vec<Placed> {
        let one = |index: usize| {
            let kind = ["np", "bad-io"][index % 2];
            let noise = (index as f64 * 0.618).fract() - 0.5;
            let job = JobId::new(format!("{kind}-{}", index % 12)).unwrap();
            Placed { kind: kind.into(), job, point: vec![(index % 2) as f64 * 3.0 + noise, noise] }
        };
        (0..200).map(one).collect()
    }

    #[test]
    fn a_window_is_like_the_kind_whose_region_it_is_in() {
        let atlas = Atlas::fit(&placed()).unwrap();
        let reliability = atlas.reliability.unwrap();
        assert!(reliability.accuracy > 0.95 && reliability.commonest == 0.5, "{reliability:?}");
        assert!(reliability.calibration_error < 0.05, "{reliability:?}");
        let found = atlas.likenesses(&[3.1, 0.1]);
        assert!(found[0].kind == "bad-io" && found[0].confidence > 0.9 && found[0].is_inside, "{found:?}");
        assert!(!found[1].is_inside);
        assert!((found.iter().map(|one| one.confidence).sum::<f64>() - 1.0).abs() < 1e-9);
        let between = atlas.likenesses(&[30.0, 9.0]);
        assert!(between.iter().all(|one| !one.is_inside), "what is like nothing known is said to be so");
    }

    #[test]
    fn where_kinds_overlap_confidence_is_as_low_as_it_is_right() {
        let mut mixed = placed();
        mixed.iter_mut().enumerate().for_each(|(index, one)| {
            one.point = [0.618, 0.414].map(|step| (index as f64 * step).fract() * 2.0).to_vec();
            one.point[0] += if one.kind == "np" { 0.7 } else { 0.0 };
        });
        let reliability = Atlas::fit(&mixed).unwrap().reliability.unwrap();
        assert!((0.6..0.9).contains(&reliability.accuracy), "{reliability:?}");
        assert!((reliability.confidence - reliability.accuracy).abs() < 0.1, "{reliability:?}");
    }

    #[test]
    fn without_labelled_windows_there_is_nothing_to_be_like() {
        assert_eq!(Atlas::fit(&[]), None);
        assert_eq!(Atlas::fit(&placed()[..4]), None);
    }
}
