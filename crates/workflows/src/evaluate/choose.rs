//! What slowdown can be told, chosen without the runs that are judged: batches of the training runs are left out in turn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::figures::Worth;
use super::{Fold, batches, class_of};
use crate::classify::slowdown::{Memory, SlowdownSettings, Weekless};
use crate::classify::{FitSettings, Lesson, most_likely};
use crate::dataset::{Dataset, NORMAL, number_of};
use crate::error::Result;

/// Depths of trees and weaker runs for each troubled one, best first where two are as good.
const TREES: [(usize, usize); 4] = [(3, 2), (2, 2), (3, 0), (2, 0)];
/// Up to which novelty memory decides (never, sometimes, always), and how sure the other view has to be beyond.
const NOVELTIES: [f64; 6] = [0.7, 0.5, 0.0, 0.8, 0.9, 1.0];
const SURENESSES: [f64; 2] = [0.8, 0.0];

/// What may be chosen: for each kind of trees, who decides when.
fn candidates() -> Vec<Vec<SlowdownSettings>> {
    let trees =
        TREES.map(|(depth, n_weaker)| SlowdownSettings { depth, n_weaker, ..SlowdownSettings::default() });
    let deciders = |trees: SlowdownSettings| {
        let pairs = NOVELTIES.into_iter().flat_map(|novelty| SURENESSES.map(|sureness| (novelty, sureness)));
        pairs.map(|(novelty, sureness)| SlowdownSettings { novelty, sureness, ..trees }).collect()
    };
    trees.map(deciders).into()
}

/// A row a true class, a column a verdict.
type Confusion = Vec<Vec<usize>>;

/// For each fold, what does best when each batch of its training runs is left out in turn: by the mean of accuracy, macro
/// F1 and the balanced accuracy of healthy or not.
pub fn for_folds(
    data: &Dataset,
    folds: &[Fold],
    settings: &FitSettings,
    tell: &(impl Fn(usize, usize) + Sync),
) -> Result<Vec<SlowdownSettings>> {
    let classes = data.classes();
    // Folds that leave out each other's batch learn from the same runs, once.
    let mut lessons: BTreeMap<Vec<usize>, Vec<(usize, Vec<usize>)>> = BTreeMap::new();
    for (number, fold) in folds.iter().enumerate() {
        for batch in batches(data, &fold.train)? {
            let is_left_out = |run: &&usize| data.runs[**run].batch.as_ref() == Some(&batch);
            let (test, train): (Vec<usize>, Vec<usize>) = fold.train.iter().partition(is_left_out);
            // What is chosen without healthy runs suits nothing.
            if train.iter().any(|run| data.runs[*run].class() == NORMAL) {
                lessons.entry(train).or_default().push((number, test));
            }
        }
    }
    let (n_lessons, n_done) = (lessons.len(), AtomicUsize::new(0));
    let learn = |(train, tests): (Vec<usize>, Vec<(usize, Vec<usize>)>)| {
        let found = confusions(data, &classes, &train, tests, settings.seed);
        tell(n_done.fetch_add(1, Ordering::Relaxed) + 1, n_lessons);
        found
    };
    let found: Vec<Vec<(usize, Vec<Confusion>)>> =
        lessons.into_par_iter().map(learn).collect::<Result<_>>()?;
    let candidates = candidates().concat();
    let nothing = vec![vec![0; classes.len()]; classes.len()];
    let mut by_fold = vec![vec![nothing; candidates.len()]; folds.len()];
    for (fold, confusions) in found.into_iter().flatten() {
        for (sum, confusion) in by_fold[fold].iter_mut().zip(confusions) {
            sum.iter_mut()
                .flatten()
                .zip(confusion.into_iter().flatten())
                .for_each(|(sum, count)| *sum += count);
        }
    }
    let best = |confusions: &Vec<Confusion>| {
        let merit = |confusion: &Confusion| {
            let worth = Worth::new(confusion, &classes);
            worth.accuracy + worth.macro_f1 + worth.binary_balanced_accuracy
        };
        let merits = confusions.iter().map(merit).zip(&candidates);
        // Of those that are as good, the first.
        merits
            .rev()
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or_else(SlowdownSettings::default, |(_, best)| *best)
    };
    Ok(by_fold.iter().map(best).collect())
}

/// What every candidate says of runs of each fold when it has learnt from others.
fn confusions(
    data: &Dataset,
    classes: &[String],
    train: &[usize],
    tests: Vec<(usize, Vec<usize>)>,
    seed: u64,
) -> Result<Vec<(usize, Vec<Confusion>)>> {
    let train = data.select(train);
    // A class that is not there cannot be said.
    let is_there = |class: &&String| train.iter().any(|run| run.class() == *class);
    let there: Vec<String> = classes.iter().filter(is_there).cloned().collect();
    let lesson = Lesson::new(&train, &[], &there);
    let memory = Memory::fit(&lesson, seed)?;
    // Who decides makes no difference to the trees.
    let alike = candidates();
    let views =
        alike.iter().map(|alike| Weekless::fit(&lesson, alike[0], seed)).collect::<Result<Vec<_>>>()?;
    let judge = |(fold, test): (usize, Vec<usize>)| {
        let mut found = vec![vec![vec![0; classes.len()]; classes.len()]; alike.len() * alike[0].len()];
        for at in test {
            let run = &data.runs[at].recording.run;
            let (novelty, known) = (memory.novelty(run), most_likely(&memory.chances(run)));
            let verdicts = views.iter().zip(&alike).flat_map(|(weekless, alike)| {
                let new = weekless.chances(run);
                alike.iter().map(move |candidate| {
                    let is_weekless = candidate.is_new(novelty) && candidate.is_sure(&new);
                    if is_weekless { most_likely(&new) } else { known }
                })
            });
            let truth = class_of(data, classes, at);
            for (confusion, verdict) in found.iter_mut().zip(verdicts) {
                confusion[truth][number_of(classes, &there[verdict])] += 1;
            }
        }
        (fold, found)
    };
    Ok(tests.into_iter().map(judge).collect())
}
