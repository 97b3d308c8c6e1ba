//! A mixture of multivariate normal distributions, fitted by expectation maximisation (Dempster, Laird and
//! Rubin, 1977) with trimming: the least likely points are left out, so outliers among the training data
//! neither become a component nor widen one.

use nalgebra::{Cholesky, DMatrix, DVector};
use rayon::prelude::*;
use workload::{Stop, Stopped};

use crate::artifact::restore::{RestoreError, ensure, expect_rows};
use crate::artifact::{Tensor, Tensors};
use crate::stats::softmax_in_place;
use crate::{KMeans, Matrix, TooFewPoints};

const MAX_ROUNDS: usize = 30;
/// The fraction of points that is left out, and how often they are chosen again.
const TRIMMED: f64 = 0.05;
const N_TRIMS: usize = 3;
/// The weight of the covariance of all points in that of each component, which small ones need.
const SHRINKAGE: f64 = 0.02;
/// The least standard deviation of a component in any direction, relative to that of all points.
const MIN_RELATIVE_STD: f64 = 0.05;
/// A component of fewer points has no covariance.
const MIN_POINTS: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MixtureError {
    #[error(transparent)]
    TooFewPoints(#[from] TooFewPoints),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    pub weight: f64,
    mean: Vec<f64>,
    /// The inverse of the lower Cholesky factor of the covariance: whitens a deviation from the mean.
    whitening: DMatrix<f64>,
    log_determinant: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    /// At least one.
    components: Vec<Component>,
}

/// The most likely component of a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    pub component: usize,
    pub log_density: f64,
    /// The whitened deviation from the component's mean: independent, with variance one, if the mixture
    /// is right.
    pub deviation: Vec<f64>,
}

impl Component {
    fn new(weight: f64, mean: Vec<f64>, covariance: DMatrix<f64>) -> Option<Self> {
        let lower = Cholesky::new(covariance)?.l();
        let log_determinant = lower.diagonal().iter().map(|value| value.ln()).sum::<f64>();
        let whitening = lower.solve_lower_triangular(&DMatrix::identity(mean.len(), mean.len()))?;
        Some(Self { weight, mean, whitening, log_determinant })
    }

    /// The standard deviation of one dimension, given the dimensions before it.
    pub fn conditional_std(&self, axis: usize) -> f64 {
        1.0 / self.whitening[(axis, axis)]
    }

    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    fn deviation(&self, point: &[f32]) -> DVector<f64> {
        let difference = point.iter().zip(&self.mean).map(|(value, mean)| f64::from(*value) - mean);
        &self.whitening * DVector::from_iterator(self.mean.len(), difference)
    }

    fn log_density(&self, point: &[f32]) -> f64 {
        let half = 0.5 * std::f64::consts::TAU.ln() * self.mean.len() as f64;
        self.weight.ln() - self.log_determinant - half - 0.5 * self.deviation(point).norm_squared()
    }
}

impl Mixture {
    /// Fits at least one and at most `max_components` components. Checks `stop` in every round.
    pub fn fit(points: &Matrix, max_components: usize, seed: u64, stop: &Stop) -> Result<Self, MixtureError> {
        let n_points = points.n_rows();
        let too_few = TooFewPoints { n_points, needed: MIN_POINTS };
        if n_points < MIN_POINTS {
            return Err(too_few.into());
        }
        let std_devs = column_std_devs(points);
        let scaled =
            points.rows().flat_map(|row| row.iter().zip(&std_devs).map(|(value, std)| value / *std as f32));
        let clusters = KMeans::fit(&Matrix::new(scaled.collect(), points.n_columns()), max_components, seed)?;
        let mut responsibilities = vec![vec![0.0; clusters.centres.n_rows()]; n_points];
        for (group, row) in clusters.groups.iter().zip(&mut responsibilities) {
            row[*group] = 1.0;
        }
        let mut components = maximise(points, &responsibilities, &std_devs);
        if components.is_empty() {
            components = maximise(points, &vec![vec![1.0]; n_points], &std_devs);
        }
        if components.is_empty() {
            return Err(too_few.into());
        }
        let mut mixture = Self { components }.improved(points, &std_devs, stop)?;
        for _ in 0..N_TRIMS {
            let kept = mixture.most_likely(points);
            mixture = mixture.improved(&kept, &std_devs, stop)?;
        }
        Ok(mixture)
    }

    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The points without the least likely ones.
    fn most_likely(&self, points: &Matrix) -> Matrix {
        let rows: Vec<usize> = (0..points.n_rows()).collect();
        let mut by_density: Vec<(f64, usize)> =
            rows.into_par_iter().map(|row| (self.assign(points.row(row)).log_density, row)).collect();
        by_density.sort_by(|a, b| b.0.total_cmp(&a.0));
        let n_kept = points.n_rows() - (TRIMMED * points.n_rows() as f64) as usize;
        let kept = by_density[..n_kept].iter().flat_map(|(_, row)| points.row(*row).iter().copied());
        Matrix::new(kept.collect(), points.n_columns())
    }

