//! A mixture of normal distributions: groups of points, each with its own shape (Dempster, Laird and Rubin, 1977).

use nalgebra::{Cholesky, DMatrix, DVector};
use rayon::prelude::*;

use crate::artifact::Tensor;
use crate::{KMeans, Matrix};

const N_ROUNDS: usize = 30;
/// The share of points that groups are not fitted to, the least likely ones, and how often they are chosen anew: what
/// should not have been among the points does not become a group, or widen one.
const TRIMMED: f64 = 0.05;
const N_TRIMS: usize = 3;
/// How much of each group's shape is that of all points, so that small groups have a shape at all.
const SHRINKAGE: f64 = 0.02;
/// What no direction is narrower than, as a share of its width over all points.
const LEAST_WIDTH: f64 = 0.05;

#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub weight: f64,
    mean: Vec<f64>,
    /// Lower triangle that turns a deviation into independent ones of variance one.
    whiten: DMatrix<f64>,
    log_scale: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    pub groups: Vec<Group>,
}

/// The group a point most likely belongs to, and how it differs from its mean there.
#[derive(Debug, Clone, PartialEq)]
pub struct Belonging {
    pub group: usize,
    pub log_density: f64,
    /// Independent deviations of variance one, if the mixture is right.
    pub deviation: Vec<f64>,
}

impl Group {
    fn new(weight: f64, mean: Vec<f64>, covariance: &DMatrix<f64>) -> Option<Self> {
        let lower = Cholesky::new(covariance.clone())?.l();
        let log_scale = lower.diagonal().iter().map(|value| value.ln()).sum::<f64>();
        let whiten = lower.solve_lower_triangular(&DMatrix::identity(mean.len(), mean.len()))?;
        Some(Self { weight, mean, whiten, log_scale })
    }

    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    fn deviation(&self, point: &[f32]) -> DVector<f64> {
        let off = point.iter().zip(&self.mean).map(|(value, mean)| f64::from(*value) - mean);
        &self.whiten * DVector::from_iterator(self.mean.len(), off)
    }

    fn log_density(&self, point: &[f32]) -> f64 {
        let half = 0.5 * std::f64::consts::TAU.ln() * self.mean.len() as f64;
        self.weight.ln() - self.log_scale - half - 0.5 * self.deviation(point).norm_squared()
    }
}

impl Mixture {
    /// At most `n_groups` groups.
    ///
    /// # Panics
    /// If there is no point.
    pub fn fit(points: &Matrix, n_groups: usize, seed: u64) -> Self {
        let widths = widths(points);
        let scaled =
            points.rows().flat_map(|row| row.iter().zip(&widths).map(|(v, width)| v / *width as f32));
        let found = KMeans::fit(&Matrix::new(scaled.collect(), points.n_columns()), n_groups, seed);
        let n_groups = found.centres.n_rows();
        let mut shares = vec![vec![0.0; n_groups]; points.n_rows()];
        found.groups.iter().zip(&mut shares).for_each(|(group, shares)| shares[*group] = 1.0);
        let mut mixture = Self { groups: groups(points, &shares, &widths) }.improve(points, &widths);
        for _ in 0..N_TRIMS {
            let kept = mixture.most_likely(points);
            mixture = mixture.improve(&kept, &widths);
        }
        mixture
    }

    /// The points without those that the mixture finds least likely.
    fn most_likely(&self, points: &Matrix) -> Matrix {
        let rows: Vec<usize> = (0..points.n_rows()).collect();
        let mut logs: Vec<(f64, usize)> =
            rows.into_par_iter().map(|row| (self.belonging(points.row(row)).log_density, row)).collect();
        logs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let n_kept = points.n_rows() - (TRIMMED * points.n_rows() as f64) as usize;
        let kept = logs[..n_kept].iter().flat_map(|(_, row)| points.row(*row).iter().copied());
        Matrix::new(kept.collect(), points.n_columns())
    }

    /// Rounds of expectation and maximisation, until they change little.
    fn improve(mut self, points: &Matrix, widths: &[f64]) -> Self {
        let mut before = f64::MIN;
        for _ in 0..N_ROUNDS {
            let (shares, likelihood) = self.shares(points);
            self = Self { groups: groups(points, &shares, widths) };
            if (likelihood - before).abs() < 1e-4 * points.n_rows() as f64 {
                break;
            }
            before = likelihood;
        }
        self
    }

    /// How much each point belongs to each group, and how likely all of them are.
    fn shares(&self, points: &Matrix) -> (Vec<Vec<f64>>, f64) {
        let rows: Vec<(Vec<f64>, f64)> = (0..points.n_rows())
            .into_par_iter()
            .map(|row| {
                let logs: Vec<f64> =
                    self.groups.iter().map(|group| group.log_density(points.row(row))).collect();
                let most = logs.iter().copied().fold(f64::MIN, f64::max);
                let total: f64 = logs.iter().map(|log| (log - most).exp()).sum();
                (logs.iter().map(|log| (log - most).exp() / total).collect(), most + total.ln())
            })
            .collect();
        let likelihood = rows.iter().map(|(_, log)| log).sum();
        (rows.into_iter().map(|(shares, _)| shares).collect(), likelihood)
    }

