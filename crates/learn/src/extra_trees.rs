//! Extremely randomised trees (Geurts et al., 2006): many deep trees, each split the best of a few drawn at
//! random. The class probabilities are the mean over the trees, so they are less certain for points unlike
//! the training set.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use workload::{Stop, Stopped};

use crate::Matrix;
use crate::artifact::{Tensor, Tensors};
use crate::trees::{self, Node, Split, Tree, TreesError};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExtraTreesSettings {
    pub n_trees: usize,
    /// Nodes with fewer points are not split.
    #[serde(alias = "least_split")]
    pub min_split: usize,
    pub seed: u64,
}

impl Default for ExtraTreesSettings {
    fn default() -> Self {
        Self { n_trees: 300, min_split: 2, seed: 0 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExtraTreesError {
    #[error("{n_points} points, {n_classes} classes and {n_weights} weights do not belong together")]
    Lengths { n_points: usize, n_classes: usize, n_weights: usize },
    #[error("class {class} is not below the number of classes, {n_classes}")]
    Class { class: usize, n_classes: usize },
    #[error("there are no points to train on")]
    Empty,
    #[error(transparent)]
    Trees(#[from] TreesError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExtraTrees {
    n_classes: usize,
    /// Class probabilities, one row per kind of leaf; most leaves are of one class and share a row.
    distributions: Vec<Vec<f32>>,
    /// The value of a leaf is the number of its row of probabilities.
    trees: Vec<Tree>,
}

/// Points to train on, each with its class (a number below `n_classes`) and its weight.
#[derive(Debug, Clone, Copy)]
pub struct LabelledPoints<'a> {
    pub points: &'a Matrix,
    pub classes: &'a [usize],
    pub weights: &'a [f64],
    pub n_classes: usize,
}

/// A tree while it grows.
enum GrownNode {
    /// Points below the threshold go to the next node, the others to `above`.
    Split { column: u32, threshold: f32, above: u32 },
    /// The probabilities of the classes.
    Leaf(Vec<f32>),
}

/// Missing values (NaN) are treated as this, which is below all others.
const MISSING: f32 = f32::MIN;

impl LabelledPoints<'_> {
    fn check(&self) -> Result<(), ExtraTreesError> {
        let (n_points, n_weights) = (self.points.n_rows(), self.weights.len());
        if self.classes.len() != n_points || n_weights != n_points {
            let n_classes = self.classes.len();
            return Err(ExtraTreesError::Lengths { n_points, n_classes, n_weights });
        }
        if n_points == 0 {
            return Err(ExtraTreesError::Empty);
        }
        match self.classes.iter().find(|class| **class >= self.n_classes) {
            Some(class) => Err(ExtraTreesError::Class { class: *class, n_classes: self.n_classes }),
            None => Ok(()),
        }
    }

    fn value(&self, point: usize, column: usize) -> f32 {
        let value = self.points.row(point)[column];
        if value.is_nan() { MISSING } else { value }
    }

    fn totals(&self, points: &[usize]) -> Vec<f64> {
        let mut totals = vec![0.0; self.n_classes];
        points.iter().for_each(|point| totals[self.classes[*point]] += self.weights[*point]);
        totals
    }
}

/// The weight of some points times their Gini impurity.
fn impurity(totals: &[f64]) -> f64 {
    let sum: f64 = totals.iter().sum();
    if sum <= 0.0 { 0.0 } else { sum - totals.iter().map(|total| total * total).sum::<f64>() / sum }
}

impl ExtraTrees {
    /// Fits the trees in parallel; the same seed gives the same trees. Checks `stop` before each tree.
    pub fn fit(
        sample: LabelledPoints<'_>,
        settings: ExtraTreesSettings,
        stop: &Stop,
    ) -> Result<Self, ExtraTreesError> {
        sample.check()?;
        let grow_tree = |tree: usize| {
            stop.check()?;
            let seed = settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(tree as u64);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut nodes = Vec::new();
            let mut all: Vec<usize> = (0..sample.points.n_rows()).collect();
            grow(&sample, &mut all, settings.min_split, &mut nodes, &mut rng);
            Ok(nodes)
        };
        let grown: Result<Vec<Vec<GrownNode>>, Stopped> =
            (0..settings.n_trees).into_par_iter().map(grow_tree).collect();
        let mut distributions = Distributions::default();
        let trees: Result<Vec<Tree>, TreesError> = grown?
            .into_iter()
            .enumerate()
            .map(|(number, nodes)| {
                let nodes = nodes.into_iter().enumerate().map(|(at, node)| distributions.node(at, node));
                Tree::new(nodes.collect(), sample.points.n_columns(), number)
            })
            .collect();
        Ok(Self { n_classes: sample.n_classes, trees: trees?, distributions: distributions.rows })
    }

    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// The probability of each class.
    pub fn probabilities(&self, row: &[f32]) -> Vec<f64> {
        let mut sum = vec![0.0; self.n_classes];
        for tree in &self.trees {
            let probabilities = &self.distributions[tree.leaf(row) as usize];
            for (sum, probability) in sum.iter_mut().zip(probabilities) {
                *sum += f64::from(*probability);
            }
        }
        for sum in &mut sum {
            *sum /= self.trees.len().max(1) as f64;
        }
        sum
    }

    pub fn tensors(&self) -> Tensors {
        let mut tensors = trees::to_tensors(&self.trees);
        let shape = vec![self.distributions.len(), self.n_classes];
        tensors.insert(DISTRIBUTIONS.into(), Tensor::new(shape, self.distributions.concat()));
        tensors
    }

    /// The trees that [`ExtraTrees::tensors`] stored, for points of `n_features` columns.
    pub fn restore(tensors: &Tensors, n_features: usize) -> Result<Self, TreesError> {
        let invalid = || TreesError::Tensor(DISTRIBUTIONS);
        let stored = tensors.get(DISTRIBUTIONS).ok_or_else(invalid)?;
        let [_, n_classes @ (1..)] = *stored.shape() else { return Err(invalid()) };
        let values = stored.as_f32().ok_or_else(invalid)?;
        if values.iter().any(|value| !(0.0..=1.0).contains(value)) {
            return Err(invalid());
        }
        let distributions: Vec<Vec<f32>> = values.chunks_exact(n_classes).map(<[f32]>::to_vec).collect();
        let trees = trees::from_tensors(tensors, n_features)?;
        for (number, tree) in trees.iter().enumerate() {
            for (node, value) in tree.leaves() {
                if value.fract() != 0.0 || !(0.0..distributions.len() as f32).contains(&value) {
                    return Err(TreesError::Value { tree: number, node, value });
                }
            }
        }
        Ok(Self { n_classes, distributions, trees })
    }
}

/// The name of the tensor of class probabilities.
const DISTRIBUTIONS: &str = "shares";

/// The different class probabilities of leaves.
#[derive(Default)]
struct Distributions {
    rows: Vec<Vec<f32>>,
    by_bits: HashMap<Vec<u32>, usize>,
}

impl Distributions {
    /// A node in its stored form.
    fn node(&mut self, at: usize, node: GrownNode) -> Node {
        match node {
            GrownNode::Split { column, threshold, above } => {
                let next = at as u32 + 1;
                let split = Split { column, threshold, below: next, above, missing: next };
                Node { value: 0.0, split: Some(split) }
            }
            GrownNode::Leaf(probabilities) => {
                let bits = probabilities.iter().map(|probability| probability.to_bits()).collect();
                let row = *self.by_bits.entry(bits).or_insert_with(|| {
                    self.rows.push(probabilities);
                    self.rows.len() - 1
                });
                Node { value: row as f32, split: None }
            }
        }
    }
}

/// Adds the node of some points and everything below it; returns its index.
fn grow(
    sample: &LabelledPoints<'_>,
    points: &mut [usize],
    min_split: usize,
    nodes: &mut Vec<GrownNode>,
    rng: &mut Xoshiro256PlusPlus,
) -> u32 {
    let at = nodes.len();
    let totals = sample.totals(points);
    let sum: f64 = totals.iter().sum();
    nodes.push(GrownNode::Leaf(
        totals.iter().map(|total| (total / sum.max(f64::MIN_POSITIVE)) as f32).collect(),
    ));
    let is_pure = totals.iter().filter(|total| **total > 0.0).count() < 2;
    if is_pure || points.len() < min_split.max(2) {
        return at as u32;
    }
    let Some((column, threshold)) = split(sample, points, &totals, rng) else { return at as u32 };
    let mut n_below = 0;
    for index in 0..points.len() {
        if sample.value(points[index], column) < threshold {
            points.swap(index, n_below);
            n_below += 1;
        }
    }
    let (first, second) = points.split_at_mut(n_below);
    grow(sample, first, min_split, nodes, rng);
    let above = grow(sample, second, min_split, nodes, rng);
    nodes[at] = GrownNode::Split { column: column as u32, threshold, above };
    at as u32
}

/// The best of √(number of columns) random splits.
fn split(
    sample: &LabelledPoints<'_>,
    points: &[usize],
    totals: &[f64],
    rng: &mut Xoshiro256PlusPlus,
) -> Option<(usize, f32)> {
    let n_columns = sample.points.n_columns();
    let wanted = (n_columns as f64).sqrt().ceil() as usize;
    let mut order: Vec<usize> = (0..n_columns).collect();
    let mut best: Option<(f64, usize, f32)> = None;
    let mut n_tried = 0;
    for drawn in 0..n_columns {
        let other = rng.random_range(drawn..n_columns);
        order.swap(drawn, other);
        let column = order[drawn];
        let (mut least, mut most) = (f32::INFINITY, f32::NEG_INFINITY);
        for point in points {
            let value = sample.value(*point, column);
            least = least.min(value);
            most = most.max(value);
        }
        if least >= most {
            continue;
        }
        let share: f64 = rng.random();
        let threshold = (f64::from(least) + share * (f64::from(most) - f64::from(least))) as f32;
        let threshold = if threshold > least && threshold <= most { threshold } else { most };
        let mut below = vec![0.0; sample.n_classes];
        for point in points.iter().filter(|point| sample.value(**point, column) < threshold) {
            below[sample.classes[*point]] += sample.weights[*point];
        }
        let above: Vec<f64> = totals.iter().zip(&below).map(|(all, below)| all - below).collect();
        let left = impurity(&below) + impurity(&above);
        if best.as_ref().is_none_or(|(known, ..)| left < *known) {
            best = Some((left, column, threshold));
        }
        n_tried += 1;
        if n_tried >= wanted {
            break;
        }
    }
    best.map(|(_, column, threshold)| (column, threshold))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings() -> (Matrix, Vec<usize>) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut classes = Vec::new();
        let values = (0..600).flat_map(|_| {
            let (x, y): (f32, f32) = (rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0));
            classes.push(usize::from(x * x + y * y > 0.5));
            [x, y, rng.random()]
        });
        (Matrix::new(values.collect(), 3), classes)
    }

