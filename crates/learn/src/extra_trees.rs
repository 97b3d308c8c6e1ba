//! Extremely randomised trees (Geurts et al., 2006): many deep trees, each split the best of a few drawn at random. Their
//! votes are shared chances, which are less sure of what is unlike all that was learnt.

use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Matrix;
use crate::artifact::{Tensor, Tensors};

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

#[derive(Debug, Clone, PartialEq)]
enum Node {
    /// Points below the threshold go to the next node, the others to `above`.
    Split { column: u32, threshold: f32, above: u32 },
    /// Shares of the classes.
    Leaf(Vec<f32>),
}

#[derive(Debug, Clone, PartialEq)]
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
                Node::Split { column, threshold, above } => {
                    let value = row[*column as usize];
                    let value = if value.is_nan() { UNKNOWN } else { value };
                    at = if value < *threshold { at + 1 } else { *above as usize };
                }
            }
        }
    }

    /// All of it as numbers, to be kept: of a node its column, its threshold and where the others go; of a leaf minus one, and
    /// which row of shares is its own.
    pub fn tensors(&self) -> Tensors {
        let (mut nodes, mut sizes, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        // Most leaves are of one class.
        let mut known: HashMap<Vec<u32>, usize> = HashMap::new();
        for tree in &self.trees {
            sizes.push(tree.len() as f32);
            for node in tree {
                match node {
                    Node::Split { column, threshold, above } => {
                        nodes.extend([*column as f32, *threshold, *above as f32])
                    }
                    Node::Leaf(of) => {
                        let bits = of.iter().map(|share| share.to_bits()).collect();
                        let at = *known.entry(bits).or_insert_with(|| {
                            shares.extend_from_slice(of);
                            shares.len() / self.n_classes - 1
                        });
                        nodes.extend([LEAF, 0.0, at as f32]);
                    }
                }
            }
        }
        let nodes = Tensor { shape: vec![nodes.len() / NODE, NODE], values: nodes };
        let shares =
            Tensor { shape: vec![shares.len() / self.n_classes.max(1), self.n_classes], values: shares };
        [("sizes", Tensor::row(sizes)), ("nodes", nodes), ("shares", shares)]
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .into()
    }

    /// Nothing, if the numbers make no trees.
    pub fn restore(tensors: &Tensors) -> Option<Self> {
        let shares = tensors.get("shares")?;
        let n_classes = *shares.shape.get(1).filter(|count| **count > 0)?;
        let shares: Vec<&[f32]> = shares.values.chunks_exact(n_classes).collect();
        let mut rows = tensors.get("nodes")?.values.chunks_exact(NODE);
        let mut trees = Vec::new();
        for size in &tensors.get("sizes")?.values {
            let size = *size as usize;
            let mut nodes = Vec::with_capacity(size);
            for at in 0..size {
                let [column, threshold, third] = *rows.next()? else { return None };
                let third = third as usize;
                nodes.push(match column == LEAF {
                    true => Node::Leaf(shares.get(third)?.to_vec()),
                    // Every way leads forward, and so to a leaf.
                    false if third > at && third < size => {
                        Node::Split { column: column as u32, threshold, above: third as u32 }
                    }
                    false => return None,
                });
            }
            trees.push(nodes);
        }
        Some(Self { n_classes, trees })
    }
}

/// The column of a node that is a leaf.
const LEAF: f32 = -1.0;
/// Numbers that a node is kept as.
const NODE: usize = 3;

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
    grow(sample, first, least_split, nodes, rng);
    let above = grow(sample, second, least_split, nodes, rng);
    nodes[at] = Node::Split { column: column as u32, threshold, above };
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
        assert_eq!(ExtraTrees::restore(&trees.tensors()), Some(trees), "and they can be kept");
    }

    #[test]
    fn what_is_not_known_is_a_value_of_its_own() {
        let points = Matrix::new(vec![f32::NAN, 1.0, f32::NAN, 2.0, f32::NAN, 3.0], 1);
        let trees =
            ExtraTrees::fit(&points, &[1, 0, 1, 0, 1, 0], &[1.0; 6], 2, ExtraTreesSettings::default());
        assert!(trees.chances(&[f32::NAN])[1] > 0.99 && trees.chances(&[2.5])[0] > 0.99);
    }
}
