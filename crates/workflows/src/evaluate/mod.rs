//! Evaluation of classifiers under three protocols, which answer different questions: the authors' split (as published),
//! random folds (new runs of known batches), and leave-batch-out (runs of unknown batches).

pub mod choose;
pub mod metrics;
pub mod per_job;
pub mod report;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::Stop;

pub use self::metrics::{Evaluation, JudgedRun};
use crate::classify::baseline::{ANOMALOUS, class_index};
use crate::classify::picture::Frozen;
use crate::classify::slowdown::SlowdownSettings;
use crate::classify::{
    ClassifierKind, EpochProgress, TrainedClassifier, TrainingPlan, TrainingSet, most_likely,
};
use crate::dataset::{Dataset, NORMAL, Split};
use crate::error::{Error, Result};
use crate::unfinished::{FRACTIONS, first_fraction};
use crate::workflow::WorkflowRun;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Authors,
    Random,
    LeaveBatchOut,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::Authors, Self::Random, Self::LeaveBatchOut];

    pub fn name(self) -> &'static str {
        match self {
            Self::Authors => "authors",
            Self::Random => "random",
            Self::LeaveBatchOut => "leave-batch-out",
        }
    }

    /// Whether it can be carried out on these runs.
    pub fn is_possible(self, data: &Dataset, has_split: bool) -> bool {
        match self {
            Self::Authors => has_split,
            Self::Random => true,
            Self::LeaveBatchOut => data.runs.iter().any(|run| run.batch.is_some()),
        }
    }
}

/// An evaluation to carry out.
#[derive(Debug, Clone)]
pub struct EvaluationPlan<'a> {
    pub training: &'a TrainingPlan,
    pub protocol: Protocol,
    /// The authors' split.
    pub split: Option<&'a Split>,
    /// Tunes the hyper-parameters of `slowdown` by leave-one-batch-out cross-validation within the training runs of
    /// each fold.
    pub is_nested: bool,
}

/// Folds of the random protocol.
const N_FOLDS: usize = 5;

/// The runs of one fold, by their indices in the dataset.
#[derive(Debug, Clone, Default)]
pub struct Fold {
    pub train: Vec<usize>,
    pub validation: Vec<usize>,
    pub test: Vec<usize>,
}

/// The folds of a protocol, and the split they come from, if any.
pub fn folds(
    data: &Dataset,
    protocol: Protocol,
    split: Option<&Split>,
    seed: u64,
) -> Result<(Vec<Fold>, Split)> {
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let without = |test: &[usize]| -> Vec<usize> {
        let test: HashSet<usize> = test.iter().copied().collect();
        all.iter().copied().filter(|at| !test.contains(at)).collect()
    };
    match protocol {
        Protocol::Authors => {
            let mut split = split.ok_or(Error::NoSplit)?.clone();
            let [train, validation, test] =
                [&mut split.train, &mut split.validation, &mut split.test].map(std::mem::take);
            Ok((vec![Fold { train, validation, test }], split))
        }
        Protocol::Random => {
            let mut order = all.clone();
            order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
            order.sort_by_key(|at| &data.runs[*at].label);
            let folds = (0..N_FOLDS).map(|fold| {
                let test: Vec<usize> = order.iter().copied().skip(fold).step_by(N_FOLDS).collect();
                Fold { train: without(&test), validation: Vec::new(), test }
            });
            Ok((folds.collect(), Split::default()))
        }
        Protocol::LeaveBatchOut => {
            let batches = batches(data, &all)?;
            let fold = |batch: &String| {
                let test: Vec<usize> =
                    all.iter().copied().filter(|at| data.runs[*at].batch.as_ref() == Some(batch)).collect();
                Fold { train: without(&test), validation: Vec::new(), test }
            };
            Ok((batches.iter().map(fold).collect(), Split::default()))
        }
    }
}

