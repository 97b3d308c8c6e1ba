//! The silhouette coefficient (Rousseeuw, 1987): how well groups of points are separated.
//!
//! For a point, `a` is its mean distance from the others of its group and `b` that from the nearest other
//! group. Its silhouette is `(b - a) / max(a, b)`, or zero if it is alone in its group.

use std::ops::Range;

use nalgebra::{DMatrixView, DMatrixViewMut};
use rayon::prelude::*;

use crate::Matrix;

/// Points of a group that are compared at once with points of another.
const BLOCK: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SilhouetteError {
    #[error(
        "{n_groups} groups of {n_points} points have no silhouette; at least 2 groups, fewer than points, are needed"
    )]
    Groups { n_groups: usize, n_points: usize },
}

/// The mean silhouette of points, given the number of each point's group.
///
/// # Panics
/// If there is not one group for each point.
pub fn silhouette(points: &Matrix, groups: &[usize]) -> Result<f64, SilhouetteError> {
    assert_eq!(points.n_rows(), groups.len(), "there is not one group for each point");
    let n_points = points.n_rows();
    let mut order: Vec<usize> = (0..n_points).collect();
    order.sort_by_key(|point| groups[*point]);
    // Numbers without points are not groups.
    let mut starts: Vec<usize> =
        (0..n_points).filter(|at| *at == 0 || groups[order[*at]] != groups[order[at - 1]]).collect();
    let n_groups = starts.len();
    starts.push(n_points);
    if n_groups < 2 || n_groups >= n_points {
        return Err(SilhouetteError::Groups { n_groups, n_points });
    }
    let points = Sorted::new(points, &order, &starts);
    let sums = points.distance_sums();
    let of_group = |group: usize| starts[group]..starts[group + 1];
    let total: f64 = (0..n_groups)
        .flat_map(|group| of_group(group).map(move |point| (group, point)))
        .map(|(group, point)| {
            let sums = &sums[point * n_groups..(point + 1) * n_groups];
            let n_others = of_group(group).len() - 1;
            if n_others == 0 {
                return 0.0;
            }
            let inside = sums[group] / n_others as f64;
            let mean = |other: usize| sums[other] / of_group(other).len() as f64;
            let nearest =
                (0..n_groups).filter(|other| *other != group).map(mean).fold(f64::INFINITY, f64::min);
            let larger = inside.max(nearest);
            if larger > 0.0 { (nearest - inside) / larger } else { 0.0 }
        })
        .sum();
    Ok(total / n_points as f64)
}

/// Points in order of their groups, with their mean subtracted for precision.
struct Sorted {
    values: Vec<f32>,
    squares: Vec<f32>,
    n_columns: usize,
    n_groups: usize,
    /// Blocks of points of one group: the group and the range of points.
    blocks: Vec<(usize, Range<usize>)>,
    /// The values of each block again, column by column.
    by_column: Vec<Vec<f32>>,
}

impl Sorted {
    fn new(points: &Matrix, order: &[usize], starts: &[usize]) -> Self {
        let means = points.column_means();
        let centred = |point: &usize| {
            points
                .row(*point)
                .iter()
                .zip(&means)
                .map(|(value, mean)| (f64::from(*value) - mean) as f32)
                .collect::<Vec<f32>>()
        };
        let values: Vec<f32> = order.iter().flat_map(centred).collect();
        let n_columns = points.n_columns();
        let squares =
            values.chunks_exact(n_columns).map(|row| row.iter().map(|value| value * value).sum()).collect();
        let blocks: Vec<(usize, Range<usize>)> = starts
            .windows(2)
            .enumerate()
            .flat_map(|(group, pair)| {
                let (start, end) = (pair[0], pair[1]);
                (start..end).step_by(BLOCK).map(move |at| (group, at..end.min(at + BLOCK)))
            })
            .collect();
        let transposed = |(_, block): &(usize, Range<usize>)| {
            let columns =
                (0..n_columns).flat_map(|column| block.clone().map(move |row| row * n_columns + column));
            columns.map(|at| values[at]).collect()
        };
        let by_column = blocks.iter().map(transposed).collect();
        Self { squares, n_columns, n_groups: starts.len() - 1, blocks, by_column, values }
    }

