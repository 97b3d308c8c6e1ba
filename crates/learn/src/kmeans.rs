//! k-means: groups of points around centres, started far apart (k-means++).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::Matrix;

const MOST_ROUNDS: usize = 100;

/// Centres, and which of them each point is nearest to.
#[derive(Debug, Clone, PartialEq)]
pub struct KMeans {
    pub centres: Matrix,
    pub groups: Vec<usize>,
}

impl KMeans {
    /// At most `n_groups` groups: points that are all alike make one.
    ///
    /// # Panics
    /// If there is no point, or no group is asked for.
    pub fn fit(points: &Matrix, n_groups: usize, seed: u64) -> Self {
        assert!(points.n_rows() > 0 && n_groups > 0, "there is nothing to group");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut centres = start(points, n_groups, &mut rng);
        let mut groups = vec![0; points.n_rows()];
        for _ in 0..MOST_ROUNDS {
            let now: Vec<usize> = points.rows().map(|point| nearest(slices(&centres), point).0).collect();
            let is_done = now == groups;
            groups = now;
            move_centres(points, &groups, &mut centres);
            if is_done {
                break;
            }
        }
        Self { centres: Matrix::new(centres.concat(), points.n_columns()), groups }
    }

    pub fn nearest(&self, point: &[f32]) -> usize {
        nearest(self.centres.rows(), point).0
    }
}

fn start(points: &Matrix, n_groups: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<f32>> {
    let mut centres = vec![points.row(rng.random_range(0..points.n_rows())).to_vec()];
    while centres.len() < n_groups {
        let distances: Vec<f64> = points.rows().map(|point| nearest(slices(&centres), point).1).collect();
        let total: f64 = distances.iter().sum();
        if total <= 0.0 {
            break;
        }
        let mut left = rng.random_range(0.0..total);
        let chosen = distances.iter().position(|distance| {
            left -= distance;
            left < 0.0
        });
        centres.push(points.row(chosen.unwrap_or(0)).to_vec());
    }
    centres
}

fn slices(centres: &[Vec<f32>]) -> impl Iterator<Item = &[f32]> {
    centres.iter().map(Vec::as_slice)
}

/// The number of the nearest centre, and the square of how far it is.
fn nearest<'a>(centres: impl Iterator<Item = &'a [f32]>, point: &[f32]) -> (usize, f64) {
    let distance =
        |centre: &[f32]| -> f64 { centre.iter().zip(point).map(|(a, b)| f64::from(a - b).powi(2)).sum() };
    let distances = centres.map(distance).enumerate();
    distances.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
}

fn move_centres(points: &Matrix, groups: &[usize], centres: &mut [Vec<f32>]) {
    let mut sums = vec![vec![0.0; points.n_columns()]; centres.len()];
    let mut counts = vec![0.0; centres.len()];
    for (point, group) in points.rows().zip(groups) {
        counts[*group] += 1.0;
        sums[*group].iter_mut().zip(point).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    for ((centre, sum), count) in centres.iter_mut().zip(&sums).zip(&counts) {
        if *count > 0.0 {
            centre.iter_mut().zip(sum).for_each(|(centre, sum)| *centre = (sum / count) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_clumps_are_grouped_by_clump() {
        let clumps = [(0.0, 0.0), (10.0, 0.0), (0.0, 10.0)];
        let points: Vec<f32> =
            (0..60).flat_map(|at| [clumps[at % 3].0 + (at % 7) as f32 * 0.1, clumps[at % 3].1]).collect();
        let found = KMeans::fit(&Matrix::new(points, 2), 3, 4);
        for at in 3..60 {
            assert_eq!(found.groups[at], found.groups[at % 3]);
        }
        assert_eq!(found.nearest(&[9.0, 1.0]), found.groups[1]);
    }

    #[test]
    fn points_that_are_alike_are_one_group() {
        let found = KMeans::fit(&Matrix::new(vec![0.5; 20], 2), 4, 0);
        assert_eq!(found.centres.n_rows(), 1);
    }
}
