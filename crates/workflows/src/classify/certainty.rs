//! When a classifier abstains: its verdict on a run is certain if the confidence reaches a threshold that is calibrated on
//! batches that the classifier has not seen.

use std::collections::BTreeMap;

use rayon::prelude::*;
use workload::Stop;

use super::baseline::Baseline;
use super::{TrainingPlan, TrainingSet, most_likely};
use crate::error::Result;

/// Folds of the calibration. A batch is never in both parts of a fold.
const N_FOLDS: usize = 5;
/// Held-out runs that a threshold needs.
const MIN_HELD_OUT: usize = 20;
/// The accuracy that certain verdicts should have.
const TARGET_ACCURACY: f64 = 0.95;
/// The largest fraction of held-out runs to abstain from.
const MAX_ABSTAINED: f64 = 0.2;

/// The smallest confidence of a certain verdict: the smallest one at which verdicts on runs of other batches are as
/// accurate as they should be, unless the classifier would abstain too often. Zero if there are too few runs to tell.
pub(super) fn calibrate(
    plan: &TrainingPlan,
    training: &TrainingSet<'_>,
    baseline: &Baseline,
    stop: &Stop,
) -> Result<f64> {
    let folds = folds(training);
    let judged: Vec<Vec<(f64, bool)>> = (0..N_FOLDS)
        .into_par_iter()
        .map(|fold| held_out(plan, training, baseline, (&folds, fold), stop))
        .collect::<Result<_>>()?;
    Ok(threshold(judged.concat()))
}

/// The fold of every run. Batches of a class are distributed over folds, and runs without a batch one by one.
fn folds(training: &TrainingSet<'_>) -> Vec<usize> {
    let mut fold_of: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for (class, batch) in training.classes.iter().zip(&training.batches) {
        if let Some(batch) = batch {
            fold_of.insert((*class, batch), 0);
        }
    }
    // Numbers go on from class to class, so that folds have about the same number of batches.
    for (number, fold) in fold_of.values_mut().enumerate() {
        *fold = number % N_FOLDS;
    }
    let runs = training.classes.iter().zip(&training.batches).enumerate();
    runs.map(|(at, (class, batch))| batch.map_or(at % N_FOLDS, |batch| fold_of[&(*class, batch)])).collect()
}

/// The confidence in the verdict on every run of a fold, and whether it is right. Runs of a class that the other folds lack
/// are left out.
fn held_out(
    plan: &TrainingPlan,
    training: &TrainingSet<'_>,
    baseline: &Baseline,
    (folds, fold): (&[usize], usize),
    stop: &Stop,
) -> Result<Vec<(f64, bool)>> {
    stop.check()?;
    let train: Vec<usize> = (0..folds.len()).filter(|at| folds[*at] != fold).collect();
    let mut present: Vec<usize> = train.iter().map(|at| training.classes[*at]).collect();
    present.sort_unstable();
    present.dedup();
    // Without healthy runs or without faults, there is nothing to learn.
    if present.first() != Some(&0) || present.len() < 2 {
        return Ok(Vec::new());
    }
    let others = TrainingSet {
        runs: train.iter().map(|at| training.runs[*at].clone()).collect(),
        classes: train.iter().filter_map(|at| present.binary_search(&training.classes[*at]).ok()).collect(),
        batches: train.iter().map(|at| training.batches[*at]).collect(),
        n_classes: present.len(),
        validation: Vec::new(),
    };
    let classifier = super::trained::fit(plan, &others, baseline, stop, &mut |_| {})?;
    let judged = (0..folds.len()).filter(|at| folds[*at] == fold).filter_map(|at| {
        let truth = present.binary_search(&training.classes[at]).ok()?;
        let run = &training.runs[at];
        Some((classifier.confidence(run), most_likely(&classifier.probabilities(run)) == truth))
    });
    Ok(judged.collect())
}

fn threshold(mut judged: Vec<(f64, bool)>) -> f64 {
    if judged.len() < MIN_HELD_OUT {
        return 0.0;
    }
    judged.sort_by(|a, b| a.0.total_cmp(&b.0));
    let max_abstained = (judged.len() as f64 * MAX_ABSTAINED) as usize;
    let mut n_right = judged.iter().filter(|(_, is_right)| *is_right).count();
    for (at, (confidence, is_right)) in judged.iter().enumerate() {
        let is_accurate = n_right as f64 >= TARGET_ACCURACY * (judged.len() - at) as f64;
        if at == max_abstained || is_accurate {
            return if at == 0 { 0.0 } else { *confidence };
        }
        n_right -= usize::from(*is_right);
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_excludes_the_verdicts_that_are_often_wrong() {
        let judged = |n_wrong: usize| -> Vec<(f64, bool)> {
            (0..100).map(|at| (at as f64 / 100.0, at >= n_wrong)).collect()
        };
        assert_eq!(threshold(judged(0)), 0.0);
        assert_eq!(threshold(judged(5)), 0.0, "accurate enough without abstaining");
        // Of the 90 most confident verdicts, 86 are right.
        assert_eq!(threshold(judged(14)), 0.1);
        assert_eq!(threshold(judged(60)), 0.2, "a fifth is the most");
        assert_eq!(threshold(judged(60)[..19].to_vec()), 0.0, "too few to tell");
    }
}
