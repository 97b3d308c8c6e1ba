//! Runs that were learnt from, remembered: what classes their like were, and whether a run is like any of them at all.

use crate::workflow::WorkflowRun;
use learn::Matrix;
use learn::artifact::{Tensor, Tensors, part_of, within};
use learn::extra_trees::{ExtraTrees, ExtraTreesSettings, LabelledPoints};
use learn::stats::squared_distance;
use rayon::prelude::*;
use workload::Stop;

use crate::classify::trees::Trees;
use crate::classify::{Classifier, Lesson};
use crate::error::Result;

/// Which of the nearest runs says how near a run is to what is known.
const NEIGHBOUR: usize = 3;
/// Logarithms differ by less than this without meaning.
const LEAST_DEVIATION: f32 = 1e-3;

pub struct Memory {
    randomised: ExtraTrees,
    boosted: Trees,
    /// Rows of runs in units of how runs of a batch differ.
    rows: Matrix,
    deviations: Vec<f32>,
    /// How far each run is from its neighbours, in order.
    distances: Vec<f32>,
}

/// Sizes count by their order of magnitude; what is not known lies in the middle of nothing.
fn tamed(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.signum() * value.abs().ln_1p() }
}

impl Memory {
    pub fn fit(lesson: &Lesson<'_>, seed: u64) -> Result<Self> {
        let boosted = Trees::fit(lesson, seed)?;
        let raw = boosted.view().rows(&lesson.runs);
        let settings = ExtraTreesSettings { seed, ..ExtraTreesSettings::default() };
        let weights = lesson.class_weights();
        let sample = LabelledPoints {
            points: &raw,
            classes: &lesson.classes,
            weights: &weights,
            n_classes: lesson.n_classes,
        };
        let randomised = ExtraTrees::fit(sample, settings, &Stop::default())?;
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
        Ok(Self { randomised, boosted, rows, deviations, distances })
    }

    /// Two kinds of trees, each with half of the say.
    pub fn chances(&self, run: &WorkflowRun) -> Vec<f64> {
        let row = self.boosted.view().row(run);
        let (one, other) = (self.randomised.probabilities(&row), self.boosted.chances_of_row(&row));
        one.iter().zip(other).map(|(one, other)| (one + other) / 2.0).collect()
    }

    /// The share of remembered runs that are nearer to others than this one is to any: above nearly all, it is new.
    pub fn novelty(&self, run: &WorkflowRun) -> f64 {
        let row = self.boosted.view().row(run);
        let row: Vec<f32> =
            row.iter().zip(&self.deviations).map(|(value, deviation)| tamed(*value) / deviation).collect();
        let found = distance(&self.rows, &row, None);
        self.distances.partition_point(|known| *known < found) as f64 / self.distances.len().max(1) as f64
    }

    pub fn settings(&self) -> serde_json::Value {
        self.boosted.settings()
    }

    pub fn tensors(&self) -> Tensors {
        let rows =
            Tensor::new(vec![self.rows.n_rows(), self.rows.n_columns()], self.rows.as_slice().to_vec());
        let own = [
            ("rows", rows),
            ("deviations", Tensor::row(self.deviations.clone())),
            ("distances", Tensor::row(self.distances.clone())),
        ];
        let own = own.map(|(name, tensor)| (name.to_owned(), tensor)).into_iter();
        own.chain(within("randomised", self.randomised.tensors()))
            .chain(within("boosted", self.boosted.tensors()))
            .collect()
    }

    pub fn restore(settings: &serde_json::Value, tensors: &Tensors) -> Option<Self> {
        let values = |name: &str| tensors.get(name).and_then(Tensor::as_f32).map(<[f32]>::to_vec);
        let boosted = Trees::restore(settings, &part_of(tensors, "boosted"))?;
        let n_columns = boosted.view().features.len();
        let randomised = ExtraTrees::restore(&part_of(tensors, "randomised"), n_columns).ok()?;
        let (rows, deviations, distances) = (values("rows")?, values("deviations")?, values("distances")?);
        let fits = n_columns > 0 && rows.len().is_multiple_of(n_columns) && deviations.len() == n_columns;
        fits.then(|| Self { randomised, boosted, rows: Matrix::new(rows, n_columns), deviations, distances })
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
        let found = squared_distance(row, other) as f32;
        if let Some(place) = nearest.iter().position(|known| found < *known) {
            nearest[place..].rotate_right(1);
            nearest[place] = found;
        }
    }
    nearest[NEIGHBOUR - 1].sqrt()
}
