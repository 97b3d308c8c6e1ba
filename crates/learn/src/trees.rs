//! Decision trees as they are stored and followed. Boosted trees and extremely randomised trees share
//! this form and its validation: a tree that was read from a file always ends at a leaf and never looks
//! at a column that does not exist.

use crate::artifact::{Tensor, Tensors};

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TreesError {
    #[error("the tensor {0} is missing or has another type or shape")]
    Tensor(&'static str),
    #[error("tree {tree} has a size that is not possible")]
    Size { tree: usize },
    #[error("node {node} of tree {tree} leads to node {child}, which does not come after it in the tree")]
    Child { tree: usize, node: usize, child: u32 },
    #[error("node {node} of tree {tree} looks at column {column} of {n_features}")]
    Column { tree: usize, node: usize, column: u32, n_features: usize },
    #[error("node {node} of tree {tree} contains {value}, which is not possible there")]
    Value { tree: usize, node: usize, value: f32 },
}

/// Values below the threshold go to `below`, others to `above`, missing ones (NaN) to `missing`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    pub column: u32,
    pub threshold: f32,
    pub below: u32,
    pub above: u32,
    pub missing: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Node {
    pub value: f32,
    /// Nothing in a leaf.
    pub split: Option<Split>,
}

/// A valid tree: there is a root, children come after their parents, columns exist.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tree(Vec<Node>);

impl Tree {
    /// Checks the nodes; `number` is the tree's own, for errors.
    pub(crate) fn new(nodes: Vec<Node>, n_features: usize, number: usize) -> Result<Self, TreesError> {
        if nodes.is_empty() {
            return Err(TreesError::Size { tree: number });
        }
        for (at, node) in nodes.iter().enumerate() {
            let threshold = node.split.map_or(0.0, |split| split.threshold);
            for value in [node.value, threshold] {
                if !value.is_finite() {
                    return Err(TreesError::Value { tree: number, node: at, value });
                }
            }
            let Some(split) = node.split else { continue };
            if split.column as usize >= n_features {
                return Err(TreesError::Column { tree: number, node: at, column: split.column, n_features });
            }
            for child in [split.below, split.above, split.missing] {
                if child as usize <= at || child as usize >= nodes.len() {
                    return Err(TreesError::Child { tree: number, node: at, child });
                }
            }
        }
        Ok(Self(nodes))
    }

    /// The nodes from the root to the leaf of a row.
    pub(crate) fn path<'a>(&'a self, row: &'a [f32]) -> impl Iterator<Item = &'a Node> {
        std::iter::successors(self.0.first(), |node| {
            let split = node.split?;
            let value = row[split.column as usize];
            let child = if value.is_nan() {
                split.missing
            } else if value < split.threshold {
                split.below
            } else {
                split.above
            };
            self.0.get(child as usize)
        })
    }

    /// The value of the leaf of a row.
    pub(crate) fn leaf(&self, row: &[f32]) -> f32 {
        self.path(row).last().map_or(0.0, |node| node.value)
    }

    /// The index and the value of every leaf.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (usize, f32)> {
        self.0.iter().enumerate().filter(|(_, node)| node.split.is_none()).map(|(at, node)| (at, node.value))
    }
}

/// The column of a stored leaf.
const LEAF: f32 = -1.0;
/// Numbers per stored node: value, column, threshold, below, above, missing.
const NODE: usize = 6;
/// Numbers per node in the first format of extremely randomised trees: column, threshold, and `above`
/// or the value of the leaf. Values below the threshold and missing ones go to the next node.
const SHORT_NODE: usize = 3;