    /// Rounds of expectation and maximisation, until the likelihood hardly changes.
    fn improved(mut self, points: &Matrix, std_devs: &[f64], stop: &Stop) -> Result<Self, Stopped> {
        let mut previous = f64::MIN;
        for _ in 0..MAX_ROUNDS {
            stop.check()?;
            let (responsibilities, likelihood) = self.responsibilities(points);
            let components = maximise(points, &responsibilities, std_devs);
            if components.is_empty() {
                break;
            }
            self = Self { components };
            if (likelihood - previous).abs() < 1e-4 * points.n_rows() as f64 {
                break;
            }
            previous = likelihood;
        }
        Ok(self)
    }

    /// The probability of each component given each point, and the log-likelihood of all points.
    fn responsibilities(&self, points: &Matrix) -> (Vec<Vec<f64>>, f64) {
        let rows: Vec<(Vec<f64>, f64)> = (0..points.n_rows())
            .into_par_iter()
            .map(|row| {
                let mut row: Vec<f64> =
                    self.components.iter().map(|one| one.log_density(points.row(row))).collect();
                let log_density = softmax_in_place(&mut row);
                (row, log_density)
            })
            .collect();
        let likelihood = rows.iter().map(|(_, log_density)| log_density).sum();
        (rows.into_iter().map(|(row, _)| row).collect(), likelihood)
    }

    /// The most likely component of a point.
    pub fn assign(&self, point: &[f32]) -> Assignment {
        let densities = self.components.iter().map(|one| one.log_density(point)).enumerate();
        let (component, log_density) = densities.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::MIN));
        let deviation = self.components[component].deviation(point).as_slice().to_vec();
        Assignment { component, log_density, deviation }
    }

    /// One row per component: weight, mean, whitening matrix.
    pub fn to_tensor(&self) -> Tensor {
        let size = self.components[0].mean.len();
        let mut values = Vec::new();
        for one in &self.components {
            values.push(one.weight as f32);
            values.extend(one.mean.iter().map(|value| *value as f32));
            values.extend(one.whitening.transpose().iter().map(|value| *value as f32));
        }
        Tensor::new(vec![self.components.len(), 1 + size + size * size], values)
    }

    /// The mixture that [`Self::to_tensor`] stored, for points of `size` columns, at least one.
    pub fn restore(tensors: &Tensors, name: &str, size: usize) -> Result<Self, RestoreError> {
        let width = size.saturating_mul(size).saturating_add(size).saturating_add(1);
        let values = expect_rows(tensors, name, width)?;
        let component = |row: &[f32]| {
            let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
            let whitening = DMatrix::from_row_slice(size, size, &row[1 + size..]);
            let is_valid = row[0] > 0.0 && whitening.diagonal().iter().all(|value| *value > 0.0);
            ensure(is_valid, "a component of the mixture has no positive weight or variance")?;
            let log_determinant = -whitening.diagonal().iter().map(|value| value.ln()).sum::<f64>();
            Ok(Component { weight: row[0], mean: row[1..=size].to_vec(), whitening, log_determinant })
        };
        let components: Result<Vec<Component>, RestoreError> =
            values.chunks_exact(width).map(component).collect();
        Ok(Self { components: components? })
    }
}

/// The standard deviation of each column, and at least a little.
fn column_std_devs(points: &Matrix) -> Vec<f64> {
    let means = points.column_means();
    let mut squares = vec![0.0; points.n_columns()];
    for row in points.rows() {
        for ((square, value), mean) in squares.iter_mut().zip(row).zip(&means) {
            *square += (f64::from(*value) - mean).powi(2);
        }
    }
    squares.iter().map(|square| (square / points.n_rows() as f64).sqrt().max(1e-6)).collect()
}

