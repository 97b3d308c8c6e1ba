//! How windows differ together: the middle of the deviations of a group, held against what such middles are like when
//! all is well. A difference that is too small to see in one window is large in the middle of many.
//!
//! All estimates are medians, so that a few windows that should not have been in the training data change little.

use learn::artifact::Tensor;
use learn::moments::{NORMAL_WIDTH, median, median_deviation};

/// A median of many normal numbers varies by this much more than their mean.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// How the deviations of a group become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    Mean,
    /// One member that is far off does not drag the others along.
    Median,
}

impl Pool {
    pub fn middle(self, deviations: &[Vec<f64>]) -> Vec<f64> {
        let size = deviations.first().map_or(0, Vec::len);
        let column = |axis: usize| deviations.iter().map(move |deviation| deviation[axis]);
        match self {
            Self::Mean => (0..size).map(|axis| column(axis).sum::<f64>() / deviations.len() as f64).collect(),
            Self::Median => (0..size).map(|axis| median(column(axis).collect())).collect(),
        }
    }

    fn excess(self, n_members: usize) -> f64 {
        if self == Self::Median && n_members > 2 { MEDIAN_VARIANCE } else { 1.0 }
    }
}

/// Of middles of `n` deviations, the variance along each dimension is `shared + single / n`: what the members of a group
/// have in common, and what each has of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    pool: Pool,
    centre: Vec<f64>,
    shared: Vec<f64>,
    single: Vec<f64>,
}

impl Level {
    /// From groups of deviations of normal windows, and of others that were held out: how far middles are from each
    /// other one hour says nothing of the next.
    ///
    /// `doubt` is how much more groups may vary than these few do.
    pub fn fit(
        groups: &[Vec<Vec<f64>>],
        held_out: &[Vec<Vec<f64>>],
        size: usize,
        pool: Pool,
        doubt: f64,
    ) -> Self {
        let middle = |group: &Vec<Vec<f64>>| pool.middle(group);
        let middles: Vec<Vec<f64>> = groups.iter().map(middle).collect();
        let later: Vec<Vec<f64>> = held_out.iter().map(middle).collect();
        let (mut centre, mut shared, mut single) = (Vec::new(), Vec::new(), Vec::new());
        for axis in 0..size {
            let mut own = Vec::new();
            for (group, middle) in groups.iter().zip(&middles).filter(|(group, _)| group.len() > 1) {
                // Deviations from a middle that they are part of are a little too small.
                let stretch = (group.len() as f64 / (group.len() as f64 - 1.0)).sqrt();
                own.extend(group.iter().map(|deviation| (deviation[axis] - middle[axis]) * stretch));
            }
            // Where no group has two members, nothing is known of what members have of their own.
            let of_single = if own.is_empty() { 1.0 } else { median_deviation(own).powi(2).max(1e-2) };
            let of_centre = median(middles.iter().map(|middle| middle[axis]).collect());
            let off = later.iter().map(|middle| (middle[axis] - of_centre).abs()).collect();
            let share =
                held_out.iter().map(|group| pool.excess(group.len()) / group.len() as f64).sum::<f64>();
            let by_chance = of_single * share / held_out.len().max(1) as f64;
            centre.push(of_centre);
            shared.push(doubt * ((NORMAL_WIDTH * median(off)).powi(2) - by_chance).max(1e-2));
            single.push(of_single);
        }
        Self { pool, centre, shared, single }
    }

    /// How far the middle of a group is from what is normal, squared, for one dimension on the average.
    pub fn distance(&self, deviations: &[Vec<f64>]) -> f64 {
        let middle = self.pool.middle(deviations);
        let share = self.pool.excess(deviations.len()) / deviations.len() as f64;
        let along = |axis: usize| {
            let variance = self.shared[axis] + self.single[axis] * share;
            (middle[axis] - self.centre[axis]).powi(2) / variance
        };
        (0..middle.len()).map(along).sum::<f64>() / middle.len().max(1) as f64
    }