    pub fn belonging(&self, point: &[f32]) -> Belonging {
        let logs = self.groups.iter().map(|group| group.log_density(point)).enumerate();
        let (group, log_density) = logs.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::MIN));
        let deviation = self.groups[group].deviation(point).as_slice().to_vec();
        Belonging { group, log_density, deviation }
    }

    /// Weight, mean, what whitens, of each group in a row.
    pub fn to_tensor(&self) -> Tensor {
        let size = self.groups.first().map_or(0, |group| group.mean.len());
        let mut values = Vec::new();
        for group in &self.groups {
            values.push(group.weight as f32);
            values.extend(group.mean.iter().map(|value| *value as f32));
            values.extend(group.whiten.transpose().iter().map(|value| *value as f32));
        }
        Tensor { shape: vec![self.groups.len(), 1 + size + size * size], values }
    }

    pub fn from_tensor(tensor: &Tensor, size: usize) -> Option<Self> {
        let [n_groups, width] = tensor.shape[..] else { return None };
        if n_groups == 0 || width != 1 + size + size * size || tensor.values.len() != n_groups * width {
            return None;
        }
        let group = |row: &[f32]| {
            let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
            let whiten = DMatrix::from_row_slice(size, size, &row[1 + size..]);
            let log_scale = -whiten.diagonal().iter().map(|value| value.ln()).sum::<f64>();
            Group { weight: row[0], mean: row[1..=size].to_vec(), whiten, log_scale }
        };
        Some(Self { groups: tensor.values.chunks_exact(width).map(group).collect() })
    }
}

/// The standard deviation of each column.
fn widths(points: &Matrix) -> Vec<f64> {
    let means = points.column_means();
    let mut squares = vec![0.0; points.n_columns()];
    for row in points.rows() {
        for ((square, value), mean) in squares.iter_mut().zip(row).zip(&means) {
            *square += (f64::from(*value) - mean).powi(2);
        }
    }
    squares.iter().map(|square| (square / points.n_rows() as f64).sqrt().max(1e-6)).collect()
}

fn groups(points: &Matrix, shares: &[Vec<f64>], widths: &[f64]) -> Vec<Group> {
    let (n_points, size) = (points.n_rows(), points.n_columns());
    let n_groups = shares.first().map_or(0, Vec::len);
    let all = DMatrix::from_diagonal(&DVector::from_iterator(size, widths.iter().map(|width| width * width)));
    (0..n_groups)
        .into_par_iter()
        .filter_map(|group| {
            let total: f64 = shares.iter().map(|shares| shares[group]).sum();
            if total < 2.0 {
                return None;
            }
            let mut mean = vec![0.0; size];
            for (row, shares) in points.rows().zip(shares) {
                mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += shares[group] * f64::from(*value));
            }
            mean.iter_mut().for_each(|mean| *mean /= total);
            let mut covariance = DMatrix::zeros(size, size);
            for (row, shares) in points.rows().zip(shares).filter(|(_, shares)| shares[group] > 1e-6) {
                let off =
                    DVector::from_iterator(size, row.iter().zip(&mean).map(|(v, mean)| f64::from(*v) - mean));
                covariance.ger(shares[group] / total, &off, &off, 1.0);
            }
            // Few points say little of a shape; what they leave open is taken from all.
            let open = SHRINKAGE * size as f64 / (size as f64 + total);
            covariance = covariance * (1.0 - open) + &all * (open + LEAST_WIDTH * LEAST_WIDTH);
            Group::new(total / n_points as f64, mean, &covariance)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn groups_of_different_shapes_are_found_with_their_shapes() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let values: Vec<f32> = (0..3_000)
            .flat_map(|index| {
                let [x, y]: [f32; 2] = std::array::from_fn(|_| rng.sample(StandardNormal));
                if index % 3 == 0 { [5.0 + 0.1 * x, 2.0 * y] } else { [x, x + 0.2 * y] }
            })
            .collect();
        let mixture = Mixture::fit(&Matrix::new(values, 2), 2, 0);
        let mut weights: Vec<f64> = mixture.groups.iter().map(|group| group.weight).collect();
        weights.sort_by(f64::total_cmp);
        assert!(
            (weights[0] - 1.0 / 3.0).abs() < 0.02 && (weights[1] - 2.0 / 3.0).abs() < 0.02,
            "{weights:?}"
        );
        // Across the narrow direction of a group, half is far; along it, it is near.
        let norm = |point: [f32; 2]| {
            mixture.belonging(&point).deviation.iter().map(|value| value * value).sum::<f64>().sqrt()
        };
        assert!(norm([5.5, 0.0]) > 3.0 && norm([5.0, 0.5]) < 1.0);
        let again = Mixture::from_tensor(&mixture.to_tensor(), 2).unwrap();
        assert!(
            (again.belonging(&[5.5, 0.0]).log_density - mixture.belonging(&[5.5, 0.0]).log_density).abs()
                < 1e-2
        );
    }

    #[test]
    fn a_few_points_that_do_not_belong_make_no_group_wider() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut values: Vec<f32> = (0..2_000).map(|_| rng.sample::<f32, _>(StandardNormal) * 0.1).collect();
        values.extend((0..60).map(|_| rng.random_range(-10.0f32..10.0)));
        let mixture = Mixture::fit(&Matrix::new(values, 1), 1, 0);
        // Without trimming, a deviation of ten widths would count as less than two.
        assert!(mixture.belonging(&[1.0]).deviation[0].abs() > 4.0, "{:?}", mixture.belonging(&[1.0]));
    }

    #[test]
    fn points_that_are_all_alike_are_one_group() {
        let mixture = Mixture::fit(&Matrix::new(vec![0.5; 400], 2), 4, 0);
        assert_eq!(mixture.groups.len(), 1);
        assert!(mixture.belonging(&[0.5, 0.5]).log_density > mixture.belonging(&[0.6, 0.5]).log_density);
    }
}