fn batches(data: &Dataset, runs: &[usize]) -> Result<Vec<String>> {
    let mut batches: Vec<String> = runs.iter().filter_map(|at| data.runs[*at].batch.clone()).collect();
    batches.sort();
    batches.dedup();
    if batches.len() < 2 { Err(Error::NoBatches) } else { Ok(batches) }
}

/// Evaluates a classifier. `progress` receives the number of finished folds and their total.
pub fn evaluate(
    plan: &EvaluationPlan<'_>,
    data: &Dataset,
    stop: &Stop,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Evaluation> {
    let started = Instant::now();
    let (kind, settings) = (plan.training.kind(), plan.training.settings());
    let (folds, split) = folds(data, plan.protocol, plan.split, settings.seed)?;
    let classes = match kind {
        ClassifierKind::Baseline => vec![NORMAL.into(), ANOMALOUS.into()],
        _ => data.classes(),
    };
    let frozen = match kind.network() {
        Some(network) => Frozen::new(network, data, settings, stop)?,
        None => None,
    };
    let is_tuned = plan.is_nested && kind == ClassifierKind::Slowdown;
    let chosen = if is_tuned {
        choose::for_folds(data, &folds, settings.seed, stop, &progress)?
    } else {
        vec![settings.slowdown; folds.len()]
    };
    let n_done = AtomicUsize::new(0);
    let judge = |(fold, slowdown): (&Fold, &SlowdownSettings)| -> Result<FoldResult> {
        stop.check()?;
        let training = plan.training.with_slowdown(*slowdown);
        let found = match &frozen {
            Some(frozen) => judge_frozen(frozen, data, fold, &classes, &training, stop),
            None => judge_fold(data, fold, &classes, &training, stop),
        };
        progress(n_done.fetch_add(1, Ordering::Relaxed) + 1, folds.len());
        found
    };
    // Trees are fitted on one thread each; networks use all threads by themselves.
    let results: Vec<Result<FoldResult>> = if kind.network().is_some() {
        folds.iter().zip(&chosen).map(judge).collect()
    } else {
        folds.par_iter().zip(&chosen).map(judge).collect()
    };
    stop.check()?;
    // A fold may lack what a classifier needs, such as healthy runs; the others are still evaluated.
    let (mut judged_folds, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(fold) => judged_folds.push(fold),
            Err(error) => errors.push(error),
        }
    }
    let skipped_folds = errors.iter().map(ToString::to_string).collect();
    if judged_folds.is_empty()
        && let Some(first) = errors.into_iter().next()
    {
        return Err(first);
    }
    let mut evaluation = summary(kind, plan.protocol, classes, &judged_folds);
    evaluation.skipped_folds = skipped_folds;
    evaluation.conflicting = split.conflicting;
    evaluation.missing = split.missing;
    evaluation.seed = settings.seed;
    evaluation.chosen = if is_tuned { chosen } else { Vec::new() };
    evaluation.curve = judged_folds.into_iter().last().map(|fold| fold.curve).unwrap_or_default();
    evaluation.seconds = started.elapsed().as_secs_f64();
    Ok(evaluation)
}

fn summary(
    kind: ClassifierKind,
    protocol: Protocol,
    classes: Vec<String>,
    folds: &[FoldResult],
) -> Evaluation {
    let judged: Vec<JudgedRun> = folds.iter().flat_map(|fold| fold.judged.iter().cloned()).collect();
    let n_judged = judged.len().max(1) as f64;
    let mut evaluation = Evaluation::new(kind, protocol.name(), classes, judged);
    evaluation.while_running = FRACTIONS
        .iter()
        .enumerate()
        .filter(|_| folds.iter().all(|fold| !fold.n_right_early.is_empty()))
        .map(|(at, (name, _))| {
            (*name, folds.iter().map(|fold| fold.n_right_early[at]).sum::<usize>() as f64 / n_judged)
        })
        .collect();
    evaluation.majority_class_accuracy =
        folds.iter().map(|fold| fold.n_majority).sum::<usize>() as f64 / n_judged;
    evaluation.n_folds = folds.len();
    evaluation
}

