//! Evaluates the ranking of tasks by how anomalous they are, where every task has a label: without labels
//! ([`crate::anomalous_tasks`]), and with labels in folds by run.

use std::collections::HashMap;
use std::time::Instant;

use learn::Matrix;
use learn::boost::{BoostSettings, BoostedTrees};
use learn::metrics::{pr_auc, roc_auc};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::Serialize;
use workload::Stop;

use crate::anomalous_tasks::{
    Deviations, MachineDeviations, Machines, Neighbours, QUANTITIES, deviations, scores,
};
use crate::classify::baseline::Baseline;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::features::RunSummary;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerJob {
    pub n_runs: usize,
    pub n_jobs: usize,
    /// The fraction of tasks that are anomalous, which is the average precision of random scores.
    pub anomalous_fraction: f64,
    /// Without labels, using the tasks on the same host, in this run and in runs near in time.
    pub unsupervised: Ranking,
    /// Without labels, using the tasks on the same host in this run.
    pub within_run: Ranking,
    /// Without labels, each task by itself.
    pub alone: Ranking,
    pub supervised: Ranking,
    /// The rankings without labels on the later half of the runs. The baseline is that of all runs.
    pub later: Option<LaterHalf>,
    pub seed: u64,
    pub seconds: f64,
}

/// The later half of the runs by their start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LaterHalf {
    pub n_runs: usize,
    pub anomalous_fraction: f64,
    pub unsupervised: Ranking,
    pub within_run: Ranking,
    pub alone: Ranking,
}

/// How well scores rank anomalous tasks first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ranking {
    pub roc_auc: f64,
    pub average_precision: f64,
}

impl Ranking {
    fn of(scores: &[f64], is_anomalous: &[bool]) -> Option<Self> {
        Some(Self {
            roc_auc: roc_auc(scores, is_anomalous)?,
            average_precision: pr_auc(scores, is_anomalous)?,
        })
    }
}

