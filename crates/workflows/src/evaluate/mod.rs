//! How good classifiers are, under three protocols that ask different questions: the authors' split (as published), random
//! folds (runs of weeks that were learnt from), and whole batches left out (runs of weeks that were not).

pub mod figures;
pub mod per_job;
pub mod report;

use std::path::Path;
use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::workflow::WorkflowRun;

pub use self::figures::{Figures, Judged};
use crate::classify::picture::Frozen;
use crate::classify::slowdown::{Memory, SlowdownSettings, Weekless};
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

/// The folds of a protocol, and the runs that it names wrongly.
pub fn folds(
    data: &Dataset,
    protocol: Protocol,
    split: Option<&Path>,
    seed: u64,
) -> Result<(Vec<Fold>, Vec<String>)> {
    let all: Vec<usize> = (0..data.runs.len()).collect();
    let without =
        |test: &[usize]| -> Vec<usize> { all.iter().copied().filter(|at| !test.contains(at)).collect() };
    match protocol {
        Protocol::Authors => {
            let path = split
                .ok_or_else(|| Error::Ask("the authors' split is a file: give it with --split".into()))?;
            let Split { train, validation, test, conflicting } = Split::read(path, data)?;
            Ok((vec![Fold { train, validation, test }], conflicting))
        }
        Protocol::Random => {
            let mut order = all.clone();
            order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
            order.sort_by_key(|at| &data.runs[*at].label);
            let folds = (0..N_FOLDS).map(|fold| {
                let test: Vec<usize> = order.iter().copied().skip(fold).step_by(N_FOLDS).collect();
                Fold { train: without(&test), validation: Vec::new(), test }
            });
            Ok((folds.collect(), Vec::new()))
        }
        Protocol::LeaveBatchOut => {
            let batches = batches(data, &all)?;
            let fold = |batch: &String| {
                let test: Vec<usize> =
                    all.iter().copied().filter(|at| data.runs[*at].batch.as_ref() == Some(batch)).collect();
                Fold { train: without(&test), validation: Vec::new(), test }
            };
            Ok((batches.iter().map(fold).collect(), Vec::new()))
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
    let (folds, conflicting) = folds(data, protocol, split, settings.seed)?;
    let classes = if model == Model::Usual { vec![NORMAL.into(), UNUSUAL.into()] } else { data.classes() };
    let frozen = match model.network() {
        Some(network) => Frozen::new(network, data, settings)?,
        None => None,
    };
    let n_done = std::sync::atomic::AtomicUsize::new(0);
    let judge = |fold: &Fold| -> Result<FoldFigures> {
        let found = match &frozen {
            Some(frozen) => judge_frozen(frozen, data, fold, &classes, settings),
            None => judge_fold(model, data, fold, &classes, settings, is_nested),
        };
        let done = n_done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        tell(done, folds.len());
        found
    };
    // Trees are fitted on one thread each; networks use all of them by themselves.
    let found: Vec<FoldFigures> = if model.network().is_some() {
        folds.iter().map(judge).collect::<Result<_>>()?
    } else {
        folds.par_iter().map(judge).collect::<Result<_>>()?
    };
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
    figures.n_folds = folds.len();
    figures.conflicting = conflicting;
    figures.seed = settings.seed;
    figures.chosen = found.iter().filter_map(|fold| fold.chosen.clone()).collect();
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
    chosen: Option<String>,
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
        run: one.name().to_owned(),
        label: one.label.clone(),
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
    is_nested: bool,
) -> Result<FoldFigures> {
    let mut found = FoldFigures { n_commonest: n_commonest(data, fold, classes), ..FoldFigures::default() };
    let mut settings = settings.clone();
    if is_nested && model == Model::Slowdown {
        settings.slowdown = choose(data, &fold.train, &settings)?;
        found.chosen = Some(format!("{:?}", settings.slowdown));
    }
    let (train, validation) = (data.select(&fold.train), data.select(&fold.validation));
    let fitted = Fitted::fit(model, &train, &validation, &settings, |step| found.curve.push(*step))?;
    let verdict = |run: &WorkflowRun| number_of(classes, &fitted.classes[most_likely(&fitted.chances(run))]);
    let tests: Vec<&WorkflowRun> = fold.test.iter().map(|run| &data.runs[*run].recording.run).collect();
    let verdicts: Vec<usize> = tests.par_iter().map(|run| verdict(run)).collect();
    found.judged =
        fold.test.iter().zip(verdicts).map(|(run, verdict)| judged(data, classes, *run, verdict)).collect();
    for (_, share) in SHARES {
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
    let chances = frozen
        .judge(&lesson, &fold.train, &fold.validation, &fold.test, settings, |step| found.curve.push(*step));
    let pairs = fold.test.iter().zip(chances);
    found.judged = pairs.map(|(run, chances)| judged(data, classes, *run, most_likely(&chances))).collect();
    Ok(found)
}

/// Trees that slowdown can have, best first where two are as good.
const TREES: [(usize, usize); 4] = [(3, 2), (2, 2), (3, 0), (2, 0)];
/// Up to which novelty memory decides (never, sometimes, always), and how sure the other view has to be beyond.
const NOVELTIES: [f64; 6] = [0.7, 0.5, 0.0, 0.8, 0.9, 1.0];
const SURENESSES: [f64; 2] = [0.8, 0.0];

/// Folds of batches by which it is chosen.
const N_CHOOSING: usize = 9;

/// What does best when batches of some runs are left out in turn: by the mean of accuracy, macro F1 and the balanced
/// accuracy of healthy or not.
pub fn choose(data: &Dataset, runs: &[usize], settings: &FitSettings) -> Result<SlowdownSettings> {
    let classes = data.classes();
    let Ok(batches) = batches(data, runs) else { return Ok(SlowdownSettings::default()) };
    let candidates: Vec<SlowdownSettings> = TREES
        .iter()
        .flat_map(|(depth, n_weaker)| {
            let trees =
                SlowdownSettings { depth: *depth, n_weaker: *n_weaker, ..SlowdownSettings::default() };
            NOVELTIES
                .iter()
                .flat_map(move |novelty| SURENESSES.map(|sureness| (*novelty, sureness)))
                .map(move |(novelty, sureness)| SlowdownSettings { novelty, sureness, ..trees })
        })
        .collect();
    let mut judged_by: Vec<Vec<Judged>> = vec![Vec::new(); candidates.len()];
    for fold in 0..N_CHOOSING.min(batches.len()) {
        // Batches are in the order of time; those of a fold are far apart.
        let left_out: Vec<&String> = batches.iter().skip(fold).step_by(N_CHOOSING).collect();
        let is_left_out =
            |run: &&usize| data.runs[**run].batch.as_ref().is_some_and(|batch| left_out.contains(&batch));
        let (test, train): (Vec<usize>, Vec<usize>) = runs.iter().partition(is_left_out);
        let train = data.select(&train);
        let lesson = Lesson::new(&train, &[], &classes);
        let memory = Memory::fit(&lesson, settings.seed)?;
        let remembered: Vec<(f64, usize)> = test
            .iter()
            .map(|run| {
                let run = &data.runs[*run].recording.run;
                (memory.novelty(run), most_likely(&memory.chances(run)))
            })
            .collect();
        // What novelty and sureness decide needs no other trees.
        let n_alike = NOVELTIES.len() * SURENESSES.len();
        for (first, alike) in (0..).step_by(n_alike).zip(candidates.chunks(n_alike)) {
            let weekless = Weekless::fit(&lesson, alike[0], settings.seed)?;
            for (run, (novelty, known)) in test.iter().zip(&remembered) {
                let new = weekless.chances(&data.runs[*run].recording.run);
                for (at, candidate) in alike.iter().enumerate() {
                    let is_weekless = candidate.is_new(*novelty) && candidate.is_sure(&new);
                    let verdict = if is_weekless { most_likely(&new) } else { *known };
                    judged_by[first + at].push(judged(data, &classes, *run, verdict));
                }
            }
        }
    }
    let merit = |judged: Vec<Judged>| {
        let figures = Figures::new(Model::Slowdown, "leave-batch-out", classes.clone(), judged);
        figures.accuracy + figures.macro_f1 + figures.binary_balanced_accuracy
    };
    let merits: Vec<f64> = judged_by.into_iter().map(merit).collect();
    // Of those that are as good, the first.
    let best = (0..merits.len()).rev().max_by(|a, b| merits[*a].total_cmp(&merits[*b]));
    Ok(best.map_or_else(SlowdownSettings::default, |at| candidates[at]))
}