#[derive(Default)]
struct FoldResult {
    judged: Vec<JudgedRun>,
    n_right_early: Vec<usize>,
    n_majority: usize,
    curve: Vec<EpochProgress>,
}

/// The index of a run's class among `classes`.
fn class_of(data: &Dataset, classes: &[String], run: usize) -> Option<usize> {
    class_index(classes, data.runs[run].class())
}

/// How many test runs are of the class that most training runs have.
fn n_majority(data: &Dataset, fold: &Fold, classes: &[String]) -> usize {
    let mut counts = vec![0usize; classes.len()];
    for class in fold.train.iter().filter_map(|run| class_of(data, classes, *run)) {
        counts[class] += 1;
    }
    let majority = counts.iter().enumerate().max_by_key(|(_, count)| **count).map(|(class, _)| class);
    fold.test.iter().filter(|run| class_of(data, classes, **run) == majority).count()
}

/// `None` if the class of the run or of the verdict is not among `classes`.
fn judged(
    data: &Dataset,
    classes: &[String],
    run: usize,
    verdict: Option<usize>,
    (confidence, is_certain): (f64, bool),
) -> Option<JudgedRun> {
    let one = &data.runs[run];
    let truth = class_of(data, classes, run)?;
    let (label, batch) = (one.label.clone(), one.batch.clone());
    Some(JudgedRun { label, batch, truth, verdict: verdict?, confidence, is_certain })
}

fn judge_fold(
    data: &Dataset,
    fold: &Fold,
    classes: &[String],
    plan: &TrainingPlan,
    stop: &Stop,
) -> Result<FoldResult> {
    let mut found = FoldResult { n_majority: n_majority(data, fold, classes), ..FoldResult::default() };
    let (train, validation) = (data.select(&fold.train), data.select(&fold.validation));
    let classifier =
        TrainedClassifier::train(plan, &train, &validation, stop, |epoch| found.curve.push(*epoch))?;
    // The training runs of a fold may lack a class, so its classes are not those of the dataset.
    let verdict = |run: &WorkflowRun| {
        let class = &classifier.classes[most_likely(&classifier.probabilities(run))];
        class_index(classes, class)
    };
    let tests: Vec<&WorkflowRun> = fold.test.iter().map(|run| &data.runs[*run].recording.run).collect();
    let verdicts: Vec<(Option<usize>, (f64, bool))> =
        tests.par_iter().map(|run| (verdict(run), classifier.confidence(run))).collect();
    let pairs = fold.test.iter().zip(verdicts);
    found.judged = pairs
        .filter_map(|(run, (verdict, confidence))| judged(data, classes, *run, verdict, confidence))
        .collect();
    for (_, fraction) in FRACTIONS.into_iter().filter(|_| !plan.settings().is_for_finished) {
        stop.check()?;
        let is_right = |(run, test): (&usize, &&WorkflowRun)| {
            verdict(&first_fraction(test, fraction)) == class_of(data, classes, *run)
        };
        found.n_right_early.push(fold.test.par_iter().zip(&tests).filter(|pair| is_right(*pair)).count());
    }
    Ok(found)
}

fn judge_frozen(
    frozen: &Frozen,
    data: &Dataset,
    fold: &Fold,
    classes: &[String],
    plan: &TrainingPlan,
    stop: &Stop,
) -> Result<FoldResult> {
    let (train, validation) = (data.select(&fold.train), data.select(&fold.validation));
    let training = TrainingSet::new(&train, &validation, classes);
    let mut found = FoldResult { n_majority: n_majority(data, fold, classes), ..FoldResult::default() };
    let probabilities =
        frozen.judge(&training, fold, plan.settings(), stop, |epoch| found.curve.push(*epoch))?;
    let pairs = fold.test.iter().zip(probabilities);
    let judge = |(run, probabilities): (&usize, Vec<f64>)| {
        let verdict = most_likely(&probabilities);
        judged(data, classes, *run, Some(verdict), (probabilities[verdict], true))
    };
    found.judged = pairs.filter_map(judge).collect();
    Ok(found)
}
