//! Hyper-parameter search for `slowdown` by leave-one-batch-out cross-validation within the training runs of a fold. The
//! runs that a fold judges are not used.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use workload::Stop;

use super::metrics::Scores;
use super::{Fold, batches, class_of};
use crate::classify::baseline::class_index;
use crate::classify::slowdown::{BatchInvariant, Memory, SlowdownSettings};
use crate::classify::{TrainingSet, most_likely};
use crate::dataset::{Dataset, NORMAL};
use crate::error::Result;
use crate::features::RunSummary;

/// Depths of trees and numbers of interpolated runs. Of equally good candidates, the first is chosen.
const TREES: [(usize, usize); 4] = [(3, 2), (2, 2), (3, 0), (2, 0)];
/// The novelty up to which memory decides (0 is never, 1 is always), and the probability that the other view needs.
const NOVELTIES: [f64; 6] = [0.7, 0.5, 0.0, 0.8, 0.9, 1.0];
const MIN_PROBABILITIES: [f64; 2] = [0.8, 0.0];

/// The candidates, grouped by their trees.
fn candidates() -> Vec<Vec<SlowdownSettings>> {
    let trees =
        TREES.map(|(depth, n_weaker)| SlowdownSettings { depth, n_weaker, ..SlowdownSettings::default() });
    let with_decisions = |trees: SlowdownSettings| {
        let pairs = NOVELTIES
            .into_iter()
            .flat_map(|novelty| MIN_PROBABILITIES.map(|min_probability| (novelty, min_probability)));
        pairs
            .map(|(novelty, min_probability)| SlowdownSettings { novelty, min_probability, ..trees })
            .collect()
    };
    trees.map(with_decisions).into()
}

/// One row per true class, one column per verdict.
type Confusion = Vec<Vec<usize>>;

/// Test runs of one fold that a model judges.
struct InnerTest {
    fold: usize,
    runs: Vec<usize>,
}

/// For each fold, the candidate with the best mean of accuracy, macro F1 and balanced accuracy when each batch of its
/// training runs is left out in turn.
pub fn for_folds(
    data: &Dataset,
    folds: &[Fold],
    seed: u64,
    stop: &Stop,
    progress: &(impl Fn(usize, usize) + Sync),
) -> Result<Vec<SlowdownSettings>> {
    let classes = data.classes();
    // Two folds that leave out each other's batch have the same inner training set, which is used once.
    let mut training_sets: BTreeMap<Vec<usize>, Vec<InnerTest>> = BTreeMap::new();
    for (number, fold) in folds.iter().enumerate() {
        for batch in batches(data, &fold.train)? {
            let is_left_out = |run: &&usize| data.runs[**run].batch.as_ref() == Some(&batch);
            let (test, train): (Vec<usize>, Vec<usize>) = fold.train.iter().partition(is_left_out);
            // `slowdown` cannot be trained without healthy runs.
            if train.iter().any(|run| data.runs[*run].class() == NORMAL) {
                training_sets.entry(train).or_default().push(InnerTest { fold: number, runs: test });
            }
        }
    }
    let (n_sets, n_done) = (training_sets.len(), AtomicUsize::new(0));
    let judge = |(train, tests): (Vec<usize>, Vec<InnerTest>)| {
        stop.check()?;
        let found = confusions(data, &classes, &train, tests, seed, stop);
        progress(n_done.fetch_add(1, Ordering::Relaxed) + 1, n_sets);
        found
    };
    let found: Vec<Vec<(usize, Vec<Confusion>)>> =
        training_sets.into_par_iter().map(judge).collect::<Result<_>>()?;
    let candidates = candidates().concat();
    let empty = vec![vec![0; classes.len()]; classes.len()];
    let mut by_fold = vec![vec![empty; candidates.len()]; folds.len()];
    for (fold, confusions) in found.into_iter().flatten() {
        for (sum, confusion) in by_fold[fold].iter_mut().zip(confusions) {
            for (sum, count) in sum.iter_mut().flatten().zip(confusion.into_iter().flatten()) {
                *sum += count;
            }
        }
    }
    let best = |confusions: &Vec<Confusion>| {
        let merit = |confusion: &Confusion| {
            let scores = Scores::new(confusion, &classes);
            scores.accuracy + scores.macro_f1 + scores.binary_balanced_accuracy
        };
        let merits = confusions.iter().map(merit).zip(&candidates);
        // `max_by` returns the last of equal elements; the first is wanted.
        merits
            .rev()
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map_or_else(SlowdownSettings::default, |(_, best)| *best)
    };
    Ok(by_fold.iter().map(best).collect())
}

/// The confusion matrix of every candidate on the inner test runs of each fold.
fn confusions(
    data: &Dataset,
    classes: &[String],
    train: &[usize],
    tests: Vec<InnerTest>,
    seed: u64,
    stop: &Stop,
) -> Result<Vec<(usize, Vec<Confusion>)>> {
    let train = data.select(train);
    // A class that the training runs lack cannot be predicted.
    let is_present = |class: &&String| train.iter().any(|run| run.class() == *class);
    let present: Vec<String> = classes.iter().filter(is_present).cloned().collect();
    let training = TrainingSet::new(&train, &[], &present);
    let memory = Memory::fit(&training, seed, stop)?;
    // Candidates of one group differ in which view decides, not in their trees.
    let groups = candidates();
    let views = groups
        .iter()
        .map(|group| BatchInvariant::fit(&training, group[0], seed, stop))
        .collect::<Result<Vec<_>>>()?;
    let judge = |test: InnerTest| {
        let mut found = vec![vec![vec![0; classes.len()]; classes.len()]; groups.len() * groups[0].len()];
        for at in test.runs {
            let run = RunSummary::new(&data.runs[at].recording.run);
            let (novelty, remembered) = (memory.novelty(&run), most_likely(&memory.probabilities(&run)));
            let verdicts = views.iter().zip(&groups).flat_map(|(view, group)| {
                let invariant = view.probabilities(&run);
                group.iter().map(move |candidate| {
                    let is_invariant = candidate.is_novel(novelty) && candidate.is_certain(&invariant);
                    if is_invariant { most_likely(&invariant) } else { remembered }
                })
            });
            let truth = class_of(data, classes, at);
            for (confusion, verdict) in found.iter_mut().zip(verdicts) {
                if let (Some(truth), Some(verdict)) = (truth, class_index(classes, &present[verdict])) {
                    confusion[truth][verdict] += 1;
                }
            }
        }
        (test.fold, found)
    };
    Ok(tests.into_iter().map(judge).collect())
}
