//! Ranks the tasks of a run by how anomalous they are, and evaluates the ranking where every task has a label. Folds are
//! by run. A fault affects a machine, so a task is judged together with the other tasks on its host.

use std::collections::HashMap;
use std::time::Instant;

use crate::workflow::WorkflowRun;
use learn::Matrix;
use learn::boost::{BoostSettings, BoostedTrees};
use learn::metrics::{pr_auc, roc_auc};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::Serialize;
use workload::Stop;

use crate::classify::baseline::Baseline;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::features::{Quantity, RunSummary};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerJob {
    pub n_runs: usize,
    pub n_jobs: usize,
    /// The fraction of tasks that are anomalous, which is the average precision of random scores.
    pub anomalous_fraction: f64,
    /// Without labels, using the tasks on the same host.
    pub unsupervised: Ranking,
    /// Without labels, each task by itself.
    pub alone: Ranking,
    pub supervised: Ranking,
    pub seed: u64,
    pub seconds: f64,
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

const QUANTITIES: [Quantity; 6] = [
    Quantity::RuntimePerCpuTime,
    Quantity::Execution,
    Quantity::StageInPerByte,
    Quantity::StageOutPerByte,
    Quantity::Cpu,
    Quantity::Queue,
];
/// Larger deviations are clipped.
const MAX_DEVIATION: f64 = 8.0;
const N_FOLDS: usize = 5;

/// The deviation of every attempt from the baseline: one row per attempt, one column per quantity, NaN if unknown.
fn deviations(run: &RunSummary<'_>, baseline: &Baseline) -> Vec<[f64; QUANTITIES.len()]> {
    let comparison = baseline.compare(run);
    let of = |at: usize| {
        QUANTITIES.map(|quantity| {
            let deviation = comparison.deviation(at, quantity);
            deviation.map_or(f64::NAN, |deviation| deviation.clamp(-MAX_DEVIATION, MAX_DEVIATION))
        })
    };
    (0..run.run.attempts.len()).map(of).collect()
}

/// For every attempt, the attempts on the same host, including itself.
fn neighbours(run: &WorkflowRun) -> Vec<Vec<usize>> {
    let mut by_host: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, attempt) in run.attempts.iter().enumerate() {
        if let Some(host) = &attempt.host {
            by_host.entry(host).or_default().push(at);
        }
    }
    let of = |(at, attempt): (usize, &crate::workflow::TaskAttempt)| {
        attempt.host.as_deref().map_or_else(|| vec![at], |host| by_host[host].clone())
    };
    run.attempts.iter().enumerate().map(of).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let known: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    if known.is_empty() { f64::NAN } else { known.iter().sum::<f64>() / known.len() as f64 }
}

/// Scores without labels: the mean deviation of runtime per CPU time over the tasks on the same host.
pub fn scores(run: &RunSummary<'_>, baseline: &Baseline) -> Vec<f64> {
    let own = deviations(run, baseline);
    let of = |near: &Vec<usize>| {
        let per_cpu_time = mean(near.iter().map(|at| own[*at][0]));
        if per_cpu_time.is_nan() { mean(near.iter().map(|at| own[*at][1])) } else { per_cpu_time }
    };
    neighbours(run.run).iter().map(of).map(|score| if score.is_nan() { 0.0 } else { score }).collect()
}

/// Features for trees: deviations of the task, of its neighbours, and of the whole run.
fn rows(run: &RunSummary<'_>, baseline: &Baseline) -> Vec<Vec<f32>> {
    let own = deviations(run, baseline);
    let whole: Vec<f64> =
        (0..QUANTITIES.len()).map(|column| mean(own.iter().map(|row| row[column]))).collect();
    let of = |(at, near): (usize, &Vec<usize>)| {
        let others =
            |column: usize| mean(near.iter().filter(|other| **other != at).map(|other| own[*other][column]));
        let most = |column: usize| near.iter().map(|other| own[*other][column]).fold(f64::NAN, f64::max);
        let mut row: Vec<f32> = own[at].iter().map(|value| *value as f32).collect();
        row.extend((0..QUANTITIES.len()).map(|column| others(column) as f32));
        row.extend([most(0) as f32, most(1) as f32, near.len() as f32]);
        row.extend(whole.iter().map(|value| *value as f32));
        row
    };
    neighbours(run.run).iter().enumerate().map(of).collect()
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
    let unsupervised: Vec<f64> =
        labelled.par_iter().flat_map_iter(|at| scores(run(*at), &everything)).collect();
    let alone: Vec<f64> = labelled
        .iter()
        .flat_map(|at| {
            let comparison = everything.compare(run(*at));
            (0..comparison.run.attempts.len()).map(|at| comparison.task_deviation(at)).collect::<Vec<_>>()
        })
        .collect();
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
        alone: ranking(&alone)?,
        supervised: ranking(&supervised)?,
        seed,
        seconds: started.elapsed().as_secs_f64(),
    })
}
