//! Principal component analysis.

use nalgebra::{DMatrix, SymmetricEigen};

use crate::Matrix;
use crate::artifact::restore::{RestoreError, expect};
use crate::artifact::{Tensor, Tensors};

/// The covariance matrix of this many columns has half a gigabyte.
const MAX_COLUMNS: usize = 8_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PcaError {
    #[error("{n_points} points are too few for principal components; at least 2 are needed")]
    TooFew { n_points: usize },
    #[error("{n_columns} columns are too many for principal components; at most {MAX_COLUMNS} are supported")]
    TooManyColumns { n_columns: usize },
    #[error("{n_columns} columns have no {n_components} principal components")]
    TooManyComponents { n_components: usize, n_columns: usize },
}

/// The directions of greatest variance of some points, in descending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pca {
    mean: Vec<f64>,
    /// One row per component.
    components: Vec<Vec<f64>>,
    /// Variance along each component.
    pub explained_variance: Vec<f64>,
    /// The same as a fraction of the total variance; zero if the points do not vary.
    pub explained_share: Vec<f64>,
}

impl Pca {
    pub fn fit(points: &Matrix, n_components: usize) -> Result<Self, PcaError> {
        let (n_points, n_columns) = (points.n_rows(), points.n_columns());
        if n_points < 2 {
            return Err(PcaError::TooFew { n_points });
        }
        if n_columns > MAX_COLUMNS {
            return Err(PcaError::TooManyColumns { n_columns });
        }
        if n_components == 0 || n_components > n_columns {
            return Err(PcaError::TooManyComponents { n_components, n_columns });
        }
        let mean = points.column_means();
        let centred = DMatrix::from_fn(n_points, n_columns, |row, column| {
            f64::from(points.row(row)[column]) - mean[column]
        });
        let covariance = centred.transpose() * &centred / (n_points - 1) as f64;
        let all_variance = covariance.trace();
        let eigen = SymmetricEigen::new(covariance);
        let mut order: Vec<usize> = (0..n_columns).collect();
        order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
        order.truncate(n_components);
        let component = |index: &usize| {
            let mut component: Vec<f64> = eigen.eigenvectors.column(*index).iter().copied().collect();
            fix_sign(&mut component);
            component
        };
        let explained_variance: Vec<f64> =
            order.iter().map(|index| eigen.eigenvalues[*index].max(0.0)).collect();
        let share = |variance: &f64| if all_variance > 0.0 { variance / all_variance } else { 0.0 };
        Ok(Self {
            components: order.iter().map(component).collect(),
            explained_share: explained_variance.iter().map(share).collect(),
            explained_variance,
            mean,
        })
    }

    pub fn n_components(&self) -> usize {
        self.components.len()
    }

    /// The label of a chart's axis along a component, counted from zero. Without the explained variance if it
    /// is unknown.
    pub fn axis_label(&self, component: usize) -> String {
        let name = format!("PC {}", component + 1);
        match self.explained_share.get(component) {
            Some(share) => format!("{name} ({:.0} % of variance)", share * 100.0),
            None => name,
        }
    }

    /// The coordinates of points along the components.
    ///
    /// # Panics
    /// If the points do not have as many columns as the fitted ones.
    pub fn transform(&self, points: &Matrix) -> Matrix {
        assert_eq!(points.n_columns(), self.mean.len(), "the points have another number of columns");
        let along = |point: &[f32], component: &[f64]| -> f32 {
            let terms = point.iter().zip(&self.mean).zip(component);
            terms.map(|((value, mean), weight)| (f64::from(*value) - mean) * weight).sum::<f64>() as f32
        };
        let values = points
            .rows()
            .flat_map(|point| self.components.iter().map(move |component| along(point, component)));
        Matrix::new(values.collect(), self.n_components())
    }
}

impl Pca {
    /// The points that have these coordinates along the components.
    pub fn reconstruct(&self, along: &[f32]) -> Vec<f32> {
        let reconstruct = |along: &[f32]| {
            let mut point = self.mean.clone();
            for (along, component) in along.iter().zip(&self.components) {
                point
                    .iter_mut()
                    .zip(component)
                    .for_each(|(value, weight)| *value += f64::from(*along) * weight);
            }
            point.into_iter().map(|value| value as f32)
        };
        along.chunks_exact(self.n_components()).flat_map(reconstruct).collect()
    }