    #[test]
    fn classes_that_no_line_separates_are_classified() {
        let (points, classes) = rings();
        let train: Vec<usize> = (0..400).collect();
        let weights = vec![1.0; 400];
        let settings = ExtraTreesSettings { n_trees: 60, ..ExtraTreesSettings::default() };
        let train = points.select(&train);
        let sample =
            LabelledPoints { points: &train, classes: &classes[..400], weights: &weights, n_classes: 2 };
        let trees = ExtraTrees::fit(sample, settings, &Stop::default()).unwrap();
        let is_right = |at: &usize| (trees.probabilities(points.row(*at))[1] > 0.5) == (classes[*at] == 1);
        let n_right = (400..600).filter(is_right).count();
        assert!(n_right > 180, "{n_right} of 200");
        let again = ExtraTrees::fit(sample, settings, &Stop::default()).unwrap();
        assert_eq!(trees, again, "the same seed gives the same trees");
        assert_eq!(ExtraTrees::restore(&trees.tensors(), 3), Ok(trees), "restored trees are the same");
    }

    #[test]
    fn a_leaf_without_probabilities_is_rejected() {
        let points = Matrix::new(vec![1.0, 2.0], 1);
        let sample = LabelledPoints { points: &points, classes: &[0, 1], weights: &[1.0; 2], n_classes: 2 };
        let settings = ExtraTreesSettings { n_trees: 2, ..ExtraTreesSettings::default() };
        let mut tensors = ExtraTrees::fit(sample, settings, &Stop::default()).unwrap().tensors();
        assert!(ExtraTrees::restore(&tensors, 1).is_ok());
        assert!(ExtraTrees::restore(&tensors, 0).is_err());
        tensors.insert(DISTRIBUTIONS.into(), Tensor::new(vec![1, 2], vec![0.5f32, 0.5]));
        assert!(matches!(ExtraTrees::restore(&tensors, 1), Err(TreesError::Value { .. })));
        tensors.insert(DISTRIBUTIONS.into(), Tensor::row(vec![0.5f32, 0.5]));
        assert_eq!(ExtraTrees::restore(&tensors, 1), Err(TreesError::Tensor(DISTRIBUTIONS)));
    }

