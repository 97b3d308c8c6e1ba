//! How good detectors are, on windows that none of them has seen: errors by kind of job, detection, separation, false
//! alarms; beside random scores and the mean window.

mod figures;
pub mod report;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use learn::Matrix;
use learn::metrics::{at_threshold, pr_auc, roc_auc, vus_pr};
use learn::moments::mean;
use learn::silhouette::silhouette;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::Serialize;
use workload::label::family;
use workload::{Cpu, JobId, NodeName};

use super::diagnosis::{Atlas, Placed, Reliability};
use super::{Finding, Moment, Sample, Trained, channel_errors};

/// Points that a silhouette is computed of at most.
const MOST_POINTS: usize = 3_000;
/// Rates of false alarms that thresholds are checked at.
const RATES_ASKED: [f64; 3] = [0.05, 0.01, 0.001];
/// Normal windows that trouble is put into.
const MOST_TROUBLED: usize = 4_000;
/// Windows around an anomaly that may count for it in VUS-PR.
const TOLERANCE: usize = 4;

/// The trouble whose region the paper (Jefferson Lab, 2024) draws in the embedding space.
const DIAGNOSED_KIND: &str = "bad-io";

/// Windows to judge by, with what is known of them.
#[derive(Debug)]
pub struct Test<'a> {
    pub sample: &'a Sample,
    pub kinds: &'a BTreeMap<JobId, String>,
    /// The kinds that labels call anomalous.
    pub anomalous_kinds: BTreeSet<String>,
    /// Normal moments with trouble in them.
    pub cases: &'a [Case],
}

/// Normal moments of the same test with one kind of trouble in them.
#[derive(Debug)]
pub struct Case {
    pub trouble: String,
    pub strength: f32,
    /// Whether it is one of those that detectors are compared by: neither blatant nor hardly there.
    pub is_subtle: bool,
    pub moments: Vec<Moment>,
    /// Which windows of each moment it is in.
    pub is_in: Vec<Vec<bool>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// The mean squared error over all channels and steps of normal windows.
    pub normal_error: f64,
    pub kinds: Vec<KindResult>,
    /// How well embeddings of the kinds separate.
    pub silhouette: Option<f64>,
    /// The share of normal windows at or above the threshold, on nodes where all is well.
    pub false_alarm_rate: f64,
    /// The same for thresholds at other rates.
    pub false_alarms: Vec<FalseAlarms>,
    /// The same for normal windows on nodes where an anomalous job runs, which may well suffer from it.
    pub beside_anomalies: Option<f64>,
    /// All anomalous kinds together.
    pub all: Option<Detection>,
    /// Whether kinds are told apart, by other jobs of the test.
    pub diagnosis: Option<Reliability>,
    pub cases: Vec<CaseResult>,
    pub windows_a_second: f64,
    /// The score of each window, and whether it is anomalous.
    #[serde(skip)]
    scores: Vec<(f64, bool)>,
}

impl Evaluation {
    fn kind(&self, name: &str) -> Option<&KindResult> {
        self.kinds.iter().find(|kind| kind.kind == name)
    }

    /// The mean error of anomalous windows, each kind counting as much.
    pub fn anomalous_error(&self) -> Option<f64> {
        let errors: Vec<f64> =
            self.kinds.iter().filter(|kind| kind.is_anomalous).map(|kind| kind.error).collect();
        (!errors.is_empty()).then(|| mean(&errors))
    }

    /// The mean AUC over trouble of the middle strengths.
    pub fn subtle_auc(&self) -> Option<f64> {
        let middle: Vec<f64> =
            self.cases.iter().filter(|case| case.is_subtle).map(|case| case.roc_auc).collect();
        (!middle.is_empty()).then(|| mean(&middle))
    }
}

/// How often normal windows should be taken for anomalies, and how often they were.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FalseAlarms {
    pub stated: f64,
    pub found: f64,
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
    /// At the threshold that validation set.
    pub f1: f64,
    pub recall: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseResult {
    pub trouble: String,
    pub strength: f32,
    pub is_subtle: bool,
    pub n_windows: usize,
    pub roc_auc: f64,
    pub recall: f64,
}

/// A window that was scored.
struct Scored<'a> {
    kind: &'a str,
    thread: (&'a NodeName, Cpu, &'a JobId),
    start: i64,
    finding: Finding,
}

/// The kind of jobs that nobody has labelled.
pub const UNKNOWN_KIND: &str = "unlabelled";

