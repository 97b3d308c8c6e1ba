//! Which tasks of a run are troubled, where the data say so of every task. Folds are by run. Trouble sits on machines: a task
//! is judged beside the others of its run that ran where it did.

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

use crate::classify::usual::Usual;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::features::Quantity;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerJob {
    pub n_runs: usize,
    pub n_jobs: usize,
    /// What random scores have an average precision of.
    pub troubled_share: f64,
    pub unsupervised: Ranking,
    /// How far a task is above the usual by itself, without its neighbours: the simplest thing to do.
    pub alone: Ranking,
    pub supervised: Ranking,
    pub seed: u64,
    pub seconds: f64,
}

/// How well scores put troubled tasks first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ranking {
    pub roc_auc: f64,
    pub average_precision: f64,
}

impl Ranking {
    fn of(scores: &[f64], is_troubled: &[bool]) -> Option<Self> {
        Some(Self { roc_auc: roc_auc(scores, is_troubled)?, average_precision: pr_auc(scores, is_troubled)? })
    }
}

const QUANTITIES: [Quantity; 6] = [
    Quantity::Stretch,
    Quantity::Length,
    Quantity::StageInSlowness,
    Quantity::StageOutSlowness,
    Quantity::Cpu,
    Quantity::Queue,
];
/// More deviations than this are all the same.
const MOST_DEVIATIONS: f64 = 8.0;
const N_FOLDS: usize = 5;

/// How far each attempt is from the usual of its kind, a row an attempt, a column a quantity; what is not known is none.
fn deviations(run: &WorkflowRun, usual: &Usual) -> Vec<[f64; QUANTITIES.len()]> {
    let contrast = usual.beside(run);
    let of = |at: usize| {
        QUANTITIES.map(|quantity| {
            let off = contrast.deviation(at, quantity);
            off.map_or(f64::NAN, |off| off.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS))
        })
    };
    (0..run.attempts.len()).map(of).collect()
}

/// For every attempt, the attempts of the run that ran on the same machine, itself among them.
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

/// Scores without labels: how much longer than its processor time everything took that ran where a task did.
pub fn scores(run: &WorkflowRun, usual: &Usual) -> Vec<f64> {
    let own = deviations(run, usual);
    let of = |near: &Vec<usize>| {
        let stretch = mean(near.iter().map(|at| own[*at][0]));
        if stretch.is_nan() { mean(near.iter().map(|at| own[*at][1])) } else { stretch }
    };
    neighbours(run).iter().map(of).map(|score| if score.is_nan() { 0.0 } else { score }).collect()
}

/// Columns for trees: its own deviations, those of its neighbours, those of the whole run.
fn rows(run: &WorkflowRun, usual: &Usual) -> Vec<Vec<f32>> {
    let own = deviations(run, usual);
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
    neighbours(run).iter().enumerate().map(of).collect()
}

/// Evaluates both ways on runs with labels for every task.
pub fn evaluate(data: &Dataset, seed: u64) -> Result<PerJob> {
    let begun = Instant::now();
    let labelled: Vec<usize> = (0..data.runs.len())
        .filter(|at| data.runs[*at].recording.labels.len() == data.runs[*at].recording.run.attempts.len())
        .collect();
    if labelled.len() < N_FOLDS {
        return Err(Error::Ask(match labelled.len() {
            0 => "tasks have no labels of their own: there has to be a column anomaly_type".into(),
            few => format!("{few} runs have labels of tasks; {N_FOLDS} are the least to judge by"),
        }));
    }
    let run = |at: usize| &data.runs[at].recording.run;
    let truth = |at: usize| data.runs[at].recording.labels.iter().map(Option::is_some);
    let is_troubled: Vec<bool> = labelled.iter().flat_map(|at| truth(*at)).collect();
    let everything = Usual::of(&labelled.iter().map(|at| run(*at)).collect::<Vec<_>>());
    let unsupervised: Vec<f64> =
        labelled.par_iter().flat_map_iter(|at| scores(run(*at), &everything)).collect();
    let alone: Vec<f64> = labelled
        .iter()
        .flat_map(|at| {
            let contrast = everything.beside(run(*at));
            (0..contrast.run.attempts.len()).map(|at| contrast.task_deviation(at)).collect::<Vec<_>>()
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
            let usual = Usual::of(&train.iter().map(|at| run(*at)).collect::<Vec<_>>());
            let table =
                |runs: &[usize]| runs.iter().flat_map(|at| rows(run(*at), &usual)).collect::<Vec<_>>();
            let points = table(&train);
            let n_columns = points.first().map_or(1, Vec::len);
            let points = Matrix::new(points.concat(), n_columns);
            let classes: Vec<bool> = train.iter().flat_map(|at| truth(*at)).collect();
            let settings = BoostSettings { depth: 6, seed, ..BoostSettings::default() };
            let trees = BoostedTrees::fit_weighted(&points, &classes, &vec![1.0; classes.len()], settings)?;
            let judged = test
                .iter()
                .map(|at| (*at, trees.scores(&Matrix::new(rows(run(*at), &usual).concat(), n_columns))));
            Ok(judged.collect())
        })
        .collect::<Result<_>>()?;
    let supervised: Vec<f64> = labelled.iter().flat_map(|at| folds[fold_of[at]][at].clone()).collect();
    let ranking = |scores: &[f64]| {
        Ranking::of(scores, &is_troubled)
            .ok_or_else(|| Error::Ask("there are only troubled or only healthy tasks".into()))
    };
    let n_troubled = is_troubled.iter().filter(|is_troubled| **is_troubled).count();
    Ok(PerJob {
        n_runs: labelled.len(),
        n_jobs: is_troubled.len(),
        troubled_share: n_troubled as f64 / is_troubled.len() as f64,
        unsupervised: ranking(&unsupervised)?,
        alone: ranking(&alone)?,
        supervised: ranking(&supervised)?,
        seed,
        seconds: begun.elapsed().as_secs_f64(),
    })
}
