//! The distribution of pooled deviations: the mean or median deviation of a group of windows, compared with such
//! means or medians of normal groups. A difference too small to see in one window is visible in many.
//!
//! All estimates are medians, so that a few anomalous windows in the training data change little.

use learn::artifact::restore::{RestoreError, ensure, expect};
use learn::artifact::{Tensor, Tensors};
use learn::stats::{MAD_TO_STD, mad_std, median};

/// The variance of a median of many normal variables, relative to that of their mean.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;
/// No variance is estimated below this.
const MIN_VARIANCE: f64 = 1e-2;

/// How the deviations of a group are pooled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    Mean,
    /// Insensitive to one member that is far off.
    Median,
}

impl Pool {
    /// The pooled deviation along each dimension.
    pub fn pool(self, deviations: &[Vec<f64>]) -> Vec<f64> {
        let size = deviations.first().map_or(0, Vec::len);
        let column = |axis: usize| deviations.iter().map(move |deviation| deviation[axis]);
        match self {
            Self::Mean => (0..size).map(|axis| column(axis).sum::<f64>() / deviations.len() as f64).collect(),
            Self::Median => (0..size).map(|axis| median(column(axis).collect())).collect(),
        }
    }

    /// The variance of the pooled deviation of `n_members` independent members of variance one.
    fn variance(self, n_members: usize) -> f64 {
        let excess = if self == Self::Median && n_members > 2 { MEDIAN_VARIANCE } else { 1.0 };
        excess / n_members as f64
    }
}

/// The normal distribution of pooled deviations. For groups of `n` members, the variance along each dimension is
/// `common + individual / n`: what the members share, and what is particular to each.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupDeviation {
    pool: Pool,
    centre: Vec<f64>,
    common: Vec<f64>,
    individual: Vec<f64>,
}

impl GroupDeviation {
    /// Fits groups of deviations of training windows. The common variance comes from held-out groups, because
    /// groups of one hour underestimate how much groups of the next hour differ.
    ///
    /// `inflation` multiplies the common variance, to allow for how few groups there are.
    pub fn fit(
        groups: &[Vec<Vec<f64>>],
        held_out: &[Vec<Vec<f64>>],
        size: usize,
        pool: Pool,
        inflation: f64,
    ) -> Self {
        let pooled = |group: &Vec<Vec<f64>>| pool.pool(group);
        let of_train: Vec<Vec<f64>> = groups.iter().map(pooled).collect();
        let of_held_out: Vec<Vec<f64>> = held_out.iter().map(pooled).collect();
        let sampling: f64 = held_out.iter().map(|group| pool.variance(group.len())).sum();
        let (mut centre, mut common, mut individual) = (Vec::new(), Vec::new(), Vec::new());
        for axis in 0..size {
            let mut residuals = Vec::new();
            for (group, pooled) in groups.iter().zip(&of_train).filter(|(group, _)| group.len() > 1) {
                // Bessel's correction: residuals from an estimate that includes them are too small.
                let correction = (group.len() as f64 / (group.len() as f64 - 1.0)).sqrt();
                residuals.extend(group.iter().map(|member| (member[axis] - pooled[axis]) * correction));
            }
            // Without groups of two, the individual variance is that of whitened deviations: one.
            let of_individual =
                if residuals.is_empty() { 1.0 } else { mad_std(residuals).powi(2).max(MIN_VARIANCE) };
            let of_centre = median(of_train.iter().map(|pooled| pooled[axis]).collect());
            let offsets = of_held_out.iter().map(|pooled| (pooled[axis] - of_centre).abs()).collect();
            let expected = of_individual * sampling / held_out.len().max(1) as f64;
            centre.push(of_centre);
            common.push(inflation * ((MAD_TO_STD * median(offsets)).powi(2) - expected).max(MIN_VARIANCE));
            individual.push(of_individual);
        }
        Self { pool, centre, common, individual }
    }

    /// The deviation of a group from normal groups along each dimension.
    pub fn offsets(&self, deviations: &[Vec<f64>]) -> Vec<Offset> {
        let pooled = self.pool.pool(deviations);
        let sampling = self.pool.variance(deviations.len());
        let offset = |axis: usize| {
            let variance = self.common[axis] + self.individual[axis] * sampling;
            Offset::new(pooled[axis] - self.centre[axis], variance)
        };
        (0..pooled.len()).map(offset).collect()
    }

    /// The mean squared z-score of a group.
    pub fn distance(&self, deviations: &[Vec<f64>]) -> f64 {
        mean_square(&self.offsets(deviations))
    }