    #[test]
    fn samples_that_cannot_be_fitted_and_a_stop_are_errors() {
        let points = Matrix::new(vec![1.0, 2.0], 1);
        let fit = |classes: &[usize], stop: &Stop| {
            let sample = LabelledPoints { points: &points, classes, weights: &[1.0; 2], n_classes: 2 };
            ExtraTrees::fit(sample, ExtraTreesSettings::default(), stop).unwrap_err()
        };
        assert!(matches!(fit(&[0], &Stop::default()), ExtraTreesError::Lengths { .. }));
        assert!(matches!(fit(&[0, 2], &Stop::default()), ExtraTreesError::Class { class: 2, n_classes: 2 }));
        let stop = Stop::default();
        stop.now();
        assert!(matches!(fit(&[0, 1], &stop), ExtraTreesError::Stopped(_)));
        let none = Matrix::new(Vec::new(), 1);
        let sample = LabelledPoints { points: &none, classes: &[], weights: &[], n_classes: 2 };
        let error = ExtraTrees::fit(sample, ExtraTreesSettings::default(), &Stop::default()).unwrap_err();
        assert!(matches!(error, ExtraTreesError::Empty));
    }

    #[test]
    fn missing_values_are_a_value_of_their_own() {
        let points = Matrix::new(vec![f32::NAN, 1.0, f32::NAN, 2.0, f32::NAN, 3.0], 1);
        let classes = [1, 0, 1, 0, 1, 0];
        let sample = LabelledPoints { points: &points, classes: &classes, weights: &[1.0; 6], n_classes: 2 };
        let trees = ExtraTrees::fit(sample, ExtraTreesSettings::default(), &Stop::default()).unwrap();
        assert!(trees.probabilities(&[f32::NAN])[1] > 0.99 && trees.probabilities(&[2.5])[0] > 0.99);
    }
}
