//! Evaluates detectors on windows that they were not fitted to: errors by kind of job, detection, separation of
//! embeddings and false alarms, compared with random scores and the mean window.

pub mod events;
mod experiment;
mod figures;
pub mod report;

pub use events::{EventEvaluation, KindEvents};
pub use experiment::{Experiment, ExperimentStep};

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use learn::Matrix;
use learn::metrics::{pr_auc, roc_auc, vus_pr};
use learn::silhouette::silhouette;
use learn::stats::mean;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::Serialize;
use workload::label::family;
use workload::{Cpu, NodeName, Owner};

use crate::data::KnownJobs;
use crate::detector::{Finding, channel_errors};
use crate::kind_classifier::{KindClassifier, LabelledPoint, Reliability};
use crate::sample::Sample;
use crate::trained::TrainedDetector;
use crate::window::WindowBatch;

/// The largest number of points that a silhouette is computed from.
const MAX_POINTS: usize = 3_000;
/// The number of normal windows that faults are injected into.
const MAX_INJECTED: usize = 4_000;
/// The buffer around an anomaly in VUS-PR, in windows.
const VUS_BUFFER: usize = 4;
/// The kind of jobs without a label.
pub const UNKNOWN_KIND: &str = "unlabelled";
/// The anomalous kind that Mohammed et al. (CHEP 2024) report.
pub const PAPER_ANOMALY: &str = "bad-io";

/// Windows to evaluate on, with what labels say about them.
#[derive(Debug)]
pub struct TestSet<'a> {
    pub sample: &'a Sample,
    pub known: &'a KnownJobs,
    /// Normal batches with injected faults.
    pub cases: Vec<InjectedCase>,
}

/// Normal batches of the test set with one kind of fault.
#[derive(Debug)]
pub struct InjectedCase {
    pub fault: String,
    pub strength: f32,
    /// Whether it is of intermediate strength, by which detectors are compared.
    pub is_subtle: bool,
    pub batches: Vec<WindowBatch>,
    /// The windows of each batch that the fault changed.
    pub is_in: Vec<Vec<bool>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The mean reconstruction error of normal windows.
    pub normal_error: f64,
    pub kinds: Vec<KindResult>,
    /// The silhouette of embeddings by kind.
    pub silhouette: Option<f64>,
    /// The fraction of normal windows that exceed a threshold, on nodes without an anomalous job.
    pub false_alarm_rate: f64,
    /// The same for normal windows on nodes with an anomalous job, which may affect them.
    pub beside_anomalies: Option<f64>,
    /// All anomalous kinds together.
    pub all: Option<Detection>,
    /// The classification of kinds, cross-validated over the test jobs.
    pub diagnosis: Option<Reliability>,
    pub cases: Vec<CaseResult>,
    /// Events of the test set; absent for windows that are not in an archive.
    pub events: Option<EventEvaluation>,
    pub windows_per_second: f64,
    /// The score of each window, and whether it is anomalous.
    #[serde(skip)]
    scores: Vec<(f64, bool)>,
}

impl Evaluation {
    fn kind(&self, name: &str) -> Option<&KindResult> {
        self.kinds.iter().find(|kind| kind.kind == name)
    }

    /// The mean error of anomalous windows, with equal weight for each kind.
    pub fn anomalous_error(&self) -> Option<f64> {
        let errors: Vec<f64> =
            self.kinds.iter().filter(|kind| kind.is_anomalous).map(|kind| kind.error).collect();
        (!errors.is_empty()).then(|| mean(&errors))
    }

