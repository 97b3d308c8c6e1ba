//! Near copies: jobs with the user and the size of another job, and nearly its interval and run time.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::features::FeatureTable;
use crate::schema::Role;

/// The relative difference up to which two numbers count as nearly equal.
const NEAR: f64 = 0.02;

/// What copies have in common with the original: the bits of the user and of the size.
pub(super) type UserAndSize = (u64, u64);

/// What decides whether a job is a near copy of another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CopiedPart {
    pub user_and_size: UserAndSize,
    pub interval: f64,
    pub run_time: f64,
}

impl CopiedPart {
    /// Values that a trace does not have are 0.
    pub fn new(user: f64, size: f64, interval: f64, run_time: f64) -> Self {
        Self { user_and_size: (user.to_bits(), size.to_bits()), interval, run_time }
    }

    /// Those of all jobs.
    pub fn all(jobs: &FeatureTable) -> Vec<Self> {
        let sizes = jobs.with_role(Role::Nodes).or_else(|| jobs.with_role(Role::Cores));
        let (users, run_times) = (jobs.with_role(Role::User), jobs.with_role(Role::RunTime));
        let value = |values: Option<&[f64]>, job: usize| values.map_or(0.0, |values| values[job]);
        let part = |job: usize| {
            Self::new(value(users, job), value(sizes, job), jobs.intervals()[job], value(run_times, job))
        };
        (0..jobs.n_jobs()).map(part).collect()
    }
}

/// Intervals and run times of jobs, by interval within each user and size.
#[derive(Debug, Clone)]
pub(crate) struct Originals {
    groups: HashMap<UserAndSize, Vec<(f64, f64)>>,
}

impl Originals {
    pub fn new(jobs: &[CopiedPart]) -> Self {
        let mut groups: HashMap<UserAndSize, Vec<(f64, f64)>> = HashMap::new();
        for job in jobs {
            groups.entry(job.user_and_size).or_default().push((job.interval, job.run_time));
        }
        groups.values_mut().for_each(|group| {
            group.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            group.dedup();
        });
        Self { groups }
    }

    /// Whether a job is a near copy of one of these.
    pub fn have_near(&self, job: CopiedPart) -> bool {
        let Some(group) = self.groups.get(&job.user_and_size) else { return false };
        let is_near = |original: f64, other: f64| (original - other).abs() <= NEAR * original.abs();
        let first = group.partition_point(|one| one.0 < job.interval / (1.0 + NEAR) - 1e-9);
        let mut candidates =
            group[first..].iter().take_while(|one| one.0 <= job.interval / (1.0 - NEAR) + 1e-9);
        candidates.any(|one| is_near(one.0, job.interval) && is_near(one.1, job.run_time))
    }

    /// The fraction of jobs that are near copies of one of these.
    pub fn fraction_near(&self, jobs: &[CopiedPart]) -> f64 {
        jobs.par_iter().filter(|job| self.have_near(**job)).count() as f64 / jobs.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_copies_have_the_user_and_the_size_and_nearly_the_times_of_the_original() {
        let originals = Originals::new(&[CopiedPart::new(1.0, 64.0, 100.0, 1_000.0)]);
        let is_copy = |user, size, interval, run_time| {
            originals.have_near(CopiedPart::new(user, size, interval, run_time))
        };
        assert!(is_copy(1.0, 64.0, 101.0, 985.0));
        assert!(!is_copy(2.0, 64.0, 100.0, 1_000.0) && !is_copy(1.0, 32.0, 100.0, 1_000.0));
        assert!(!is_copy(1.0, 64.0, 103.0, 1_000.0) && !is_copy(1.0, 64.0, 100.0, 970.0));
    }
}
