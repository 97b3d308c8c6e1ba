//! Gradient-boosted trees, and the test that they make: can what is synthetic be told from what is real?

use forust_ml::objective::ObjectiveType;
use forust_ml::{GradientBooster, Matrix as Columns};

use crate::Matrix;

#[derive(Debug, thiserror::Error)]
pub enum BoostError {
    #[error("trees could not be fitted: {0}")]
    Fit(String),
    #[error("{0}")]
    Folds(&'static str),
}

/// Trees are small and many, and each step is short: samples are a few hundred points.
const N_TREES: usize = 150;
const DEPTH: usize = 4;
const RATE: f32 = 0.1;

/// Trees that tell one class of points from another.
pub struct BoostedTrees(GradientBooster);

impl BoostedTrees {
    pub fn fit(points: &Matrix, is_positive: &[bool], seed: u64) -> Result<Self, BoostError> {
        let values = by_column(points);
        let targets: Vec<f64> =
            is_positive.iter().map(|is_positive| f64::from(u8::from(*is_positive))).collect();
        let mut trees = GradientBooster::default()
            .set_objective_type(ObjectiveType::LogLoss)
            .set_iterations(N_TREES)
            .set_max_depth(DEPTH)
            .set_learning_rate(RATE)
            .set_parallel(false)
            .set_seed(seed);
        trees
            .fit_unweighted(&Columns::new(&values, points.n_rows(), points.n_columns()), &targets, None)
            .map_err(|error| BoostError::Fit(error.to_string()))?;
        Ok(Self(trees))
    }

    /// Higher is more like the positive class.
    pub fn scores(&self, points: &Matrix) -> Vec<f64> {
        let values = by_column(points);
        self.0.predict(&Columns::new(&values, points.n_rows(), points.n_columns()), false)
    }
}

fn by_column(points: &Matrix) -> Vec<f64> {
    let column = |column: usize| points.rows().map(move |row| f64::from(row[column]));
    (0..points.n_columns()).flat_map(column).collect()
}

/// A classifier two-sample test: each fold is scored by trees that were fitted to the others.
///
/// Points that hang together have to be in one fold. Returns a score for every point; the area under
/// the curve is one half where the two samples are alike, and one where they can always be told apart.
pub fn two_sample_scores(
    points: &Matrix,
    is_second: &[bool],
    folds: &[usize],
    seed: u64,
) -> Result<Vec<f64>, BoostError> {
    let n_folds = folds.iter().max().map_or(0, |last| last + 1);
    if n_folds < 2 {
        return Err(BoostError::Folds("there have to be two folds at least"));
    }
    let mut scores = vec![0.0; is_second.len()];
    for fold in 0..n_folds {
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..folds.len()).partition(|index| folds[*index] == fold);
        let classes: Vec<bool> = outside.iter().map(|index| is_second[*index]).collect();
        if inside.is_empty() {
            continue;
        }
        if classes.iter().all(|class| *class == classes[0]) {
            return Err(BoostError::Folds("what is left without a fold has to have points of both samples"));
        }
        let trees = BoostedTrees::fit(&points.select(&outside), &classes, seed)?;
        for (index, score) in inside.iter().zip(trees.scores(&points.select(&inside))) {
            scores[*index] = score;
        }
    }
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::metrics::roc_auc;

    fn auc_of(shift: f32) -> f64 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let is_second: Vec<bool> = (0..600).map(|at| at % 2 == 1).collect();
        let folds: Vec<usize> = (0..600).map(|at| at / 2 % 3).collect();
        let values = is_second.iter().flat_map(|is_second| {
            let shift = if *is_second { shift } else { 0.0 };
            [rng.random::<f32>() + shift, rng.random::<f32>()]
        });
        let points = Matrix::new(values.collect(), 2);
        let scores = two_sample_scores(&points, &is_second, &folds, 0).unwrap();
        roc_auc(&scores, &is_second).unwrap()
    }

    #[test]
    fn samples_that_are_alike_cannot_be_told_apart_and_others_can() {
        assert!((auc_of(0.0) - 0.5).abs() < 0.1, "{}", auc_of(0.0));
        assert!(auc_of(0.8) > 0.9, "{}", auc_of(0.8));
    }
}
