//! Ranks the tasks of a run by how anomalous they are, and evaluates the ranking where every task has a label. Folds are
//! by run. A fault affects a machine, so a task is judged together with the other tasks on its host.

use std::collections::HashMap;
use std::time::Instant;

use crate::workflow::{TaskAttempt, WorkflowRun};
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

/// The deviations of the attempts on one host. An attempt without a host is alone.
#[derive(Clone, Copy)]
struct HostDeviations {
    n_attempts: usize,
    /// Of each quantity: the known deviations, their sum and the largest one.
    n_known: [usize; QUANTITIES.len()],
    sum: [f64; QUANTITIES.len()],
    largest: [f64; QUANTITIES.len()],
}

impl HostDeviations {
    const NONE: Self = Self {
        n_attempts: 0,
        n_known: [0; QUANTITIES.len()],
        sum: [0.0; QUANTITIES.len()],
        largest: [f64::NAN; QUANTITIES.len()],
    };

    fn add(&mut self, row: &[f64; QUANTITIES.len()]) {
        self.n_attempts += 1;
        for (column, value) in row.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            self.n_known[column] += 1;
            self.sum[column] += value;
            self.largest[column] = self.largest[column].max(*value);
        }
    }

    /// The mean of a quantity; NaN if nothing is known.
    fn mean(&self, column: usize) -> f64 {
        self.sum[column] / self.n_known[column] as f64
    }

    /// The mean without one attempt.
    fn mean_of_others(&self, own: f64, column: usize) -> f64 {
        if own.is_nan() {
            return self.mean(column);
        }
        let n_others = self.n_known[column] - 1;
        if n_others == 0 { f64::NAN } else { (self.sum[column] - own) / n_others as f64 }
    }
}

/// For every attempt, the deviations of all attempts on its host, including itself.
fn on_same_host(run: &WorkflowRun, own: &[[f64; QUANTITIES.len()]]) -> Vec<HostDeviations> {
    let mut by_host: HashMap<&str, HostDeviations> = HashMap::new();
    for (attempt, row) in run.attempts.iter().zip(own) {
        if let Some(host) = &attempt.host {
            by_host.entry(host).or_insert(HostDeviations::NONE).add(row);
        }
    }
    let of = |(attempt, row): (&TaskAttempt, &[f64; QUANTITIES.len()])| match &attempt.host {
        Some(host) => by_host[host.as_str()],
        None => {
            let mut alone = HostDeviations::NONE;
            alone.add(row);
            alone
        }
    };
    run.attempts.iter().zip(own).map(of).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let known: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
    if known.is_empty() { f64::NAN } else { known.iter().sum::<f64>() / known.len() as f64 }
}

/// Scores without labels: the mean deviation of runtime per CPU time over the tasks on the same host.
pub fn scores(run: &RunSummary<'_>, baseline: &Baseline) -> Vec<f64> {
    let of = |near: HostDeviations| {
        let per_cpu_time = near.mean(0);
        if per_cpu_time.is_nan() { near.mean(1) } else { per_cpu_time }
    };
    let near = on_same_host(run.run, &deviations(run, baseline));
    near.into_iter().map(of).map(|score| if score.is_nan() { 0.0 } else { score }).collect()
}

/// Features for trees: deviations of the task, of its neighbours, and of the whole run.
fn rows(run: &RunSummary<'_>, baseline: &Baseline) -> Vec<Vec<f32>> {
    let own = deviations(run, baseline);
    let whole: Vec<f64> =
        (0..QUANTITIES.len()).map(|column| mean(own.iter().map(|row| row[column]))).collect();
    let of = |(own, near): (&[f64; QUANTITIES.len()], HostDeviations)| {
        let mut row: Vec<f32> = own.iter().map(|value| *value as f32).collect();
        let others = own.iter().enumerate().map(|(column, own)| near.mean_of_others(*own, column) as f32);
        row.extend(others);
        row.extend([near.largest[0] as f32, near.largest[1] as f32, near.n_attempts as f32]);
        row.extend(whole.iter().map(|value| *value as f32));
        row
    };
    own.iter().zip(on_same_host(run.run, &own)).map(of).collect()
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
