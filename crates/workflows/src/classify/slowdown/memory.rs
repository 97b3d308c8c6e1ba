//! The view that remembers the training set: which classes similar runs had, and whether a run is similar to any.

use learn::Matrix;
use learn::artifact::restore::{RestoreError, ensure, expect, expect_rows, expect_vector};
use learn::artifact::{Tensor, Tensors, part_of, within};
use learn::extra_trees::{ExtraTrees, ExtraTreesSettings, LabelledPoints};
use learn::stats::squared_distance;
use rayon::prelude::*;
use workload::Stop;

use crate::classify::trees::Trees;
use crate::classify::{Classifier, TrainingSet};
use crate::error::Result;
use crate::features::{Feature, RunSummary};

/// The distance to this nearest neighbour measures novelty.
const NEIGHBOUR: usize = 3;
/// Added to every standard deviation, because smaller differences of logarithms have no meaning.
const MIN_STD_DEV: f32 = 1e-3;

pub struct Memory {
    extra_trees: ExtraTrees,
    boosted: Trees,
    /// Training runs, scaled by the standard deviation within batches.
    rows: Matrix,
    std_devs: Vec<f32>,
    /// The distance of each training run to its third-nearest neighbour, sorted.
    distances: Vec<f32>,
}

/// Signed log1p; missing values become 0.
fn compressed(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.signum() * value.abs().ln_1p() }
}

impl Memory {
    pub fn fit(training: &TrainingSet<'_>, seed: u64, stop: &Stop) -> Result<Self> {
        let boosted = Trees::fit(training, seed, stop)?;
        stop.check()?;
        let raw = boosted.features().rows(&training.runs);
        let settings = ExtraTreesSettings { seed, ..ExtraTreesSettings::default() };
        let sample = LabelledPoints {
            points: &raw,
            classes: &training.classes,
            weights: &training.class_weights(),
            n_classes: training.n_classes,
        };
        let extra_trees = ExtraTrees::fit(sample, settings, stop)?;
        let mut rows: Vec<Vec<f32>> =
            raw.rows().map(|row| row.iter().map(|value| compressed(*value)).collect()).collect();
        let std_devs = within_batch_std_devs(&rows, training);
        for row in &mut rows {
            for (value, std_dev) in row.iter_mut().zip(&std_devs) {
                *value /= std_dev;
            }
        }
        let rows = Matrix::new(rows.concat(), raw.n_columns());
        let mut distances: Vec<f32> = (0..rows.n_rows())
            .into_par_iter()
            .map(|at| neighbour_distance(&rows, rows.row(at), Some(at)))
            .collect();
        distances.sort_by(f32::total_cmp);
        Ok(Self { extra_trees, boosted, rows, std_devs, distances })
    }

    /// The mean of the probabilities of extra trees and boosted trees.
    pub fn probabilities(&self, run: &RunSummary<'_>) -> Vec<f64> {
        let row = self.boosted.features().row(run);
        let (one, other) = (self.extra_trees.probabilities(&row), self.boosted.row_probabilities(&row));
        one.iter().zip(other).map(|(one, other)| (one + other) / 2.0).collect()
    }

    /// The contribution of each feature to a class, from the boosted trees.
    pub fn evidence(&self, run: &RunSummary<'_>, class: usize) -> Vec<(Feature, f64)> {
        self.boosted.contributions(&self.boosted.features().row(run), class)
    }

    /// The fraction of training runs that are nearer to the rest of the training set than this run is.
    pub fn novelty(&self, run: &RunSummary<'_>) -> f64 {
        let row = self.boosted.features().row(run);
        let row: Vec<f32> =
            row.iter().zip(&self.std_devs).map(|(value, std_dev)| compressed(*value) / std_dev).collect();
        let found = neighbour_distance(&self.rows, &row, None);
        self.distances.partition_point(|known| *known < found) as f64 / self.distances.len().max(1) as f64
    }

    pub fn n_classes(&self) -> usize {
        self.boosted.n_classes()
    }

    pub fn settings(&self) -> serde_json::Value {
        self.boosted.settings()
    }

    pub fn tensors(&self) -> Tensors {
        let shape = vec![self.rows.n_rows(), self.rows.n_columns()];
        let rows = Tensor::new(shape, self.rows.as_slice().to_vec());
        let own = [
            ("rows", rows),
            ("deviations", Tensor::row(self.std_devs.clone())),
            ("distances", Tensor::row(self.distances.clone())),
        ];
        let own = own.map(|(name, tensor)| (name.to_owned(), tensor)).into_iter();
        own.chain(within("randomised", self.extra_trees.tensors()))
            .chain(within("boosted", self.boosted.tensors()))
            .collect()
    }

    pub fn restore(
        settings: &serde_json::Value,
        tensors: &Tensors,
    ) -> std::result::Result<Self, RestoreError> {
        let boosted = Trees::restore(settings, &part_of(tensors, "boosted"))?;
        let n_columns = boosted.features().features.len();
        let extra_trees = ExtraTrees::restore(&part_of(tensors, "randomised"), n_columns)?;
        ensure(extra_trees.n_classes() == boosted.n_classes(), "its trees are for different classes")?;
        let rows = Matrix::new(expect_rows(tensors, "rows", n_columns)?.to_vec(), n_columns);
        let std_devs = expect(tensors, "deviations", &[n_columns])?.to_vec();
        ensure(std_devs.iter().all(|std_dev| *std_dev > 0.0), "a standard deviation is not positive")?;
        let distances = expect_vector(tensors, "distances")?.to_vec();
        ensure(distances.is_sorted(), "the distances of its runs are not in order")?;
        Ok(Self { extra_trees, boosted, rows, std_devs, distances })
    }
}

/// The standard deviation of each feature within batches, or within classes where batches are unknown.
fn within_batch_std_devs(rows: &[Vec<f32>], training: &TrainingSet<'_>) -> Vec<f32> {
    let n_columns = rows.first().map_or(0, Vec::len);
    let group = |at: usize| (training.batches[at], training.classes[at]);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| group(*at));
    let mut squares = vec![0.0f32; n_columns];
    for members in order.chunk_by(|a, b| group(*a) == group(*b)) {
        for (column, square) in squares.iter_mut().enumerate() {
            let mean = members.iter().map(|at| rows[*at][column]).sum::<f32>() / members.len() as f32;
            *square += members.iter().map(|at| (rows[*at][column] - mean).powi(2)).sum::<f32>();
        }
    }
    squares.into_iter().map(|square| (square / rows.len().max(1) as f32).sqrt() + MIN_STD_DEV).collect()
}

/// The distance to the third-nearest row.
fn neighbour_distance(rows: &Matrix, row: &[f32], except: Option<usize>) -> f32 {
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