    /// How much each member takes part in the deviation of its group: 0 if it is normal or deviates in another
    /// direction, at most 1.
    pub fn participation(&self, deviations: &[Vec<f64>]) -> Vec<f64> {
        let pooled = self.pool.pool(deviations);
        let weights: Vec<f64> = (0..pooled.len())
            .map(|axis| (pooled[axis] - self.centre[axis]) / (self.common[axis] + self.individual[axis]))
            .collect();
        let projection = |deviation: &[f64]| -> f64 {
            let offsets = deviation.iter().zip(&self.centre).map(|(value, centre)| value - centre);
            offsets.zip(&weights).map(|(offset, weight)| offset * weight).sum()
        };
        let whole = projection(&pooled).max(f64::MIN_POSITIVE);
        deviations.iter().map(|deviation| (projection(deviation) / whole).clamp(0.0, 1.0)).collect()
    }

    /// The deviation of one member from the median of the others along each dimension; zero without others.
    pub fn offsets_from_peers(&self, deviations: &[Vec<f64>], member: usize) -> Vec<Offset> {
        let size = deviations[member].len();
        if deviations.len() < 2 {
            return vec![Offset { value: 0.0, z: 0.0 }; size];
        }
        let others: Vec<Vec<f64>> = deviations
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != member)
            .map(|(_, deviation)| deviation.clone())
            .collect();
        let centre = Pool::Median.pool(&others);
        let sampling = 1.0 + Pool::Median.variance(others.len());
        let offset = |axis: usize| {
            Offset::new(deviations[member][axis] - centre[axis], self.individual[axis] * sampling)
        };
        (0..size).map(offset).collect()
    }

    /// The mean squared z-score of a member relative to the others.
    pub fn distance_from_peers(&self, deviations: &[Vec<f64>], member: usize) -> f64 {
        mean_square(&self.offsets_from_peers(deviations, member))
    }

    pub fn to_tensor(&self) -> Tensor {
        let values = [&self.centre, &self.common, &self.individual];
        let values: Vec<f32> = values.into_iter().flatten().map(|value| *value as f32).collect();
        Tensor::new(vec![3, self.centre.len()], values)
    }

    /// The distribution that [`Self::to_tensor`] stored, of deviations with `size` dimensions.
    pub fn restore(tensors: &Tensors, name: &str, size: usize, pool: Pool) -> Result<Self, RestoreError> {
        let values: Vec<f64> =
            expect(tensors, name, &[3, size])?.iter().map(|value| f64::from(*value)).collect();
        let (centre, variances) = values.split_at(size);
        ensure(variances.iter().all(|variance| *variance > 0.0), "the variance of a level is not positive")?;
        let (common, individual) = variances.split_at(size);
        let [centre, common, individual] = [centre, common, individual].map(<[f64]>::to_vec);
        Ok(Self { pool, centre, common, individual })
    }
}

/// A deviation along one dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offset {
    /// In units of the whitened deviations of single windows.
    pub value: f64,
    /// In standard deviations of the pooled deviation.
    pub z: f64,
}

impl Offset {
    pub fn new(value: f64, variance: f64) -> Self {
        Self { value, z: value / variance.sqrt() }
    }
}

fn mean_square(offsets: &[Offset]) -> f64 {
    offsets.iter().map(|offset| offset.z * offset.z).sum::<f64>() / offsets.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn groups(n_groups: usize, n_members: usize, common: f64) -> Vec<Vec<Vec<f64>>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
        let mut draw = || rng.sample::<f64, _>(StandardNormal);
        let mut members = || {
            let common: Vec<f64> = (0..4).map(|_| common * draw()).collect();
            (0..n_members).map(|_| common.iter().map(|common| common + draw()).collect()).collect()
        };
        (0..n_groups).map(|_| members()).collect()
    }

    #[test]
    fn a_small_common_deviation_is_visible_in_a_large_group() {
        let group = GroupDeviation::fit(&groups(400, 30, 0.1), &groups(100, 30, 0.1), 4, Pool::Median, 1.0);
        let normal: f64 = groups(100, 30, 0.1).iter().map(|one| group.distance(one)).sum::<f64>() / 100.0;
        assert!((0.6..1.6).contains(&normal), "{normal}");
        let mut shifted = groups(1, 30, 0.1).remove(0);
        for deviation in &mut shifted {
            deviation[0] += 2.0;
        }
        assert!(group.distance(&shifted) > 4.0 * normal);
        let mut one_off = groups(1, 30, 0.1).remove(0);
        for value in &mut one_off[3] {
            *value += 100.0;
        }
        assert!(group.distance(&one_off) < 3.0 * normal, "one member does not move the median");
        assert!(
            group.distance_from_peers(&one_off, 3) > 100.0 && group.distance_from_peers(&one_off, 4) < 10.0
        );
    }

    #[test]
    fn a_common_deviation_counts_for_the_members_that_share_it() {
        let group = GroupDeviation::fit(&groups(400, 9, 0.1), &groups(100, 9, 0.1), 4, Pool::Median, 1.0);
        let mut most = groups(1, 9, 0.1).remove(0);
        for deviation in &mut most[..6] {
            deviation[1] += 50.0;
        }
        let parts = group.participation(&most);
        assert!(parts[..6].iter().all(|part| *part > 0.9), "{parts:?}");
        assert!(parts[6..].iter().all(|part| *part < 0.1), "{parts:?}");
    }
}