    /// For every point, the sum of its distances from each group. Each pair of blocks is compared once.
    fn distance_sums(&self) -> Vec<f64> {
        let n_sums = self.squares.len() * self.n_groups;
        let pairs: Vec<(usize, usize)> = (0..self.blocks.len())
            .flat_map(|first| (first..self.blocks.len()).map(move |second| (first, second)))
            .collect();
        let compare = |(mut sums, mut scratch): (Vec<f64>, Vec<f32>), (first, second): &(usize, usize)| {
            self.compare(*first, *second, &mut sums, &mut scratch);
            (sums, scratch)
        };
        let per_thread = pairs.len().div_ceil(rayon::current_num_threads() * 4).max(1);
        pairs
            .par_chunks(per_thread)
            .map(|pairs| pairs.iter().fold((vec![0.0; n_sums], vec![0.0; BLOCK * BLOCK]), compare).0)
            .reduce(
                || vec![0.0; n_sums],
                |mut all, some| {
                    all.iter_mut().zip(&some).for_each(|(all, some)| *all += some);
                    all
                },
            )
    }

    /// Scalar products of all pairs of points of two blocks.
    fn multiply(&self, first: usize, second: usize, products: &mut [f32]) {
        let (a, b) = (&self.blocks[first].1, &self.blocks[second].1);
        let left = DMatrixView::from_slice(&self.by_column[first], a.len(), self.n_columns);
        let rows = &self.values[b.start * self.n_columns..b.end * self.n_columns];
        let right = DMatrixView::from_slice(rows, self.n_columns, b.len());
        DMatrixViewMut::from_slice(products, a.len(), b.len()).gemm(1.0, &left, &right, 0.0);
    }

    fn compare(&self, first: usize, second: usize, sums: &mut [f64], products: &mut [f32]) {
        let (group_a, a) = self.blocks[first].clone();
        let (group_b, b) = self.blocks[second].clone();
        let products = &mut products[..a.len() * b.len()];
        self.multiply(first, second, products);
        let mut sums_of_a = vec![0.0f64; a.len()];
        for (column, point) in b.clone().enumerate() {
            let products = &mut products[column * a.len()..(column + 1) * a.len()];
            let square = self.squares[point];
            for (product, other) in products.iter_mut().zip(&self.squares[a.clone()]) {
                *product = (square + other - 2.0 * *product).max(0.0).sqrt();
            }
            if first == second {
                products[column] = 0.0;
            }
            let mut sum = 0.0;
            for (distance, sum_of_a) in products.iter().zip(&mut sums_of_a) {
                sum += f64::from(*distance);
                *sum_of_a += f64::from(*distance);
            }
            sums[point * self.n_groups + group_a] += sum;
        }
        if first != second {
            for (point, sum) in a.zip(sums_of_a) {
                sums[point * self.n_groups + group_b] += sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, pair by pair.
    fn by_definition(points: &Matrix, groups: &[usize]) -> f64 {
        let n_groups = groups.iter().max().unwrap() + 1;
        let distance = |a: usize, b: usize| {
            let squares = points.row(a).iter().zip(points.row(b)).map(|(a, b)| f64::from(a - b).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let of = |point: usize| {
            let mean = |group: usize| {
                let others: Vec<usize> =
                    (0..groups.len()).filter(|other| groups[*other] == group && *other != point).collect();
                let sum: f64 = others.iter().map(|other| distance(point, *other)).sum();
                (!others.is_empty()).then(|| sum / others.len() as f64)
            };
            let Some(inside) = mean(groups[point]) else { return 0.0 };
            let nearest = (0..n_groups)
                .filter(|group| *group != groups[point])
                .filter_map(mean)
                .fold(f64::INFINITY, f64::min);
            (nearest - inside) / inside.max(nearest)
        };
        (0..groups.len()).map(of).sum::<f64>() / groups.len() as f64
    }

    #[test]
    fn silhouettes_agree_with_the_definition() {
        let values: Vec<f32> = (0..700 * 5).map(|at| ((at * 7_919) % 1_009) as f32 / 1_009.0).collect();
        let points = Matrix::new(values, 5);
        let groups: Vec<usize> = (0..700).map(|at| if at == 3 { 7 } else { at % 3 }).collect();
        let (found, expected) = (silhouette(&points, &groups).unwrap(), by_definition(&points, &groups));
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }

    #[test]
    fn distant_groups_have_a_silhouette_near_one_and_a_single_group_has_none() {
        let points = Matrix::new(vec![0.0, 0.01, 100.0, 100.01], 1);
        assert!(silhouette(&points, &[0, 0, 4, 4]).unwrap() > 0.999);
        assert!(silhouette(&points, &[1, 1, 1, 1]).is_err());
        assert!(silhouette(&points, &[0, 1, 2, 3]).is_err());
    }
}
