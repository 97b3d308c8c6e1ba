//! Runs that were learnt from, remembered: what classes their like were, and whether a run is like any of them at all.

use learn::Matrix;
use learn::artifact::{Tensor, Tensors};
use learn::extra_trees::{ExtraTrees, ExtraTreesSettings};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::workflow::WorkflowRun;

use crate::classify::trees::Trees;
use crate::classify::{Classifier, Lesson};
use crate::error::Result;
use crate::features::{Quantity, Statistic, View};

const QUANTITIES: [Quantity; 7] = [
    Quantity::Run,
    Quantity::StageIn,
    Quantity::StageOut,
    Quantity::Cpu,
    Quantity::Queue,
    Quantity::Stretch,
    Quantity::StageInSlowness,
];
const STATISTICS: [Statistic; 5] =
    [Statistic::Mean, Statistic::Median, Statistic::Deviation, Statistic::Least, Statistic::Most];

/// Which of the nearest runs says how near a run is to what is known.
const NEIGHBOUR: usize = 3;
/// Logarithms differ by less than this without meaning.
const LEAST_DEVIATION: f32 = 1e-3;

pub struct Memory {
    view: View,
    randomised: ExtraTrees,
    boosted: Trees,
    /// Rows of runs in units of how runs of a batch differ.
    rows: Matrix,
    deviations: Vec<f32>,
    /// How far each run is from its neighbours, in order.
    distances: Vec<f32>,
}

#[derive(Serialize, Deserialize)]
pub struct Kept {
    view: View,
    randomised: ExtraTrees,
    boosted: serde_json::Value,
}

/// Sizes count by their order of magnitude; what is not known lies in the middle of nothing.
fn tamed(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.signum() * value.abs().ln_1p() }
}

fn square(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

impl Memory {
    pub fn fit(lesson: &Lesson<'_>, seed: u64) -> Result<Self> {
        let view = View::of(&lesson.runs, &QUANTITIES, &STATISTICS);
        let raw = view.rows(&lesson.runs);
        let settings = ExtraTreesSettings { seed, ..ExtraTreesSettings::default() };
        let randomised =
            ExtraTrees::fit(&raw, &lesson.classes, &lesson.class_weights(), lesson.n_classes, settings);
        let boosted = Trees::fit_to(lesson, view.clone(), seed)?;
        let mut rows: Vec<Vec<f32>> =
            raw.rows().map(|row| row.iter().map(|value| tamed(*value)).collect()).collect();
        let deviations = deviations(&rows, lesson);
        rows.iter_mut().for_each(|row| {
            row.iter_mut().zip(&deviations).for_each(|(value, deviation)| *value /= deviation)
        });
        let rows = Matrix::new(rows.concat(), raw.n_columns());
        let mut distances: Vec<f32> =
            (0..rows.n_rows()).into_par_iter().map(|at| distance(&rows, rows.row(at), Some(at))).collect();
        distances.sort_by(f32::total_cmp);
        Ok(Self { view, randomised, boosted, rows, deviations, distances })
    }

    /// Two kinds of trees, each with half of the say.
    pub fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let (one, other) = (self.randomised.chances(&self.view.row(run)), self.boosted.chances(run));
        one.iter().zip(other).map(|(one, other)| (one + other) / 2.0).collect()
    }

    /// The share of remembered runs that are nearer to others than this one is to any: above nearly all, it is new.
    pub fn novelty(&self, run: &WorkflowRun) -> f64 {
        let row: Vec<f32> = self
            .view
            .row(run)
            .iter()
            .zip(&self.deviations)
            .map(|(value, deviation)| tamed(*value) / deviation)
            .collect();
        let found = distance(&self.rows, &row, None);
        self.distances.partition_point(|known| *known < found) as f64 / self.distances.len().max(1) as f64
    }

    pub fn kept(&self) -> Kept {
        Kept {
            view: self.view.clone(),
            randomised: self.randomised.clone(),
            boosted: self.boosted.settings(),
        }
    }

    pub fn tensors(&self) -> Tensors {
        let row = |values: &[f32]| Tensor { shape: vec![values.len()], values: values.to_vec() };
        let rows = Tensor {
            shape: vec![self.rows.n_rows(), self.rows.n_columns()],
            values: self.rows.as_slice().to_vec(),
        };
        [("rows", rows), ("deviations", row(&self.deviations)), ("distances", row(&self.distances))]
            .map(|(name, tensor)| (format!("memory.{name}"), tensor))
            .into()
    }

    pub fn restore(kept: Kept, tensors: &Tensors) -> Option<Self> {
        let values = |name: &str| tensors.get(&format!("memory.{name}")).map(|tensor| tensor.values.clone());
        let n_columns = kept.view.features.len();
        let (rows, deviations, distances) = (values("rows")?, values("deviations")?, values("distances")?);
        let fits = n_columns > 0 && rows.len().is_multiple_of(n_columns) && deviations.len() == n_columns;
        let boosted = Trees::restore(&kept.boosted)?;
        let Kept { view, randomised, .. } = kept;
        fits.then(|| Self {
            view,
            randomised,
            boosted,
            rows: Matrix::new(rows, n_columns),
            deviations,
            distances,
        })
    }
}

/// How runs of one batch, or of one class where there are no batches, differ in each column.
fn deviations(rows: &[Vec<f32>], lesson: &Lesson<'_>) -> Vec<f32> {
    let n_columns = rows.first().map_or(0, Vec::len);
    let group = |at: usize| (lesson.batches[at], lesson.classes[at]);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| group(*at));
    let mut squares = vec![0.0f32; n_columns];
    for members in order.chunk_by(|a, b| group(*a) == group(*b)) {
        for (column, square) in squares.iter_mut().enumerate() {
            let mean = members.iter().map(|at| rows[*at][column]).sum::<f32>() / members.len() as f32;
            *square += members.iter().map(|at| (rows[*at][column] - mean).powi(2)).sum::<f32>();
        }
    }
    squares.into_iter().map(|square| (square / rows.len().max(1) as f32).sqrt() + LEAST_DEVIATION).collect()
}

/// How far the third nearest row is.
fn distance(rows: &Matrix, row: &[f32], except: Option<usize>) -> f32 {
    let mut nearest = [f32::INFINITY; NEIGHBOUR];
    for (_, other) in rows.rows().enumerate().filter(|(at, _)| Some(*at) != except) {
        let found = square(row, other);
        if let Some(place) = nearest.iter().position(|known| found < *known) {
            nearest[place..].rotate_right(1);
            nearest[place] = found;
        }
    }
    nearest[NEIGHBOUR - 1].sqrt()
}