/// The sizes of the trees and all their nodes, one row each.
pub(crate) fn to_tensors(trees: &[Tree]) -> Tensors {
    let (mut sizes, mut nodes) = (Vec::new(), Vec::new());
    for tree in trees {
        sizes.push(tree.0.len() as f32);
        for node in &tree.0 {
            nodes.push(node.value);
            nodes.extend(node.split.map_or([LEAF, 0.0, 0.0, 0.0, 0.0], |split| {
                let [column, below, above, missing] =
                    [split.column, split.below, split.above, split.missing].map(|number| number as f32);
                [column, split.threshold, below, above, missing]
            }));
        }
    }
    let nodes = Tensor::new(vec![nodes.len() / NODE, NODE], nodes);
    [("sizes".to_owned(), Tensor::row(sizes)), ("nodes".to_owned(), nodes)].into()
}

/// The trees that [`to_tensors`] stored, for rows of `n_features` columns.
pub(crate) fn from_tensors(tensors: &Tensors, n_features: usize) -> Result<Vec<Tree>, TreesError> {
    let sizes = tensors.get("sizes").and_then(Tensor::as_f32).ok_or(TreesError::Tensor("sizes"))?;
    let stored = tensors.get("nodes").ok_or(TreesError::Tensor("nodes"))?;
    let rows = stored.as_f32().ok_or(TreesError::Tensor("nodes"))?;
    let [_, width @ (NODE | SHORT_NODE)] = *stored.shape() else { return Err(TreesError::Tensor("nodes")) };
    let mut rows = rows.chunks_exact(width);
    let mut trees = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        let size = index(*size).map_or(0, |size| size as usize);
        if size == 0 || size > rows.len() {
            return Err(TreesError::Size { tree: number });
        }
        let decode = |(at, row): (usize, &[f32])| {
            node(at, row).ok_or(TreesError::Value { tree: number, node: at, value: row[0] })
        };
        let nodes: Result<Vec<Node>, _> = rows.by_ref().take(size).enumerate().map(decode).collect();
        trees.push(Tree::new(nodes?, n_features, number)?);
    }
    if rows.len() > 0 {
        return Err(TreesError::Tensor("nodes"));
    }
    Ok(trees)
}

fn node(at: usize, row: &[f32]) -> Option<Node> {
    match *row {
        [value, LEAF, _, _, _, _] => Some(Node { value, split: None }),
        [value, column, threshold, below, above, missing] => {
            let split = Split {
                column: index(column)?,
                threshold,
                below: index(below)?,
                above: index(above)?,
                missing: index(missing)?,
            };
            Some(Node { value, split: Some(split) })
        }
        [LEAF, _, value] => Some(Node { value, split: None }),
        [column, threshold, above] => {
            let next = at as u32 + 1;
            let split =
                Split { column: index(column)?, threshold, below: next, above: index(above)?, missing: next };
            Some(Node { value: 0.0, split: Some(split) })
        }
        _ => None,
    }
}