    /// The mean, then each component, one row each.
    pub fn to_tensor(&self) -> Tensor {
        let rows = std::iter::once(&self.mean).chain(&self.components);
        let values: Vec<f32> = rows.flatten().map(|value| *value as f32).collect();
        Tensor::new(vec![self.n_components() + 1, self.mean.len()], values)
    }

    /// The components that [`Self::to_tensor`] stored, without variances. They have to have this shape.
    pub fn restore(
        tensors: &Tensors,
        name: &str,
        n_components: usize,
        n_columns: usize,
    ) -> Result<Self, RestoreError> {
        let values = expect(tensors, name, &[n_components.saturating_add(1), n_columns])?;
        let mut rows =
            values.chunks_exact(n_columns.max(1)).map(|row| row.iter().map(|v| f64::from(*v)).collect());
        let mean = rows.next().unwrap_or_default();
        Ok(Self {
            mean,
            components: rows.collect(),
            explained_variance: Vec::new(),
            explained_share: Vec::new(),
        })
    }
}

/// Makes the largest entry positive: a direction and its opposite are the same component.
fn fix_sign(component: &mut [f64]) {
    let largest = component
        .iter()
        .copied()
        .fold(0.0, |most: f64, entry| if entry.abs() > most.abs() { entry } else { most });
    if largest < 0.0 {
        component.iter_mut().for_each(|entry| *entry = -*entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_differ_in_one_direction() {
        let points = Matrix::new((0..20).flat_map(|at| [at as f32, 2.0 * at as f32, 1.0]).collect(), 3);
        let pca = Pca::fit(&points, 2).unwrap();
        assert!((pca.explained_share[0] - 1.0).abs() < 1e-9 && pca.explained_share[1].abs() < 1e-9);
        let along = pca.transform(&points);
        let step = along.row(1)[0] - along.row(0)[0];
        assert!((step - 5.0f32.sqrt()).abs() < 1e-5, "{step}");
    }

    #[test]
    fn axes_are_labelled_with_the_share_of_all_variance() {
        // Variances in the ratio 9 : 1, without correlation.
        let points = Matrix::new(vec![3.0, 1.0, 3.0, -1.0, -3.0, 1.0, -3.0, -1.0], 2);
        let pca = Pca::fit(&points, 1).unwrap();
        assert!((pca.explained_share[0] - 0.9).abs() < 1e-9, "{:?}", pca.explained_share);
        assert_eq!(pca.axis_label(0), "PC 1 (90 % of variance)");
        let tensors: Tensors = [("pca".to_owned(), pca.to_tensor())].into();
        let restored = Pca::restore(&tensors, "pca", 1, 2).unwrap();
        assert_eq!(restored.axis_label(0), "PC 1", "variances are not stored");
    }

    #[test]
    fn points_that_do_not_differ_explain_nothing_and_too_few_are_refused() {
        let same = Matrix::new(vec![0.5; 40], 4);
        assert_eq!(Pca::fit(&same, 2).unwrap().explained_share, [0.0, 0.0]);
        assert_eq!(Pca::fit(&Matrix::new(vec![1.0; 4], 4), 1), Err(PcaError::TooFew { n_points: 1 }));
        assert!(Pca::fit(&same, 5).is_err());
        let wide = Matrix::new(vec![0.0; 20_000], 10_000);
        assert_eq!(Pca::fit(&wide, 2), Err(PcaError::TooManyColumns { n_columns: 10_000 }));
    }

    #[test]
    fn components_of_another_shape_are_rejected() {
        let pca = Pca::fit(&Matrix::new((0..20).map(|at| (at % 7) as f32).collect(), 4), 2).unwrap();
        let tensors: Tensors = [("pca".to_owned(), pca.to_tensor())].into();
        assert_eq!(Pca::restore(&tensors, "pca", 2, 4).unwrap().n_components(), 2);
        for (n_components, n_columns) in [(1, 4), (2, 3), (0, 0), (usize::MAX, 4), (2, usize::MAX)] {
            assert!(Pca::restore(&tensors, "pca", n_components, n_columns).is_err());
        }
    }
}
