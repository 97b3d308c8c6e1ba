//! Extremely randomised trees (Geurts et al., 2006): many deep trees, each split the best of a few drawn at random. Their
//! votes are shared chances, which are less sure of what is unlike all that was learnt.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Matrix;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExtraTreesSettings {
    pub n_trees: usize,
    /// Points below which a leaf is not split.
    pub least_split: usize,
    pub seed: u64,
}

impl Default for ExtraTreesSettings {
    fn default() -> Self {
        Self { n_trees: 300, least_split: 2, seed: 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Node {
    /// Points below the threshold go to `below`, the others to the node after it.
    Split { column: u32, threshold: f32, below: u32, above: u32 },
    /// Shares of the classes.
    Leaf(Vec<f32>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtraTrees {
    n_classes: usize,
    trees: Vec<Vec<Node>>,
}

/// What stands for a number that is not known: less than any that is.
const UNKNOWN: f32 = f32::MIN;

struct Sample<'a> {
    points: &'a Matrix,
    classes: &'a [usize],
    weights: &'a [f64],
    n_classes: usize,
}

impl Sample<'_> {
    fn value(&self, point: usize, column: usize) -> f32 {
        let value = self.points.row(point)[column];
        if value.is_nan() { UNKNOWN } else { value }
    }

    fn totals(&self, points: &[usize]) -> Vec<f64> {
        let mut totals = vec![0.0; self.n_classes];
        points.iter().for_each(|point| totals[self.classes[*point]] += self.weights[*point]);
        totals
    }
}

/// The weight of a group times how mixed it is (Gini).
fn mixed(totals: &[f64]) -> f64 {
    let sum: f64 = totals.iter().sum();
    if sum <= 0.0 { 0.0 } else { sum - totals.iter().map(|total| total * total).sum::<f64>() / sum }
}

impl ExtraTrees {
    /// `classes` are numbers from zero on; points count by their weights.
    ///
    /// # Panics
    /// If there is not one class and one weight for each point.
    pub fn fit(
        points: &Matrix,
        classes: &[usize],
        weights: &[f64],
        n_classes: usize,
        settings: ExtraTreesSettings,
    ) -> Self {
        assert!(
            classes.len() == points.n_rows() && weights.len() == classes.len(),
            "points and classes differ"
        );
        let sample = Sample { points, classes, weights, n_classes };
        let grow = |tree: usize| {
            let seed = settings.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(tree as u64);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut nodes = Vec::new();
            let mut all: Vec<usize> = (0..points.n_rows()).collect();
            grow(&sample, &mut all, settings.least_split, &mut nodes, &mut rng);
            nodes
        };
        Self { n_classes, trees: (0..settings.n_trees).into_par_iter().map(grow).collect() }
    }

    /// The chances of each class.
    pub fn chances(&self, row: &[f32]) -> Vec<f64> {
        let mut sum = vec![0.0; self.n_classes];
        for nodes in &self.trees {
            let shares = self.leaf(nodes, row);
            sum.iter_mut().zip(shares).for_each(|(sum, share)| *sum += f64::from(*share));
        }
        sum.iter_mut().for_each(|sum| *sum /= self.trees.len().max(1) as f64);
        sum
    }

    fn leaf<'a>(&self, nodes: &'a [Node], row: &[f32]) -> &'a [f32] {
        let mut at = 0;
        loop {
            match &nodes[at] {
                Node::Leaf(shares) => return shares,
                Node::Split { column, threshold, below, above } => {
                    let value = row[*column as usize];
                    let value = if value.is_nan() { UNKNOWN } else { value };
                    at = if value < *threshold { *below } else { *above } as usize;
                }
            }
        }
    }
}

/// Grows the node of some points; returns where it is.
fn grow(
    sample: &Sample<'_>,
    points: &mut [usize],
    least_split: usize,
    nodes: &mut Vec<Node>,
    rng: &mut Xoshiro256PlusPlus,
) -> u32 {
    let at = nodes.len();
    let totals = sample.totals(points);
    let sum: f64 = totals.iter().sum();
    nodes.push(Node::Leaf(totals.iter().map(|total| (total / sum.max(f64::MIN_POSITIVE)) as f32).collect()));
    let is_pure = totals.iter().filter(|total| **total > 0.0).count() < 2;
    if is_pure || points.len() < least_split.max(2) {
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
    let below = grow(sample, first, least_split, nodes, rng);
    let above = grow(sample, second, least_split, nodes, rng);
    nodes[at] = Node::Split { column: column as u32, threshold, below, above };
    at as u32
}

/// The best of as many random splits as the root of the number of columns.
fn split(
    sample: &Sample<'_>,
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
        let left = mixed(&below) + mixed(&above);
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
    fn what_no_line_divides_is_told_apart() {
        let (points, classes) = rings();
        let learnt: Vec<usize> = (0..400).collect();
        let weights = vec![1.0; 400];
        let settings = ExtraTreesSettings { n_trees: 60, ..ExtraTreesSettings::default() };
        let trees = ExtraTrees::fit(&points.select(&learnt), &classes[..400], &weights, 2, settings);
        let is_right = |at: &usize| (trees.chances(points.row(*at))[1] > 0.5) == (classes[*at] == 1);
        let n_right = (400..600).filter(is_right).count();
        assert!(n_right > 180, "{n_right} of 200");
        let again = ExtraTrees::fit(&points.select(&learnt), &classes[..400], &weights, 2, settings);
        assert_eq!(trees, again, "the same seed makes the same trees");
    }

    #[test]
    fn what_is_not_known_is_a_value_of_its_own() {
        let points = Matrix::new(vec![f32::NAN, 1.0, f32::NAN, 2.0, f32::NAN, 3.0], 1);
        let trees =
            ExtraTrees::fit(&points, &[1, 0, 1, 0, 1, 0], &[1.0; 6], 2, ExtraTreesSettings::default());
        assert!(trees.chances(&[f32::NAN])[1] > 0.99 && trees.chances(&[2.5])[0] > 0.99);
    }
}