/// A whole number that `f32` represents exactly.
fn index(value: f32) -> Option<u32> {
    const MAX: f32 = 16_777_216.0;
    ((0.0..=MAX).contains(&value) && value.fract() == 0.0).then_some(value as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaf(value: f32) -> Node {
        Node { value, split: None }
    }

    fn split(column: u32, below: u32, above: u32) -> Node {
        Node { value: 0.0, split: Some(Split { column, threshold: 0.5, below, above, missing: above }) }
    }

    fn stored(nodes: &[[f32; NODE]]) -> Tensors {
        let sizes = Tensor::row(vec![nodes.len() as f32]);
        let nodes = Tensor::new(vec![nodes.len(), NODE], nodes.concat());
        [("sizes".to_owned(), sizes), ("nodes".to_owned(), nodes)].into()
    }

    const STORED_LEAF: [f32; NODE] = [0.0, LEAF, 0.0, 0.0, 0.0, 0.0];

    #[test]
    fn a_row_is_followed_to_its_leaf() {
        let tree = Tree::new(vec![split(1, 1, 2), leaf(3.0), leaf(4.0)], 2, 0).unwrap();
        assert_eq!((tree.leaf(&[9.0, 0.0]), tree.leaf(&[0.0, 0.5])), (3.0, 4.0));
        assert_eq!(tree.leaf(&[0.0, f32::NAN]), 4.0);
        assert_eq!(tree.path(&[0.0, 0.0]).count(), 2);
    }

    #[test]
    fn a_node_that_leads_to_itself_is_rejected() {
        let tensors = stored(&[[0.0, 0.0, 0.5, 0.0, 1.0, 1.0], STORED_LEAF]);
        assert_eq!(from_tensors(&tensors, 1), Err(TreesError::Child { tree: 0, node: 0, child: 0 }));
    }

    #[test]
    fn a_node_that_leads_back_or_out_of_the_tree_is_rejected() {
        for child in [0.0, 1.0, 4.0] {
            let nodes =
                [[0.0, 0.0, 0.5, 1.0, 2.0, 2.0], [0.0, 0.0, 0.5, child, 3.0, 3.0], STORED_LEAF, STORED_LEAF];
            assert!(matches!(from_tensors(&stored(&nodes), 1), Err(TreesError::Child { node: 1, .. })));
        }
    }

    #[test]
    fn a_column_that_does_not_exist_is_rejected() {
        let tensors = stored(&[[0.0, 3.0, 0.5, 1.0, 2.0, 2.0], STORED_LEAF, STORED_LEAF]);
        assert!(from_tensors(&tensors, 4).is_ok());
        let expected = TreesError::Column { tree: 0, node: 0, column: 3, n_features: 3 };
        assert_eq!(from_tensors(&tensors, 3), Err(expected));
    }

    #[test]
    fn sizes_and_values_that_are_not_possible_are_rejected() {
        let mut tensors = stored(&[STORED_LEAF]);
        for size in [0.0, 2.0, 1e30, -1.0, 0.5, f32::NAN] {
            tensors.insert("sizes".into(), Tensor::row(vec![size]));
            assert!(from_tensors(&tensors, 1).is_err(), "{size}");
        }
        for wrong in [f32::NAN, f32::INFINITY] {
            assert!(Tree::new(vec![leaf(wrong)], 1, 0).is_err());
            let nodes = [[0.0, 0.0, wrong, 1.0, 2.0, 2.0], STORED_LEAF, STORED_LEAF];
            assert!(from_tensors(&stored(&nodes), 1).is_err());
        }
        for column in [-2.0, 0.5, 1e30] {
            let nodes = [[0.0, column, 0.5, 1.0, 2.0, 2.0], STORED_LEAF, STORED_LEAF];
            assert!(matches!(from_tensors(&stored(&nodes), 1), Err(TreesError::Value { .. })));
        }
        assert!(Tree::new(Vec::new(), 1, 0).is_err());
    }

    proptest! {
        /// Whatever is stored, what is restored can be followed and stored again.
        #[test]
        fn numbers_are_rejected_or_make_trees(
            numbers in prop::collection::vec(-2i8..8, 0..40),
            sizes in prop::collection::vec(0u8..6, 0..4),
            is_short in any::<bool>(),
        ) {
            let width = if is_short { SHORT_NODE } else { NODE };
            let n_nodes = numbers.len() / width;
            let nodes: Vec<f32> = numbers[..n_nodes * width].iter().map(|number| f32::from(*number)).collect();
            let sizes: Vec<f32> = sizes.into_iter().map(f32::from).collect();
            let tensors: Tensors = [
                ("sizes".to_owned(), Tensor::row(sizes)),
                ("nodes".to_owned(), Tensor::new(vec![n_nodes, width], nodes)),
            ].into();
            if let Ok(trees) = from_tensors(&tensors, 4) {
                for tree in &trees {
                    for value in [-1.0, 0.0, 3.0, f32::NAN] {
                        prop_assert!(tree.leaf(&[value; 4]).is_finite());
                    }
                }
                prop_assert_eq!(from_tensors(&to_tensors(&trees), 4).unwrap(), trees);
            }
        }
    }
}