/// The components with the greatest likelihood, given how much each point belongs to each of them.
fn maximise(points: &Matrix, responsibilities: &[Vec<f64>], std_devs: &[f64]) -> Vec<Component> {
    let (n_points, size) = (points.n_rows(), points.n_columns());
    let n_components = responsibilities.first().map_or(0, Vec::len);
    let overall = DMatrix::from_diagonal(&DVector::from_iterator(size, std_devs.iter().map(|std| std * std)));
    (0..n_components)
        .into_par_iter()
        .filter_map(|which| {
            let total: f64 = responsibilities.iter().map(|row| row[which]).sum();
            if total < MIN_POINTS as f64 {
                return None;
            }
            let mut mean = vec![0.0; size];
            for (point, row) in points.rows().zip(responsibilities) {
                for (mean, value) in mean.iter_mut().zip(point) {
                    *mean += row[which] * f64::from(*value);
                }
            }
            for mean in &mut mean {
                *mean /= total;
            }
            let mut covariance = DMatrix::zeros(size, size);
            for (point, row) in points.rows().zip(responsibilities).filter(|(_, row)| row[which] > 1e-6) {
                let difference = point.iter().zip(&mean).map(|(value, mean)| f64::from(*value) - mean);
                let difference = DVector::from_iterator(size, difference);
                covariance.ger(row[which] / total, &difference, &difference, 1.0);
            }
            let shrinkage = SHRINKAGE * size as f64 / (size as f64 + total);
            let floor = MIN_RELATIVE_STD * MIN_RELATIVE_STD;
            covariance = covariance * (1.0 - shrinkage) + &overall * (shrinkage + floor);
            Component::new(total / n_points as f64, mean, covariance)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn restored(tensor: Tensor, size: usize) -> Result<Mixture, RestoreError> {
        Mixture::restore(&[("mixture".to_owned(), tensor)].into(), "mixture", size)
    }

    #[test]
    fn components_are_found_with_their_covariances() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let values: Vec<f32> = (0..3_000)
            .flat_map(|index| {
                let [x, y]: [f32; 2] = std::array::from_fn(|_| rng.sample(StandardNormal));
                if index % 3 == 0 { [5.0 + 0.1 * x, 2.0 * y] } else { [x, x + 0.2 * y] }
            })
            .collect();
        let mixture = Mixture::fit(&Matrix::new(values, 2), 2, 0, &Stop::default()).unwrap();
        let mut weights: Vec<f64> = mixture.components.iter().map(|one| one.weight).collect();
        weights.sort_by(f64::total_cmp);
        assert!(
            (weights[0] - 1.0 / 3.0).abs() < 0.02 && (weights[1] - 2.0 / 3.0).abs() < 0.02,
            "{weights:?}"
        );
        // Half a unit is far in the narrow direction of a component, and near along the wide one.
        let norm = |point: [f32; 2]| {
            mixture.assign(&point).deviation.iter().map(|value| value * value).sum::<f64>().sqrt()
        };
        assert!(norm([5.5, 0.0]) > 3.0 && norm([5.0, 0.5]) < 1.0);
        let again = restored(mixture.to_tensor(), 2).unwrap();
        assert!(
            (again.assign(&[5.5, 0.0]).log_density - mixture.assign(&[5.5, 0.0]).log_density).abs() < 1e-2
        );
    }

    #[test]
    fn outliers_do_not_widen_a_component() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut values: Vec<f32> = (0..2_000).map(|_| rng.sample::<f32, _>(StandardNormal) * 0.1).collect();
        values.extend((0..60).map(|_| rng.random_range(-10.0f32..10.0)));
        let mixture = Mixture::fit(&Matrix::new(values, 1), 1, 0, &Stop::default()).unwrap();
        // Without trimming, ten standard deviations would count as less than two.
        assert!(mixture.assign(&[1.0]).deviation[0].abs() > 4.0, "{:?}", mixture.assign(&[1.0]));
    }

    #[test]
    fn equal_points_are_one_component() {
        let mixture = Mixture::fit(&Matrix::new(vec![0.5; 400], 2), 4, 0, &Stop::default()).unwrap();
        assert_eq!(mixture.components.len(), 1);
        assert!(mixture.assign(&[0.5, 0.5]).log_density > mixture.assign(&[0.6, 0.5]).log_density);
    }

    #[test]
    fn small_and_odd_samples_are_fitted_or_rejected() {
        let fit = |values: Vec<f32>, max| Mixture::fit(&Matrix::new(values, 1), max, 0, &Stop::default());
        assert_eq!(fit(vec![], 2), Err(TooFewPoints { n_points: 0, needed: 2 }.into()));
        assert!(fit(vec![1.0], 2).is_err());
        // Each point is a cluster of its own, too small for a component.
        assert_eq!(fit(vec![1.0, 9.0], 2).unwrap().components.len(), 1);
        assert!(fit(vec![f32::NAN, 1.0], 2).is_err());
        let stop = Stop::default();
        stop.now();
        let stopped = Mixture::fit(&Matrix::new(vec![0.0; 10], 1), 2, 0, &stop);
        assert_eq!(stopped, Err(MixtureError::Stopped(Stopped)));
    }

    #[test]
    fn a_tensor_that_is_not_a_mixture_is_rejected() {
        let tensor = |values: Vec<f32>| restored(Tensor::new(vec![1, 3], values), 1);
        assert!(tensor(vec![1.0, 0.0, 1.0]).is_ok());
        assert!(tensor(vec![1.0, 0.0, 0.0]).is_err() && tensor(vec![0.0, 0.0, 1.0]).is_err());
        assert!(restored(Tensor::new(vec![0, 3], Vec::<f32>::new()), 1).is_err());
        assert!(restored(Tensor::row(vec![1.0f32; 3]), 1).is_err());
        assert!(restored(Tensor::new(vec![1, 3], vec![1.0f32; 3]), usize::MAX).is_err());
    }
}
