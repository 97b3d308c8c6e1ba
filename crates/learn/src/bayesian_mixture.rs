//! The components of a column of numbers: a mixture of normal distributions whose number of components is
//! inferred. Components that are not needed lose their weight (variational inference with a sparse
//! Dirichlet prior; Bishop, 2006, chapter 10). CTGAN calls them the modes of a column.

use serde::{Deserialize, Serialize};

use crate::digamma::digamma;
use crate::stats::softmax_in_place;
use crate::{KMeans, Matrix, stats};

const MAX_ROUNDS: usize = 100;
/// More values than this are thinned out before fitting.
const MAX_POINTS: usize = 20_000;
/// The Dirichlet prior of each weight; small, so that few components keep weight.
const CONCENTRATION: f64 = 1e-3;
/// Components with less weight are dropped.
const MIN_WEIGHT: f64 = 0.005;
/// The least standard deviation of a component, relative to that of all values.
const MIN_RELATIVE_STD: f64 = 1e-4;

/// One normal distribution of a mixture.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MixtureComponent {
    pub weight: f64,
    pub mean: f64,
    #[serde(alias = "width")]
    pub std_dev: f64,
}

impl MixtureComponent {
    /// The density at a value times the weight, up to a factor common to all components.
    pub fn density(&self, value: f64) -> f64 {
        let deviation = (value - self.mean) / self.std_dev;
        self.weight / self.std_dev * (-0.5 * deviation * deviation).exp()
    }
}

/// Fits at most `max_components` components, ordered by mean, to the finite values. Values that are
/// all equal have one component, and no values have none.
pub fn fit_components(values: &[f64], max_components: usize, seed: u64) -> Vec<MixtureComponent> {
    let stride = values.len().div_ceil(MAX_POINTS).max(1);
    let values: Vec<f64> = values.iter().copied().step_by(stride).filter(|value| value.is_finite()).collect();
    let (centre, scale) = (stats::mean(&values), stats::std_dev(&values));
    if scale * scale <= f64::EPSILON * centre.abs() {
        let component = MixtureComponent { weight: 1.0, mean: centre, std_dev: scale.max(1e-6) };
        return values.first().map(|_| component).into_iter().collect();
    }
    let points: Vec<f64> = values.iter().map(|value| (value - centre) / scale).collect();
    let as_rows = Matrix::new(points.iter().map(|value| *value as f32).collect(), 1);
    let Ok(clusters) = KMeans::fit(&as_rows, max_components, seed) else { return Vec::new() };
    let n_components = clusters.centres.n_rows();
    let mut responsibilities = vec![vec![0.0; n_components]; points.len()];
    for (group, row) in clusters.groups.iter().zip(&mut responsibilities) {
        row[*group] = 1.0;
    }
    let mut previous = f64::MIN;
    let mut posteriors = Vec::new();
    for _ in 0..MAX_ROUNDS {
        posteriors =
            (0..n_components).map(|which| Posterior::of(&points, &responsibilities, which)).collect();
        let total: f64 = posteriors.iter().map(|one: &Posterior| one.concentration).sum();
        let expected: Vec<Expected> = posteriors.iter().map(|one| one.expected(total)).collect();
        let mut likelihood = 0.0;
        for (point, row) in points.iter().zip(&mut responsibilities) {
            for (responsibility, one) in row.iter_mut().zip(&expected) {
                *responsibility = one.log_responsibility(*point);
            }
            likelihood += softmax_in_place(row);
        }
        if (likelihood - previous).abs() < 1e-5 * points.len() as f64 {
            break;
        }
        previous = likelihood;
    }
    let total: f64 = posteriors.iter().map(|one| one.concentration).sum();
    let mut components: Vec<MixtureComponent> = posteriors
        .iter()
        .map(|one| MixtureComponent {
            weight: one.concentration / total,
            mean: centre + scale * one.mean,
            std_dev: scale * (one.rate / one.shape).sqrt().max(MIN_RELATIVE_STD),
        })
        .filter(|component| component.weight > MIN_WEIGHT)
        .collect();
    components.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    components
}

/// The posterior of a component: a Dirichlet weight, a normal mean and a gamma precision. The priors are
/// those of standardised values (mean 0, variance 1), each with the weight of one point.
struct Posterior {
    concentration: f64,
    n_points: f64,
    mean: f64,
    shape: f64,
    rate: f64,
}

impl Posterior {
    fn of(points: &[f64], responsibilities: &[Vec<f64>], which: usize) -> Self {
        let weighted = || points.iter().zip(responsibilities).map(|(point, row)| (point, row[which]));
        let count: f64 = weighted().map(|(_, weight)| weight).sum::<f64>() + 1e-10;
        let mean = weighted().map(|(point, weight)| point * weight).sum::<f64>() / count;
        let scatter: f64 = weighted().map(|(point, weight)| weight * (point - mean).powi(2)).sum();
        let n_points = 1.0 + count;
        Self {
            concentration: CONCENTRATION + count,
            n_points,
            mean: count * mean / n_points,
            shape: 0.5 * (1.0 + count),
            rate: 0.5 * (MIN_RELATIVE_STD + scatter + count / n_points * mean * mean),
        }
    }

    fn expected(&self, total: f64) -> Expected {
        let log_weight = digamma(self.concentration) - digamma(total);
        let log_precision = digamma(self.shape) - self.rate.ln();
        Expected {
            constant: log_weight + 0.5 * log_precision - 0.5 / self.n_points,
            half_precision: 0.5 * self.shape / self.rate,
            mean: self.mean,
        }
    }
}

/// The expected log density of a component, as a quadratic function of the point.
struct Expected {
    constant: f64,
    half_precision: f64,
    mean: f64,
}

impl Expected {
    fn log_responsibility(&self, point: f64) -> f64 {
        self.constant - self.half_precision * (point - self.mean).powi(2)
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn two_clusters_are_found_with_their_weights() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let values: Vec<f64> = (0..4_000)
            .map(|index| {
                let normal: f64 = rng.sample(StandardNormal);
                if index % 4 == 0 { 100.0 + 2.0 * normal } else { 10.0 + 0.5 * normal }
            })
            .collect();
        let found = fit_components(&values, 10, 0);
        let heavy: Vec<&MixtureComponent> =
            found.iter().filter(|component| component.weight > 0.05).collect();
        let near = |mean: f64| {
            heavy
                .iter()
                .filter(|component| (component.mean - mean).abs() < 3.0)
                .map(|component| component.weight)
                .sum::<f64>()
        };
        assert!((near(10.0) - 0.75).abs() < 0.02 && (near(100.0) - 0.25).abs() < 0.02, "{found:?}");
        assert_eq!(fit_components(&[5.0; 10], 10, 0).len(), 1);
        assert_eq!(fit_components(&[], 10, 0), []);
        assert_eq!(fit_components(&[f64::NAN, f64::INFINITY], 10, 0), []);
    }
}
