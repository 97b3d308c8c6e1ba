//! How good classifiers are, under three protocols that ask different questions: the authors' split (as published), random
//! folds (runs of weeks that were learnt from), and whole batches left out (runs of weeks that were not).

pub mod choose;
pub mod figures;
pub mod per_job;
pub mod report;

use std::path::Path;
use std::time::Instant;

use crate::workflow::WorkflowRun;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;

pub use self::figures::{Figures, Judged};
use crate::classify::picture::Frozen;
use crate::classify::slowdown::SlowdownSettings;
use crate::classify::usual::UNUSUAL;
use crate::classify::{FitSettings, Fitted, Lesson, Model, Step, most_likely};
use crate::dataset::{Dataset, NORMAL, Split, number_of};
use crate::error::{Error, Result};
use crate::unfinished::{SHARES, after};

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
}

/// Folds of the random protocol.
const N_FOLDS: usize = 5;

/// Runs to learn from, to choose by and to judge by.
#[derive(Debug, Clone, Default)]
pub struct Fold {
    pub train: Vec<usize>,
    pub validation: Vec<usize>,
    pub test: Vec<usize>,
}

/// The folds of a protocol, and the split that they are of, if they are of one.
pub fn folds(
    data: &Dataset,
    protocol: Protocol,
    split: Option<&Path>,
    seed: u64,
) -> Result<(Vec<Fold>, Split)> {
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let without =
        |test: &[usize]| -> Vec<usize> { all.iter().copied().filter(|at| !test.contains(at)).collect() };
    match protocol {
        Protocol::Authors => {
            let path = split
                .ok_or_else(|| Error::Ask("the authors' split is a file: give it with --split".into()))?;
            let mut split = Split::read(path, data)?;
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
    if batches.len() < 2 {
        return Err(Error::Ask(
            "there are no batches to leave out: files are called <workflow>-<batch>-runNNNN.csv where there are".into(),
        ));
    }
    Ok(batches)
}

/// Evaluates a model under a protocol. With `is_nested`, what can be chosen is chosen by leaving batches out of the training
/// runs of every fold.
pub fn evaluate(
    model: Model,
    data: &Dataset,
    protocol: Protocol,
    split: Option<&Path>,
    settings: &FitSettings,
    is_nested: bool,
    tell: impl Fn(usize, usize) + Sync,
) -> Result<Figures> {
    let begun = Instant::now();
    let (folds, split) = folds(data, protocol, split, settings.seed)?;
    let classes = if model == Model::Usual { vec![NORMAL.into(), UNUSUAL.into()] } else { data.classes() };
    let frozen = match model.network() {
        Some(network) => Frozen::new(network, data, settings)?,
        None => None,
    };
    let is_chosen = is_nested && model == Model::Slowdown;
    let chosen = match is_chosen {
        true => choose::for_folds(data, &folds, settings, &tell)?,
        false => vec![settings.slowdown; folds.len()],
    };
    let n_done = std::sync::atomic::AtomicUsize::new(0);
    let judge = |(fold, slowdown): (&Fold, &SlowdownSettings)| -> Result<FoldFigures> {
        let settings = FitSettings { slowdown: *slowdown, ..settings.clone() };
        let found = match &frozen {
            Some(frozen) => judge_frozen(frozen, data, fold, &classes, &settings),
            None => judge_fold(model, data, fold, &classes, &settings),
        };
        let done = n_done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        tell(done, folds.len());
        found
    };
    // Trees are fitted on one thread each; networks use all of them by themselves.
    let found: Vec<Result<FoldFigures>> = if model.network().is_some() {
        folds.iter().zip(&chosen).map(judge).collect()
    } else {
        folds.par_iter().zip(&chosen).map(judge).collect()
    };
    // A fold may lack what a model cannot do without, such as healthy runs; the others go on.
    let (mut judged_folds, mut failed) = (Vec::new(), Vec::new());
    for fold in found {
        match fold {
            Ok(figures) => judged_folds.push(figures),
            Err(error) => failed.push(error),
        }
    }
    let (found, left_out) = (judged_folds, failed.iter().map(ToString::to_string).collect());
    if found.is_empty()
        && let Some(first) = failed.into_iter().next()
    {
        return Err(first);
    }
    let judged: Vec<Judged> = found.iter().flat_map(|fold| fold.judged.iter().cloned()).collect();
    let n_judged = judged.len().max(1) as f64;
    let mut figures = Figures::new(model, protocol.name(), classes, judged);
    figures.while_running = SHARES
        .iter()
        .enumerate()
        .filter(|_| found.iter().all(|fold| !fold.n_right_early.is_empty()))
        .map(|(at, (name, _))| {
            (*name, found.iter().map(|fold| fold.n_right_early[at]).sum::<usize>() as f64 / n_judged)
        })
        .collect();
    figures.commonest_accuracy = found.iter().map(|fold| fold.n_commonest).sum::<usize>() as f64 / n_judged;
    figures.n_folds = found.len();
    figures.left_out = left_out;
    figures.conflicting = split.conflicting;
    figures.missing = split.missing;
    figures.seed = settings.seed;
    figures.chosen = if is_chosen { chosen } else { Vec::new() };
    figures.curve = found.into_iter().last().map(|fold| fold.curve).unwrap_or_default();
    figures.seconds = begun.elapsed().as_secs_f64();
    Ok(figures)
}

#[derive(Default)]
struct FoldFigures {
    judged: Vec<Judged>,
    n_right_early: Vec<usize>,
    n_commonest: usize,
    curve: Vec<Step>,
}

/// Where troubles have no names, a run that has one is unusual.
fn class_of(data: &Dataset, classes: &[String], run: usize) -> usize {
    let class = data.runs[run].class();
    let is_named = class == NORMAL || classes.iter().any(|known| known == class);
    number_of(classes, if is_named { class } else { UNUSUAL })
}

/// How many of the test runs have the class that most training runs have.
fn n_commonest(data: &Dataset, fold: &Fold, classes: &[String]) -> usize {
    let mut counts = vec![0usize; classes.len()];
    fold.train.iter().for_each(|run| counts[class_of(data, classes, *run)] += 1);
    let commonest = counts.iter().enumerate().max_by_key(|(_, count)| **count).map_or(0, |(class, _)| class);
    fold.test.iter().filter(|run| class_of(data, classes, **run) == commonest).count()
}

fn judged(data: &Dataset, classes: &[String], run: usize, verdict: usize) -> Judged {
    let one = &data.runs[run];
    Judged {
        label: one.label.clone(),
        batch: one.batch.clone(),
        truth: class_of(data, classes, run),
        verdict,
    }
}

fn judge_fold(
    model: Model,
    data: &Dataset,
    fold: &Fold,
    classes: &[String],
    settings: &FitSettings,
) -> Result<FoldFigures> {
    let mut found = FoldFigures { n_commonest: n_commonest(data, fold, classes), ..FoldFigures::default() };
    let (train, validation) = (data.select(&fold.train), data.select(&fold.validation));
    let fitted = Fitted::fit(model, &train, &validation, settings, |step| found.curve.push(*step))?;
    let verdict = |run: &WorkflowRun| number_of(classes, &fitted.classes[most_likely(&fitted.chances(run))]);
    let tests: Vec<&WorkflowRun> = fold.test.iter().map(|run| &data.runs[*run].recording.run).collect();
    let verdicts: Vec<usize> = tests.par_iter().map(|run| verdict(run)).collect();
    found.judged =
        fold.test.iter().zip(verdicts).map(|(run, verdict)| judged(data, classes, *run, verdict)).collect();
    for (_, share) in SHARES.into_iter().filter(|_| !settings.is_for_finished) {
        let right = |(run, test): (&usize, &&WorkflowRun)| {
            verdict(&after(test, share)) == class_of(data, classes, *run)
        };
        found.n_right_early.push(fold.test.par_iter().zip(&tests).filter(|pair| right(*pair)).count());
    }
    Ok(found)
}

fn judge_frozen(
    frozen: &Frozen,
    data: &Dataset,
    fold: &Fold,
    classes: &[String],
    settings: &FitSettings,
) -> Result<FoldFigures> {
    let (train, validation) = (data.select(&fold.train), data.select(&fold.validation));
    let lesson = Lesson::new(&train, &validation, classes);
    let mut found = FoldFigures { n_commonest: n_commonest(data, fold, classes), ..FoldFigures::default() };
    let chances = frozen.judge(&lesson, &fold.train, &fold.validation, &fold.test, settings, |step| {
        found.curve.push(*step)
    })?;
    let pairs = fold.test.iter().zip(chances);
    found.judged = pairs.map(|(run, chances)| judged(data, classes, *run, most_likely(&chances))).collect();
    Ok(found)
}
