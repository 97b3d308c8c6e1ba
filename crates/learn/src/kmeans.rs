//! k-means clustering with k-means++ initialisation (Arthur and Vassilvitskii, 2007).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::stats::squared_distance;
use crate::{Matrix, TooFewPoints};

const MAX_ROUNDS: usize = 100;

/// Centres, and the number of the nearest centre of each point.
#[derive(Debug, Clone, PartialEq)]
pub struct KMeans {
    pub centres: Matrix,
    pub groups: Vec<usize>,
}

impl KMeans {
    /// Finds at least one and at most `max_groups` groups; points that are all equal are one group.
    pub fn fit(points: &Matrix, max_groups: usize, seed: u64) -> Result<Self, TooFewPoints> {
        TooFewPoints::check(points.n_rows(), 1)?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut centres = initial_centres(points, max_groups, &mut rng);
        let mut groups = vec![0; points.n_rows()];
        for _ in 0..MAX_ROUNDS {
            let now: Vec<usize> = points.rows().map(|point| nearest(slices(&centres), point).0).collect();
            let is_done = now == groups;
            groups = now;
            move_centres(points, &groups, &mut centres);
            if is_done {
                break;
            }
        }
        Ok(Self { centres: Matrix::new(centres.concat(), points.n_columns()), groups })
    }

    pub fn nearest(&self, point: &[f32]) -> usize {
        nearest(self.centres.rows(), point).0
    }
}

fn initial_centres(points: &Matrix, max_groups: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<Vec<f32>> {
    let mut centres = vec![points.row(rng.random_range(0..points.n_rows())).to_vec()];
    while centres.len() < max_groups {
        let distances: Vec<f64> = points.rows().map(|point| nearest(slices(&centres), point).1).collect();
        let total: f64 = distances.iter().sum();
        if !(total > 0.0 && total.is_finite()) {
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

/// The number of the nearest centre, and the squared distance from it.
fn nearest<'a>(centres: impl Iterator<Item = &'a [f32]>, point: &[f32]) -> (usize, f64) {
    let distances = centres.map(|centre| squared_distance(centre, point)).enumerate();
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
        let found = KMeans::fit(&Matrix::new(points, 2), 3, 4).unwrap();
        for at in 3..60 {
            assert_eq!(found.groups[at], found.groups[at % 3]);
        }
        assert_eq!(found.nearest(&[9.0, 1.0]), found.groups[1]);
    }

    #[test]
    fn equal_points_are_one_group_and_no_points_an_error() {
        let found = KMeans::fit(&Matrix::new(vec![0.5; 20], 2), 4, 0).unwrap();
        assert_eq!(found.centres.n_rows(), 1);
        assert!(KMeans::fit(&Matrix::new(Vec::new(), 2), 4, 0).is_err());
        assert!(KMeans::fit(&Matrix::new(vec![f32::NAN; 4], 2), 2, 0).is_ok());
    }
}