    /// The mean AUC over injected faults of intermediate strength.
    pub fn subtle_auc(&self) -> Option<f64> {
        let subtle: Vec<f64> =
            self.cases.iter().filter(|case| case.is_subtle).map(|case| case.roc_auc).collect();
        (!subtle.is_empty()).then(|| mean(&subtle))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindResult {
    pub kind: String,
    pub is_anomalous: bool,
    pub n_windows: usize,
    pub error: f64,
    pub median_score: f64,
    /// Against normal windows; only for anomalous kinds.
    pub detection: Option<Detection>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Detection {
    pub roc_auc: f64,
    pub pr_auc: f64,
    pub vus_pr: Option<f64>,
    /// At the thresholds in force.
    pub f1: f64,
    pub recall: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseResult {
    pub fault: String,
    pub strength: f32,
    pub is_subtle: bool,
    pub n_windows: usize,
    pub roc_auc: f64,
    pub recall: f64,
}

/// A scored window.
struct Scored<'a> {
    /// The kind of its job, or [`UNKNOWN_KIND`].
    kind: &'a str,
    is_anomalous: bool,
    is_alarm: bool,
    thread: (&'a NodeName, Cpu, &'a Owner),
    start: i64,
    finding: Finding,
}

impl TestSet<'_> {
    fn kind_of(&self, owner: &Owner) -> &str {
        self.known.kind(owner).unwrap_or(UNKNOWN_KIND)
    }

    fn is_anomalous(&self, owner: &Owner) -> bool {
        self.known.is_anomalous(owner)
    }

    /// The normal windows of some of the batches, evenly spread.
    pub fn normal_batches(&self) -> Vec<WindowBatch> {
        let every = self.sample.n_windows().div_ceil(MAX_INJECTED).max(1);
        let mut normal = Vec::new();
        for batch in self.sample.batches.iter().step_by(every) {
            let batch = batch.filtered(|thread| !self.is_anomalous(&thread.owner));
            if !batch.threads().is_empty() {
                normal.push(batch);
            }
        }
        normal
    }

    /// Whether a window alone exceeds a threshold.
    fn exceeds(&self, detector: &TrainedDetector, owner: &Owner, finding: &Finding) -> bool {
        let kind = owner.job().and_then(|job| self.known.kind_of_job(job));
        detector.strength(finding, kind).is_some_and(|strength| strength > 1.0)
    }

    /// The findings of all windows, thread by thread in order of time, as metrics of time series need them.
    fn score<'a>(&'a self, detector: &TrainedDetector) -> Vec<Scored<'a>> {
        let findings: Vec<Vec<Finding>> =
            self.sample.batches.par_iter().map(|batch| detector.examine(batch)).collect();
        let mut scored = Vec::new();
        for (batch, findings) in self.sample.batches.iter().zip(findings) {
            for (thread, finding) in batch.threads().iter().zip(findings) {
                scored.push(Scored {
                    kind: self.kind_of(&thread.owner),
                    is_anomalous: self.is_anomalous(&thread.owner),
                    is_alarm: self.exceeds(detector, &thread.owner, &finding),
                    thread: (&thread.node, thread.cpu, &thread.owner),
                    start: batch.start().0,
                    finding,
                });
            }
        }
        scored.sort_by_key(|one| (one.thread, one.start));
        scored
    }
}