    /// How much of what a group has in common each member has: none, if it is as usual or goes another way, at most all.
    pub fn parts(&self, deviations: &[Vec<f64>]) -> Vec<f64> {
        let middle = self.pool.middle(deviations);
        let weights: Vec<f64> = (0..middle.len())
            .map(|axis| (middle[axis] - self.centre[axis]) / (self.shared[axis] + self.single[axis]))
            .collect();
        let along = |deviation: &[f64]| -> f64 {
            let off = deviation.iter().zip(&self.centre).map(|(value, centre)| value - centre);
            off.zip(&weights).map(|(off, weight)| off * weight).sum()
        };
        let whole = along(&middle).max(f64::MIN_POSITIVE);
        deviations.iter().map(|deviation| (along(deviation) / whole).clamp(0.0, 1.0)).collect()
    }

    /// How far a member is from the others of its group, the same way; zero for one that is alone.
    pub fn distance_from_peers(&self, deviations: &[Vec<f64>], which: usize) -> f64 {
        if deviations.len() < 2 {
            return 0.0;
        }
        let others: Vec<Vec<f64>> = deviations
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != which)
            .map(|(_, one)| one.clone())
            .collect();
        let middle = Pool::Median.middle(&others);
        let share = 1.0 + Pool::Median.excess(others.len()) / others.len() as f64;
        let along =
            |axis: usize| (deviations[which][axis] - middle[axis]).powi(2) / (self.single[axis] * share);
        (0..middle.len()).map(along).sum::<f64>() / middle.len() as f64
    }

    pub fn to_tensor(&self) -> Tensor {
        let values = [&self.centre, &self.shared, &self.single];
        let values = values.into_iter().flatten().map(|value| *value as f32).collect();
        Tensor { shape: vec![3, self.centre.len()], values }
    }

    pub fn from_tensor(tensor: &Tensor, pool: Pool) -> Option<Self> {
        let [3, size] = tensor.shape[..] else { return None };
        let mut rows =
            tensor.values.chunks_exact(size).map(|row| row.iter().map(|value| f64::from(*value)).collect());
        Some(Self { pool, centre: rows.next()?, shared: rows.next()?, single: rows.next()? })
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_distr::StandardNormal;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn groups(n_groups: usize, n_members: usize, together: f64) -> Vec<Vec<Vec<f64>>> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
        let mut draw = || rng.sample::<f64, _>(StandardNormal);
        let mut group = || {
            let common: Vec<f64> = (0..4).map(|_| together * draw()).collect();
            (0..n_members).map(|_| common.iter().map(|common| common + draw()).collect()).collect()
        };
        (0..n_groups).map(|_| group()).collect()
    }

    #[test]
    fn what_is_small_in_each_is_large_in_the_middle_of_many() {
        let level = Level::fit(&groups(400, 30, 0.1), &groups(100, 30, 0.1), 4, Pool::Median, 1.0);
        let usual: f64 = groups(100, 30, 0.1).iter().map(|group| level.distance(group)).sum::<f64>() / 100.0;
        assert!((0.6..1.6).contains(&usual), "{usual}");
        let mut shifted = groups(1, 30, 0.1).remove(0);
        shifted.iter_mut().for_each(|deviation| deviation[0] += 2.0);
        assert!(level.distance(&shifted) > 4.0 * usual);
        let mut one_off = groups(1, 30, 0.1).remove(0);
        one_off[3].iter_mut().for_each(|value| *value += 100.0);
        assert!(level.distance(&one_off) < 3.0 * usual, "one member does not drag the others along");
        assert!(
            level.distance_from_peers(&one_off, 3) > 100.0 && level.distance_from_peers(&one_off, 4) < 10.0
        );
    }

    #[test]
    fn what_most_have_in_common_counts_for_those_that_have_it() {
        let level = Level::fit(&groups(400, 9, 0.1), &groups(100, 9, 0.1), 4, Pool::Median, 1.0);
        let mut most = groups(1, 9, 0.1).remove(0);
        most[..6].iter_mut().for_each(|deviation| deviation[1] += 50.0);
        let parts = level.parts(&most);
        assert!(parts[..6].iter().all(|part| *part > 0.9), "{parts:?}");
        assert!(parts[6..].iter().all(|part| *part < 0.1), "{parts:?}");
    }
}
