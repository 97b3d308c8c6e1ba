//! Regions that are known to be bad: windows that surely are of an anomalous kind raise an event on their own, however
//! well a detector reconstructs them.

use std::collections::{BTreeMap, BTreeSet};

use workload::JobId;

use crate::data::KnownJobs;
use crate::detector::Finding;
use crate::evidence::Evidence;
use crate::kind_classifier::{KindClassifier, KindMatch, LabelledPoint, features_of};
use crate::tail::TailFit;
use crate::usage::JobUsage;

/// Folds of whole jobs, so that no job judges itself.
const N_FOLDS: usize = 5;
/// At most this is believed: odds of 999 to one.
const MAX_CONFIDENCE: f64 = 0.999;
/// The odds below which a window inside a bad region never raises an event.
const MIN_ODDS: f64 = 3.0;

/// The labelled kinds, and how sure a bad one has to be.
#[derive(Debug, Clone)]
pub struct Regions {
    classifier: KindClassifier,
    bad_kinds: BTreeSet<String>,
    jobs: BTreeSet<JobId>,
    /// The odds of a bad kind, and [`Evidence::floor`], that a normal job exceeds with the probability of its part of the
    /// budget.
    pub threshold: f64,
}

impl Regions {
    /// Fits labelled points. `probability` is that of a normal job to exceed the threshold. `None` if no kind is bad, or
    /// if normal and bad kinds have too few windows.
    pub fn fit(points: &[LabelledPoint], known: &KnownJobs, probability: f64) -> Option<Self> {
        let kinds: BTreeSet<&str> = points.iter().map(|point| point.kind.as_str()).collect();
        let (bad, normal): (BTreeSet<&str>, BTreeSet<&str>) =
            kinds.into_iter().partition(|kind| known.is_anomalous_kind(kind));
        if bad.is_empty() || normal.is_empty() {
            return None;
        }
        let bad_kinds: BTreeSet<String> = bad.into_iter().map(str::to_owned).collect();
        let jobs: BTreeSet<&JobId> = points.iter().map(|point| &point.job).collect();
        let fold_of: BTreeMap<&JobId, usize> =
            jobs.into_iter().enumerate().map(|(index, job)| (job, index % N_FOLDS)).collect();
        let mut highest: BTreeMap<&JobId, f64> = BTreeMap::new();
        for fold in 0..N_FOLDS {
            let kept = points.iter().filter(|point| fold_of[&point.job] != fold);
            let Some(classifier) = KindClassifier::fit(kept) else { continue };
            let held_out = points.iter().filter(|point| fold_of[&point.job] == fold);
            for point in held_out.filter(|point| !bad_kinds.contains(&point.kind)) {
                let odds = odds(&classifier.classify_features(&point.features), &bad_kinds);
                let known = highest.entry(&point.job).or_insert(0.0);
                *known = known.max(odds);
            }
        }
        let floor = Evidence::Region.floor();
        let values: Vec<f64> = highest.into_values().map(|odds| odds + floor).collect();
        let threshold = TailFit::new(&values, Evidence::Region.prior_excess())?.threshold(probability);
        Some(Self {
            classifier: KindClassifier::fit(points)?,
            jobs: points.iter().map(|point| point.job.clone()).collect(),
            bad_kinds,
            threshold: threshold.clamp(MIN_ODDS, Evidence::Region.ceiling()) + floor,
        })
    }

    /// The odds that a window is of a bad kind; zero outside every bad region.
    pub fn odds(&self, finding: &Finding, usage: Option<&JobUsage>) -> f64 {
        odds(&self.classifier.classify_features(&features_of(finding, usage)), &self.bad_kinds)
    }

    /// Whether a job is one of those it was fitted to.
    pub fn contains(&self, job: &JobId) -> bool {
        self.jobs.contains(job)
    }
}

fn odds(matches: &[KindMatch], bad_kinds: &BTreeSet<String>) -> f64 {
    let bad = || matches.iter().filter(|one| bad_kinds.contains(&one.kind));
    if !bad().any(|one| one.is_inside) {
        return 0.0;
    }
    let confidence = bad().map(|one| one.confidence).sum::<f64>().min(MAX_CONFIDENCE);
    confidence / (1.0 - confidence)
}

#[cfg(test)]
mod tests {
    use workload::{Cpu, Label, NodeName, Set, Timestamp};

    use super::*;

    fn label(kind: &str, job: &str) -> Label {
        Label {
            campaign: "a".into(),
            set: Set::Test,
            kind: kind.into(),
            anomalous: None,
            job: JobId::new(job).unwrap(),
            node: NodeName::new("n1").unwrap(),
            threads: vec![Cpu(0)],
            start: Timestamp(0),
            end: Timestamp(1),
            made_by: None,
            disturbance: None,
        }
    }

    /// Twelve jobs of each kind, with a distance between the kinds.
    fn points(distance: f64) -> (Vec<LabelledPoint>, KnownJobs) {
        let (mut points, mut labels) = (Vec::new(), Vec::new());
        for (at, kind) in ["np", "bad-io"].into_iter().enumerate() {
            for job in 0..12 {
                let name = format!("{kind}-{job}");
                labels.push(label(kind, &name));
                for window in 0..20 {
                    let noise = (f64::from(job * 20 + window) * 0.618).fract() - 0.5;
                    let features = vec![at as f64 * distance + noise, noise * 0.5];
                    points.push(LabelledPoint {
                        kind: kind.into(),
                        job: JobId::new(&name).unwrap(),
                        features,
                    });
                }
            }
        }
        (points, KnownJobs::new(&labels))
    }

    #[test]
    fn a_clear_region_raises_events_and_a_muddled_one_does_not() {
        let (clear, known) = points(5.0);
        let regions = Regions::fit(&clear, &known, 1e-3).unwrap();
        let at = |regions: &Regions, x: f64| {
            odds(&regions.classifier.classify_features(&[x, 0.0]), &regions.bad_kinds)
        };
        assert!(at(&regions, 5.0) > regions.threshold && at(&regions, 0.0) < regions.threshold);
        assert_eq!(at(&regions, 50.0), 0.0, "far from everything");
        let (muddled, known) = points(0.2);
        let regions = Regions::fit(&muddled, &known, 1e-3).unwrap();
        assert!(at(&regions, 0.2) < regions.threshold, "{}", regions.threshold);
    }

    #[test]
    fn without_bad_kinds_there_are_no_regions() {
        let (points, _) = points(5.0);
        assert!(Regions::fit(&points, &KnownJobs::default(), 1e-3).is_none());
        assert!(Regions::fit(&[], &KnownJobs::default(), 1e-3).is_none());
    }
}