/// Evaluates a detector on a test set.
pub fn evaluate(detector: &TrainedDetector, test: &TestSet<'_>) -> Evaluation {
    let started = Instant::now();
    let scored = test.score(detector);
    let windows_per_second = scored.len() as f64 / started.elapsed().as_secs_f64();
    let error = |of: &[&Scored<'_>]| mean(&of.iter().map(|one| one.finding.error()).collect::<Vec<f64>>());
    let mut by_kind: BTreeMap<&str, Vec<&Scored<'_>>> = BTreeMap::new();
    for one in &scored {
        by_kind.entry(one.kind).or_default().push(one);
    }
    let mut kinds = Vec::new();
    for (kind, of_kind) in by_kind {
        let is_anomalous = test.known.is_anomalous_kind(kind);
        let mut scores: Vec<f64> = of_kind.iter().map(|one| one.finding.score).collect();
        scores.sort_by(f64::total_cmp);
        kinds.push(KindResult {
            kind: kind.to_owned(),
            is_anomalous,
            n_windows: of_kind.len(),
            error: error(&of_kind),
            median_score: scores[scores.len() / 2],
            detection: if is_anomalous { detection(&scored, Some(kind)) } else { None },
        });
    }
    let normal: Vec<&Scored<'_>> = scored.iter().filter(|one| !one.is_anomalous).collect();
    let affected: HashSet<(&NodeName, i64)> =
        scored.iter().filter(|one| one.is_anomalous).map(|one| (one.thread.0, one.start)).collect();
    let (beside, apart): (Vec<&Scored<'_>>, Vec<&Scored<'_>>) =
        normal.iter().partition(|one| affected.contains(&(one.thread.0, one.start)));
    let alarm_rate = |of: &[&Scored<'_>]| fraction(of, |one| one.is_alarm);
    Evaluation {
        normal_error: error(&normal),
        silhouette: separation(&scored),
        false_alarm_rate: alarm_rate(&apart),
        beside_anomalies: (!beside.is_empty()).then(|| alarm_rate(&beside)),
        all: detection(&scored, None),
        diagnosis: diagnosis(&scored),
        kinds,
        cases: evaluate_cases(detector, test),
        events: None,
        windows_per_second,
        scores: scored.iter().map(|one| (one.finding.score, one.is_anomalous)).collect(),
    }
}

fn fraction(of: &[&Scored<'_>], is_counted: impl Fn(&Scored<'_>) -> bool) -> f64 {
    of.iter().filter(|one| is_counted(one)).count() as f64 / of.len().max(1) as f64
}

fn diagnosis(scored: &[Scored<'_>]) -> Option<Reliability> {
    let labelled = scored.iter().filter(|one| one.kind != UNKNOWN_KIND);
    let points: Vec<LabelledPoint> = labelled
        .filter_map(|one| Some(LabelledPoint::new(one.kind, one.thread.2.job()?, &one.finding, None)))
        .collect();
    KindClassifier::fit(&points)?.reliability
}

/// The detection of one anomalous kind among normal windows, or of all anomalous kinds.
fn detection(scored: &[Scored<'_>], kind: Option<&str>) -> Option<Detection> {
    let is_wanted = |one: &&Scored<'_>| !one.is_anomalous || kind.is_none_or(|kind| kind == one.kind);
    let chosen: Vec<&Scored<'_>> = scored.iter().filter(is_wanted).collect();
    let scores: Vec<f64> = chosen.iter().map(|one| one.finding.score).collect();
    let truth: Vec<bool> = chosen.iter().map(|one| one.is_anomalous).collect();
    let count =
        |is_counted: &dyn Fn(&Scored<'_>) -> bool| chosen.iter().filter(|one| is_counted(one)).count() as f64;
    let n_found = count(&|one| one.is_anomalous && one.is_alarm);
    let (n_anomalous, n_alarms) = (count(&|one| one.is_anomalous), count(&|one| one.is_alarm));
    Some(Detection {
        roc_auc: roc_auc(&scores, &truth)?,
        pr_auc: pr_auc(&scores, &truth)?,
        vus_pr: vus_pr(&scores, &truth, VUS_BUFFER),
        f1: 2.0 * n_found / (n_anomalous + n_alarms).max(1.0),
        recall: n_found / n_anomalous.max(1.0),
    })
}

/// Windows with injected faults against the same windows without.
fn evaluate_cases(detector: &TrainedDetector, test: &TestSet<'_>) -> Vec<CaseResult> {
    if test.cases.is_empty() {
        return Vec::new();
    }
    let findings_of = |batch: &WindowBatch| detector.examine(batch);
    let normal = test.normal_batches();
    let before: Vec<Vec<Finding>> = normal.par_iter().map(findings_of).collect();
    let mut results = Vec::new();
    for case in &test.cases {
        let after: Vec<Vec<Finding>> = case
            .batches
            .par_iter()
            .zip(&case.is_in)
            .map(|(batch, is_in)| if is_in.contains(&true) { findings_of(batch) } else { Vec::new() })
            .collect();
        let (mut scores, mut truth, mut n_found) = (Vec::new(), Vec::new(), 0);
        for (index, (before, after)) in before.iter().zip(after).enumerate() {
            for (window, after) in after.into_iter().enumerate().filter(|(w, _)| case.is_in[index][*w]) {
                scores.extend([before[window].score, after.score]);
                truth.extend([false, true]);
                let owner = &normal[index].threads()[window].owner;
                n_found += usize::from(test.exceeds(detector, owner, &after));
            }
        }
        let n_windows = truth.len() / 2;
        if let Some(roc_auc) = roc_auc(&scores, &truth) {
            results.push(CaseResult {
                fault: case.fault.clone(),
                strength: case.strength,
                is_subtle: case.is_subtle,
                n_windows,
                roc_auc,
                recall: n_found as f64 / n_windows as f64,
            });
        }
    }
    results
}

/// The silhouette of embeddings of normal kinds and [`PAPER_ANOMALY`], from a random subset of the windows.
fn separation(scored: &[Scored<'_>]) -> Option<f64> {
    let scored: Vec<&Scored<'_>> =
        scored.iter().filter(|one| !one.is_anomalous || one.kind == PAPER_ANOMALY).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
    let chosen = rand::seq::index::sample(&mut rng, scored.len(), scored.len().min(MAX_POINTS));
    let chosen: Vec<&Scored<'_>> = chosen.iter().map(|index| scored[index]).collect();
    let mut names: Vec<&str> = chosen.iter().map(|one| family(one.kind)).collect();
    names.sort_unstable();
    names.dedup();
    let groups: Vec<usize> =
        chosen.iter().filter_map(|one| names.binary_search(&family(one.kind)).ok()).collect();
    let size = chosen.first()?.finding.embedding.len();
    let points = chosen.iter().flat_map(|one| one.finding.embedding.iter().copied()).collect();
    silhouette(&Matrix::new(points, size), &groups).ok()
}

/// Trivial baselines: the error of the mean training window on normal windows, and the AUC of random scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Baselines {
    pub mean_window_error: f64,
    pub random_auc: f64,
}

impl Baselines {
    /// `None` without training windows or without normal test windows.
    pub fn new(train: &Sample, test: &TestSet<'_>, seed: u64) -> Option<Self> {
        let means = train.matrix()?.column_means();
        let expected: Vec<f32> = means.into_iter().map(|mean| mean as f32).collect();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut errors, mut scores, mut truth) = (Vec::new(), Vec::new(), Vec::new());
        for batch in &test.sample.batches {
            for thread in batch.threads() {
                let is_anomalous = test.is_anomalous(&thread.owner);
                if !is_anomalous {
                    errors.push(mean(&channel_errors(&thread.values, &expected, batch.n_channels())));
                }
                scores.push(rng.random::<f64>());
                truth.push(is_anomalous);
            }
        }
        if errors.is_empty() {
            return None;
        }
        let random_auc = roc_auc(&scores, &truth).unwrap_or(0.5);
        Some(Self { mean_window_error: mean(&errors), random_auc })
    }
}