impl Test<'_> {
    fn kind_of(&self, job: &JobId) -> &str {
        self.kinds.get(job).map_or(UNKNOWN_KIND, String::as_str)
    }

    fn is_anomalous(&self, kind: &str) -> bool {
        self.anomalous_kinds.contains(kind)
    }

    /// Whether a kind is one of those whose embeddings should separate: every normal kind, and Bad IO.
    fn is_separate(&self, kind: &str) -> bool {
        !self.is_anomalous(kind) || kind == DIAGNOSED_KIND
    }

    fn has_anomalies(&self) -> bool {
        self.kinds.values().any(|kind| self.is_anomalous(kind))
    }

    /// The normal windows of some of the test's moments, evenly spread.
    pub fn normal_moments(&self) -> Vec<Moment> {
        let every = self.sample.n_windows().div_ceil(MOST_TROUBLED).max(1);
        let normal = |moment: &Moment| {
            let mut moment = moment.clone();
            moment.threads.retain(|thread| !self.is_anomalous(self.kind_of(&thread.job)));
            moment
        };
        self.sample
            .moments
            .iter()
            .step_by(every)
            .map(normal)
            .filter(|moment| !moment.threads.is_empty())
            .collect()
    }
}

/// What a detector makes of a test.
pub fn evaluate(trained: &Trained, test: &Test<'_>) -> Evaluation {
    let begun = Instant::now();
    let findings: Vec<Vec<Finding>> =
        test.sample.moments.par_iter().map(|moment| trained.examine(moment)).collect();
    let mut scored: Vec<Scored<'_>> = Vec::new();
    for (moment, findings) in test.sample.moments.iter().zip(findings) {
        for (thread, finding) in moment.threads.iter().zip(findings) {
            scored.push(Scored {
                kind: test.kind_of(&thread.job),
                thread: (&thread.node, thread.cpu, &thread.job),
                start: moment.start.0,
                finding,
            });
        }
    }
    let windows_a_second = scored.len() as f64 / begun.elapsed().as_secs_f64();
    // In order of time, thread by thread: what metrics of stretches need.
    scored.sort_by_key(|one| (one.thread, one.start));
    let threshold = trained.thresholds.for_all.score;
    let is_anomalous = |one: &&Scored<'_>| test.is_anomalous(one.kind);
    let normal: Vec<&Scored<'_>> = scored.iter().filter(|one| !is_anomalous(one)).collect();
    let error = |of: &[&Scored<'_>]| mean(&of.iter().map(|one| one.finding.error()).collect::<Vec<f64>>());
    let mut kinds: BTreeMap<&str, Vec<&Scored<'_>>> = BTreeMap::new();
    scored.iter().for_each(|one| kinds.entry(one.kind).or_default().push(one));
    let results = kinds.iter().map(|(kind, of_kind)| {
        let is_anomalous = test.is_anomalous(kind);
        let mut scores: Vec<f64> = of_kind.iter().map(|one| one.finding.score).collect();
        scores.sort_by(f64::total_cmp);
        KindResult {
            kind: (*kind).to_owned(),
            is_anomalous,
            n_windows: of_kind.len(),
            error: error(of_kind),
            median_score: scores[scores.len() / 2],
            detection: is_anomalous.then(|| detection(&scored, test, Some(kind), threshold)).flatten(),
        }
    });
    let results: Vec<KindResult> = results.collect();
    let troubled: HashSet<(&NodeName, i64)> =
        scored.iter().filter(is_anomalous).map(|one| (one.thread.0, one.start)).collect();
    let (beside, apart): (Vec<&Scored<'_>>, Vec<&Scored<'_>>) =
        normal.iter().partition(|one| troubled.contains(&(one.thread.0, one.start)));
    let reach = |of: &[&Scored<'_>], threshold: f64| {
        let n_above = of.iter().filter(|one| one.finding.score >= threshold).count();
        n_above as f64 / of.len().max(1) as f64
    };
    let at_rate = |stated: &f64| {
        let threshold = trained.thresholds.for_all.tail.threshold(*stated).ok()?;
        Some(FalseAlarms { stated: *stated, found: reach(&apart, threshold) })
    };
    let cases = judge_all(trained, test, threshold);
    let scores = scored.iter().map(|one| (one.finding.score, test.is_anomalous(one.kind))).collect();
    Evaluation {
        normal_error: error(&normal),
        silhouette: separation(&scored, test),
        false_alarm_rate: reach(&apart, threshold),
        false_alarms: RATES_ASKED.iter().filter_map(at_rate).collect(),
        beside_anomalies: (!beside.is_empty()).then(|| reach(&beside, threshold)),
        all: detection(&scored, test, None, threshold),
        diagnosis: diagnosis(&scored),
        kinds: results,
        cases,
        windows_a_second,
        scores,
    }
}

fn diagnosis(scored: &[Scored<'_>]) -> Option<Reliability> {
    let labelled = scored.iter().filter(|one| one.kind != UNKNOWN_KIND);
    let placed: Vec<Placed> = labelled.map(|one| Placed::new(one.kind, one.thread.2, &one.finding)).collect();
    Atlas::fit(&placed)?.reliability
}

/// Normal windows and those of one anomalous kind, or of all.
fn detection(
    scored: &[Scored<'_>],
    test: &Test<'_>,
    kind: Option<&str>,
    threshold: f64,
) -> Option<Detection> {
    let is_wanted =
        |one: &&Scored<'_>| !test.is_anomalous(one.kind) || kind.is_none_or(|kind| kind == one.kind);
    let chosen: Vec<&Scored<'_>> = scored.iter().filter(is_wanted).collect();
    let scores: Vec<f64> = chosen.iter().map(|one| one.finding.score).collect();
    let truth: Vec<bool> = chosen.iter().map(|one| test.is_anomalous(one.kind)).collect();
    let at = at_threshold(&scores, &truth, threshold);
    Some(Detection {
        roc_auc: roc_auc(&scores, &truth)?,
        pr_auc: pr_auc(&scores, &truth)?,
        vus_pr: vus_pr(&scores, &truth, TOLERANCE),
        f1: at.f1,
        recall: at.recall,
    })
}

/// Windows with trouble in them against the same windows without.
fn judge_all(trained: &Trained, test: &Test<'_>, threshold: f64) -> Vec<CaseResult> {
    if test.cases.is_empty() {
        return Vec::new();
    }
    let scores_of = |moment: &Moment| -> Vec<f64> {
        trained.examine(moment).into_iter().map(|finding| finding.score).collect()
    };
    let before: Vec<Vec<f64>> = test.normal_moments().par_iter().map(scores_of).collect();
    let judge = |case: &Case| {
        let (mut scores, mut truth) = (Vec::new(), Vec::new());
        let after: Vec<Vec<f64>> = case
            .moments
            .par_iter()
            .zip(&case.is_in)
            .map(|(moment, is_in)| if is_in.contains(&true) { scores_of(moment) } else { Vec::new() })
            .collect();
        for ((before, after), is_in) in before.iter().zip(after).zip(&case.is_in) {
            for ((before, after), _) in before.iter().zip(after).zip(is_in).filter(|(_, is_in)| **is_in) {
                scores.extend([*before, after]);
                truth.extend([false, true]);
            }
        }
        Some(CaseResult {
            trouble: case.trouble.clone(),
            strength: case.strength,
            is_subtle: case.is_subtle,
            n_windows: truth.len() / 2,
            roc_auc: roc_auc(&scores, &truth)?,
            recall: at_threshold(&scores, &truth, threshold).recall,
        })
    };
    test.cases.iter().filter_map(judge).collect()
}

/// The silhouette of embeddings by kind, of a random part of the windows.
fn separation(scored: &[Scored<'_>], test: &Test<'_>) -> Option<f64> {
    let scored: Vec<&Scored<'_>> = scored.iter().filter(|one| test.is_separate(one.kind)).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
    let chosen = rand::seq::index::sample(&mut rng, scored.len(), scored.len().min(MOST_POINTS));
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

/// What it takes to beat nothing: the error of the mean training window on normal windows, and the AUC of random
/// scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Floor {
    pub mean_window_error: f64,
    pub random_auc: f64,
}

pub fn floor(train: &Sample, test: &Test<'_>, seed: u64) -> Option<Floor> {
    let means = train.matrix()?.column_means();
    let expected: Vec<f32> = means.into_iter().map(|mean| mean as f32).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut errors, mut scores, mut truth) = (Vec::new(), Vec::new(), Vec::new());
    for moment in &test.sample.moments {
        for thread in &moment.threads {
            let is_anomalous = test.is_anomalous(test.kind_of(&thread.job));
            if !is_anomalous {
                errors.push(mean(&channel_errors(&thread.values, &expected, moment.n_channels)));
            }
            scores.push(rng.random::<f64>());
            truth.push(is_anomalous);
        }
    }
    Some(Floor { mean_window_error: mean(&errors), random_auc: roc_auc(&scores, &truth).unwrap_or(0.5) })
}
