//! Gradient-boosted trees for two classes, and the classifier two-sample test built on them. `forust-ml` fits
//! the trees; scoring, contributions and storage are here.

use forust_ml::constraints::Constraint;
use forust_ml::objective::ObjectiveType;
use forust_ml::{GradientBooster, Matrix as Columns};
use workload::{Stop, Stopped};

use crate::artifact::{Tensor, Tensors, part_of, within};
use crate::trees::{self, Node, Split, Tree, TreesError};
use crate::{Matrix, TooFewPoints};

#[derive(Debug, thiserror::Error)]
pub enum BoostError {
    #[error("trees cannot be fitted: {0}")]
    Fit(String),
    #[error("{0}")]
    Folds(&'static str),
    #[error("{n_points} points, {n_classes} classes and {n_weights} weights do not belong together")]
    Lengths { n_points: usize, n_classes: usize, n_weights: usize },
    #[error(transparent)]
    Empty(#[from] TooFewPoints),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoostSettings {
    pub n_trees: usize,
    pub depth: usize,
    /// The learning rate: the weight of each tree.
    pub rate: f32,
    /// The minimum sum of Hessians in a leaf; a point contributes p(1 − p) ≤ ¼.
    pub least_leaf: f32,
    /// Whether a larger value of any column can only raise the score.
    pub is_monotone: bool,
    pub seed: u64,
}

impl Default for BoostSettings {
    /// Many small trees with a low learning rate, for samples of a few hundred points.
    fn default() -> Self {
        Self { n_trees: 150, depth: 4, rate: 0.1, least_leaf: 1.0, is_monotone: false, seed: 0 }
    }
}

/// An additive model of trees that separates two classes.
#[derive(Debug, Clone, PartialEq)]
pub struct BoostedTrees {
    /// The score before any tree.
    base: f32,
    /// The value of a node is what the tree adds to the score of a point that ends there.
    trees: Vec<Tree>,
}

impl BoostedTrees {
    pub fn fit(points: &Matrix, is_positive: &[bool], seed: u64) -> Result<Self, BoostError> {
        let weights = vec![1.0; is_positive.len()];
        Self::fit_weighted(points, is_positive, &weights, BoostSettings { seed, ..BoostSettings::default() })
    }

    /// Fits with a weight per point. Samples are small, so a fit takes well under a second; a caller that fits
    /// many models checks for cancellation in between.
    pub fn fit_weighted(
        points: &Matrix,
        is_positive: &[bool],
        weights: &[f64],
        settings: BoostSettings,
    ) -> Result<Self, BoostError> {
        let (n_points, n_classes, n_weights) = (points.n_rows(), is_positive.len(), weights.len());
        TooFewPoints::check(n_points, 1)?;
        if n_classes != n_points || n_weights != n_points {
            return Err(BoostError::Lengths { n_points, n_classes, n_weights });
        }
        let values = by_column(points);
        let targets: Vec<f64> =
            is_positive.iter().map(|is_positive| f64::from(u8::from(*is_positive))).collect();
        let only_more = || (0..points.n_columns()).map(|column| (column, Constraint::Positive)).collect();
        let mut trees = GradientBooster::default()
            .set_objective_type(ObjectiveType::LogLoss)
            .set_iterations(settings.n_trees)
            .set_max_depth(settings.depth)
            .set_learning_rate(settings.rate)
            .set_min_leaf_weight(settings.least_leaf)
            .set_monotone_constraints(settings.is_monotone.then(only_more))
            .set_parallel(false)
            .set_seed(settings.seed);
        trees
            .fit(&Columns::new(&values, points.n_rows(), points.n_columns()), &targets, weights, None)
            .map_err(|error| BoostError::Fit(error.to_string()))?;
        let base = trees.base_score as f32;
        let trees: Result<Vec<Tree>, TreesError> = trees
            .trees
            .iter()
            .enumerate()
            .map(|(number, tree)| converted(tree, number, points.n_columns()))
            .collect();
        let trees = trees.map_err(|error| BoostError::Fit(error.to_string()))?;
        Ok(Self { base, trees })
    }

    /// The log-odds of the positive class, for each point.
    pub fn scores(&self, points: &Matrix) -> Vec<f64> {
        points.rows().map(|row| self.score(row)).collect()
    }

    /// The log-odds of the positive class.
    pub fn score(&self, row: &[f32]) -> f64 {
        f64::from(self.base) + self.trees.iter().map(|tree| f64::from(tree.leaf(row))).sum::<f64>()
    }

    /// How much each column adds to the score of a point, and last the score without any column: at
    /// every split on the way, the change of the node's value is credited to the column (Saabas, 2014).
    pub fn contributions(&self, row: &[f32]) -> Vec<f64> {
        let mut parts = vec![0.0; row.len() + 1];
        parts[row.len()] = f64::from(self.base);
        for tree in &self.trees {
            let mut credited = row.len();
            let mut before = 0.0;
            for node in tree.path(row) {
                parts[credited] += f64::from(node.value - before);
                before = node.value;
                credited = node.split.map_or(credited, |split| split.column as usize);
            }
        }
        parts
    }

    pub fn tensors(&self) -> Tensors {
        let mut tensors = trees::to_tensors(&self.trees);
        tensors.insert("base".into(), Tensor::row(vec![self.base]));
        tensors
    }

    /// The trees that [`BoostedTrees::tensors`] stored, for points of `n_features` columns.
    pub fn restore(tensors: &Tensors, n_features: usize) -> Result<Self, TreesError> {
        let base = tensors.get("base").and_then(Tensor::as_f32).and_then(|values| values.first());
        let base = *base.filter(|base| base.is_finite()).ok_or(TreesError::Tensor("base"))?;
        Ok(Self { base, trees: trees::from_tensors(tensors, n_features)? })
    }
}

fn converted(tree: &forust_ml::tree::Tree, number: usize, n_features: usize) -> Result<Tree, TreesError> {
    // The library numbers nodes in the order of their creation, so children come after their parents.
    let nodes = tree.nodes.iter().map(|node| Node {
        value: node.weight_value,
        split: (!node.is_leaf).then_some(Split {
            column: node.split_feature as u32,
            threshold: node.split_value as f32,
            below: node.left_child as u32,
            above: node.right_child as u32,
            missing: node.missing_node as u32,
        }),
    });
    Tree::new(nodes.collect(), n_features, number)
}

/// The tensors of several models, each prefixed with the name and its number.
pub fn tensors_of(name: &str, all: &[BoostedTrees]) -> Tensors {
    let one = |(at, trees): (usize, &BoostedTrees)| {
        within(&format!("{name}{at}"), trees.tensors()).collect::<Vec<_>>()
    };
    all.iter().enumerate().flat_map(one).collect()
}

/// The models that [`tensors_of`] stored, for points of `n_features` columns.
pub fn restore_all(
    name: &str,
    tensors: &Tensors,
    n_features: usize,
) -> Result<Vec<BoostedTrees>, TreesError> {
    let parts = (0..).map(|at| part_of(tensors, &format!("{name}{at}"))).take_while(|part| !part.is_empty());
    parts.map(|part| BoostedTrees::restore(&part, n_features)).collect()
}

fn by_column(points: &Matrix) -> Vec<f64> {
    let column = |column: usize| points.rows().map(move |row| f64::from(row[column]));
    (0..points.n_columns()).flat_map(column).collect()
}

/// A classifier two-sample test (Lopez-Paz and Oquab, 2017): each fold is scored by trees fitted to the others.
///
/// Points that depend on each other have to be in one fold. Returns a score for every point; the area under
/// the ROC curve is one half if the two samples have the same distribution, and one if they can always be
/// distinguished. Checks `stop` before each fold.
pub fn two_sample_scores(
    points: &Matrix,
    is_second: &[bool],
    folds: &[usize],
    seed: u64,
    stop: &Stop,
) -> Result<Vec<f64>, BoostError> {
    let n_folds = folds.iter().max().map_or(0, |last| last + 1);
    if n_folds < 2 {
        return Err(BoostError::Folds("at least two folds are needed"));
    }
    let mut scores = vec![0.0; is_second.len()];
    for fold in 0..n_folds {
        stop.check()?;
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..folds.len()).partition(|index| folds[*index] == fold);
        let classes: Vec<bool> = outside.iter().map(|index| is_second[*index]).collect();
        if inside.is_empty() {
            continue;
        }
        if classes.iter().all(|class| *class == classes[0]) {
            return Err(BoostError::Folds("the other folds must contain points of both samples"));
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
        let scores = two_sample_scores(&points, &is_second, &folds, 0, &Stop::default()).unwrap();
        roc_auc(&scores, &is_second).unwrap()
    }

    #[test]
    fn equal_samples_cannot_be_distinguished_and_shifted_ones_can() {
        assert!((auc_of(0.0) - 0.5).abs() < 0.1, "{}", auc_of(0.0));
        assert!(auc_of(0.8) > 0.9, "{}", auc_of(0.8));
    }

    #[test]
    fn monotone_trees_have_monotone_scores_and_can_be_stored() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let values: Vec<f32> = (0..300).map(|_| rng.random()).collect();
        // The top is negative, which a monotone model cannot represent.
        let is_positive: Vec<bool> = values.iter().map(|value| (0.4..0.8).contains(value)).collect();
        let points = Matrix::new(values, 1);
        let settings = BoostSettings { is_monotone: true, ..BoostSettings::default() };
        let trees = BoostedTrees::fit_weighted(&points, &is_positive, &[1.0; 300], settings).unwrap();
        let line = Matrix::new((0..100).map(|at| at as f32 / 100.0).collect(), 1);
        let scores = trees.scores(&line);
        assert!(scores.windows(2).all(|pair| pair[0] <= pair[1]) && scores[99] > scores[0]);
        let kept = BoostedTrees::restore(&trees.tensors(), 1).unwrap();
        assert_eq!(kept.scores(&line), scores);
        let parts = trees.contributions(&[0.9]);
        assert!((parts.iter().sum::<f64>() - trees.scores(&Matrix::new(vec![0.9], 1))[0]).abs() < 1e-6);
    }

    #[test]
    fn samples_that_cannot_be_fitted_are_errors() {
        let points = Matrix::new(vec![1.0, 2.0], 1);
        assert!(matches!(BoostedTrees::fit(&points, &[true], 0), Err(BoostError::Lengths { .. })));
        let none = Matrix::new(Vec::new(), 1);
        assert!(matches!(BoostedTrees::fit(&none, &[], 0), Err(BoostError::Empty(_))));
        let stop = Stop::default();
        stop.now();
        let stopped = two_sample_scores(&points, &[true, false], &[0, 1], 0, &stop);
        assert!(matches!(stopped, Err(BoostError::Stopped(_))));
    }
}
