//! How windows differ together: the mean deviation of a group of windows, held against what such means are like when
//! all is well. A difference that is too small to see in one window is large in the mean of many.

use std::ops::Range;

use learn::artifact::Tensor;

/// Of means of `n` deviations, the variance along each dimension is `shared + single / n`: what the windows of a group
/// have in common, and what each has of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    centre: Vec<f64>,
    shared: Vec<f64>,
    single: Vec<f64>,
}

impl Level {
    /// From the deviations of normal windows, moment by moment, and the groups there.
    pub fn fit<'a>(moments: impl Iterator<Item = (&'a [Vec<f64>], Vec<Range<usize>>)>, size: usize) -> Self {
        let mut groups: Vec<(f64, Vec<f64>)> = Vec::new();
        let mut single = vec![0.0; size];
        let mut n_free = 0.0;
        for (deviations, ranges) in moments {
            for range in ranges {
                let mean = mean(&deviations[range.clone()], size);
                for deviation in &deviations[range.clone()] {
                    let terms = single.iter_mut().zip(deviation.iter().zip(&mean));
                    terms.for_each(|(single, (value, mean))| *single += (value - mean).powi(2));
                }
                n_free += range.len() as f64 - 1.0;
                groups.push((range.len() as f64, mean));
            }
        }
        // Where no group has two windows, nothing is known of what windows have of their own.
        single.iter_mut().for_each(|single| *single = if n_free > 0.0 { *single / n_free } else { 1.0 });
        let n_groups = groups.len().max(1) as f64;
        let mut centre = vec![0.0; size];
        for (_, mean) in &groups {
            centre.iter_mut().zip(mean).for_each(|(centre, value)| *centre += value / n_groups);
        }
        let mut shared = vec![0.0; size];
        for (n_windows, mean) in &groups {
            for axis in 0..size {
                let off = (mean[axis] - centre[axis]).powi(2) - single[axis] / n_windows;
                shared[axis] += off / n_groups;
            }
        }
        shared.iter_mut().for_each(|shared| *shared = shared.max(1e-3));
        Self { centre, shared, single }
    }

    /// How far the mean of a group is from what is normal, squared, for one dimension on the average.
    pub fn distance(&self, deviations: &[Vec<f64>]) -> f64 {
        let mean = mean(deviations, self.centre.len());
        let n_windows = deviations.len() as f64;
        let along = |axis: usize| {
            let variance = self.shared[axis] + self.single[axis] / n_windows;
            (mean[axis] - self.centre[axis]).powi(2) / variance
        };
        (0..mean.len()).map(along).sum::<f64>() / mean.len() as f64
    }

    /// How far a window is from the others of its group, the same way; zero for one that is alone.
    pub fn distance_from_peers(&self, deviations: &[Vec<f64>], which: usize) -> f64 {
        let n_windows = deviations.len() as f64;
        if deviations.len() < 2 {
            return 0.0;
        }
        let mean = mean(deviations, self.centre.len());
        let along = |axis: usize| {
            // The mean without the window itself.
            let others = (mean[axis] * n_windows - deviations[which][axis]) / (n_windows - 1.0);
            let variance = self.single[axis] * (1.0 + 1.0 / (n_windows - 1.0));
            (deviations[which][axis] - others).powi(2) / variance.max(1e-6)
        };
        (0..mean.len()).map(along).sum::<f64>() / mean.len() as f64
    }

    pub fn to_tensor(&self) -> Tensor {
        let values = [&self.centre, &self.shared, &self.single];
        let values = values.into_iter().flatten().map(|value| *value as f32).collect();
        Tensor { shape: vec![3, self.centre.len()], values }
    }

    pub fn from_tensor(tensor: &Tensor) -> Option<Self> {
        let [3, size] = tensor.shape[..] else { return None };
        let mut rows =
            tensor.values.chunks_exact(size).map(|row| row.iter().map(|value| f64::from(*value)).collect());
        Some(Self { centre: rows.next()?, shared: rows.next()?, single: rows.next()? })
    }
}

fn mean(deviations: &[Vec<f64>], size: usize) -> Vec<f64> {
    let mut mean = vec![0.0; size];
    for deviation in deviations {
        mean.iter_mut().zip(deviation).for_each(|(mean, value)| *mean += value);
    }
    mean.iter_mut().for_each(|mean| *mean /= deviations.len().max(1) as f64);
    mean
}