impl LaterHalf {
    /// `None` if its tasks are of one class. Scores are those without labels, of every task.
    fn of(
        is_later: &[bool],
        runs: &[&RunSummary<'_>],
        is_anomalous: &[bool],
        scores: [&[f64]; 3],
    ) -> Option<Self> {
        let n_attempts = runs.iter().map(|run| run.run.attempts.len());
        let is_chosen: Vec<bool> =
            is_later.iter().zip(n_attempts).flat_map(|(is_later, count)| vec![*is_later; count]).collect();
        let labels = chosen(is_anomalous, &is_chosen);
        let ranking = |scores: &[f64]| Ranking::of(&chosen(scores, &is_chosen), &labels);
        Some(Self {
            n_runs: is_later.iter().filter(|is_later| **is_later).count(),
            anomalous_fraction: labels.iter().filter(|label| **label).count() as f64 / labels.len() as f64,
            unsupervised: ranking(scores[0])?,
            within_run: ranking(scores[1])?,
            alone: ranking(scores[2])?,
        })
    }
}

fn chosen<T: Copy>(values: &[T], is_chosen: &[bool]) -> Vec<T> {
    values.iter().zip(is_chosen).filter(|(_, is_chosen)| **is_chosen).map(|(value, _)| *value).collect()
}

/// For each run, whether it belongs to the later half.
fn is_later(runs: &[&RunSummary<'_>]) -> Vec<bool> {
    let start = |at: usize| runs[at].run.start().unwrap_or(f64::NEG_INFINITY);
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by(|a, b| start(*a).total_cmp(&start(*b)));
    let mut is_later = vec![false; runs.len()];
    for at in &order[order.len() / 2..] {
        is_later[*at] = true;
    }
    is_later
}

const N_FOLDS: usize = 5;

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let known: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    if known.is_empty() { f64::NAN } else { known.iter().sum::<f64>() / known.len() as f64 }
}

/// Features for trees: deviations of the task, of its neighbours, and of the whole run.
fn rows(run: &RunSummary<'_>, baseline: &Baseline) -> Vec<Vec<f32>> {
    let own = deviations(&baseline.compare(run));
    let whole: Vec<f64> =
        (0..QUANTITIES.len()).map(|column| mean(own.iter().map(|row| row[column]))).collect();
    let machines = Machines::new(run.run, &own);
    let of = |(own, near): (&Deviations, &MachineDeviations)| {
        let mut row: Vec<f32> = own.iter().map(|value| *value as f32).collect();
        let others = own.iter().enumerate().map(|(column, own)| near.mean_of_others(*own, column) as f32);
        row.extend(others);
        row.extend([near.largest[0] as f32, near.largest[1] as f32, near.n_attempts as f32]);
        row.extend(whole.iter().map(|value| *value as f32));
        row
    };
    own.iter().zip(machines.by_attempt()).map(of).collect()
}

/// Evaluates rankings with and without labels on runs whose tasks are all labelled.
pub fn evaluate(data: &Dataset, seed: u64, stop: &Stop) -> Result<PerJob> {
    let started = Instant::now();
    let labelled: Vec<usize> = (0..data.runs.len())
        .filter(|at| data.runs[*at].recording.labels.len() == data.runs[*at].recording.run.attempts.len())
        .collect();
    if labelled.len() < N_FOLDS {
        return Err(match labelled.len() {
            0 => Error::NoTaskLabels,
            found => Error::TooFewTaskLabels { found, needed: N_FOLDS },
        });
    }
    let summaries: HashMap<usize, RunSummary<'_>> =
        labelled.par_iter().map(|at| (*at, RunSummary::new(&data.runs[*at].recording.run))).collect();
    let run = |at: usize| &summaries[&at];
    let truth = |at: usize| data.runs[at].recording.labels.iter().map(Option::is_some);
    let is_anomalous: Vec<bool> = labelled.iter().flat_map(|at| truth(*at)).collect();
    let everything = Baseline::of(labelled.iter().map(|at| run(*at)));
    let in_order: Vec<&RunSummary<'_>> = labelled.iter().map(|at| run(*at)).collect();
    let scored = |neighbours: Neighbours| -> Vec<f64> {
        let found = scores(&in_order, &everything, neighbours);
        found.into_iter().flatten().map(|task| task.score).collect()
    };
    let (unsupervised, within_run) = (scored(Neighbours::NearInTime), scored(Neighbours::None));
    let alone: Vec<f64> = in_order
        .iter()
        .flat_map(|summary| {
            let comparison = everything.compare(summary);
            (0..comparison.run.attempts.len()).map(|at| comparison.task_deviation(at)).collect::<Vec<_>>()
        })
        .collect();
    let is_later = is_later(&in_order);
    let later = LaterHalf::of(&is_later, &in_order, &is_anomalous, [&unsupervised, &within_run, &alone]);
    let mut order = labelled.clone();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let fold_of: HashMap<usize, usize> =
        order.iter().enumerate().map(|(place, at)| (*at, place % N_FOLDS)).collect();
    let folds: Vec<HashMap<usize, Vec<f64>>> = (0..N_FOLDS)
        .into_par_iter()
        .map(|fold| {
            let (test, train): (Vec<usize>, Vec<usize>) =
                labelled.iter().partition(|at| fold_of[*at] == fold);
            stop.check()?;
            let baseline = Baseline::of(train.iter().map(|at| run(*at)));
            let table =
                |runs: &[usize]| runs.iter().flat_map(|at| rows(run(*at), &baseline)).collect::<Vec<_>>();
            let points = table(&train);
            let n_columns = points.first().map_or(1, Vec::len);
            let points = Matrix::new(points.concat(), n_columns);
            let classes: Vec<bool> = train.iter().flat_map(|at| truth(*at)).collect();
            let settings = BoostSettings { depth: 6, seed, ..BoostSettings::default() };
            let trees = BoostedTrees::fit_weighted(&points, &classes, &vec![1.0; classes.len()], settings)?;
            let judged = test
                .iter()
                .map(|at| (*at, trees.scores(&Matrix::new(rows(run(*at), &baseline).concat(), n_columns))));
            Ok(judged.collect())
        })
        .collect::<Result<_>>()?;
    let supervised: Vec<f64> = labelled.iter().flat_map(|at| folds[fold_of[at]][at].clone()).collect();
    let ranking = |scores: &[f64]| Ranking::of(scores, &is_anomalous).ok_or(Error::OneTaskClass);
    let n_anomalous = is_anomalous.iter().filter(|is_anomalous| **is_anomalous).count();
    Ok(PerJob {
        n_runs: labelled.len(),
        n_jobs: is_anomalous.len(),
        anomalous_fraction: n_anomalous as f64 / is_anomalous.len() as f64,
        unsupervised: ranking(&unsupervised)?,
        within_run: ranking(&within_run)?,
        alone: ranking(&alone)?,
        supervised: ranking(&supervised)?,
        later,
        seed,
        seconds: started.elapsed().as_secs_f64(),
    })
}
