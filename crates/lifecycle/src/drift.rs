//! Drift: how much the jobs of a day differ from those that the champion was trained with.
//!
//! Jobs are the units, not windows, which are correlated. A distance counts as drift if it is larger than nearly all
//! distances between two random halves of the same jobs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use archive::Archive;
use detect::{DetectError, Reading, Scope, TrainedDetector};
use learn::stats::{distances, mean, squared_distance, std_dev};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use workload::{Control, JobId, NodeName};

/// Jobs on either side without which nothing is said.
const MIN_JOBS: usize = 10;
/// Random divisions of the jobs, and the part of them that has to be exceeded.
const N_PERMUTATIONS: usize = 400;
const QUANTILE: f64 = 0.99;
/// Embeddings that are kept of each job.
const MAX_POINTS: usize = 8;
/// A job is new if it is farther from all others than this part of the reference jobs are.
const NEW_QUANTILE: f64 = 0.99;
const NEW_FACTOR: f64 = 1.5;
/// New jobs that are named.
const MAX_NEW: usize = 20;

/// The distance of one quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distance {
    /// A channel, or `score` for the logarithm of the reconstruction error.
    pub name: String,
    /// The Wasserstein distance, in standard deviations of the reference.
    pub distance: f64,
    /// What chance alone gives.
    pub threshold: f64,
}

impl Distance {
    pub fn is_drift(&self) -> bool {
        self.distance > self.threshold
    }
}

/// How a day differs from a reference.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    pub n_reference: usize,
    pub n_jobs: usize,
    /// Empty if there are too few jobs.
    pub distances: Vec<Distance>,
    /// How many jobs resemble none of the reference, and some of them.
    pub n_new: usize,
    pub new_jobs: Vec<JobId>,
}

impl Drift {
    /// Compares the jobs of a part of the archive with those of another.
    pub fn between(
        archive: &Archive,
        detector: &TrainedDetector,
        reference: Scope,
        day: Scope,
        seed: u64,
        control: Control<'_>,
    ) -> Result<Self, DetectError> {
        let jobs = |scope: Scope| jobs_of(archive, detector, scope, control);
        Ok(Self::of_jobs(&detector.channels(), &jobs(reference)?, &jobs(day)?, seed))
    }

    fn of_jobs(channels: &[&str], reference: &[JobSummary], day: &[JobSummary], seed: u64) -> Self {
        let (n_reference, n_jobs) = (reference.len(), day.len());
        if n_reference.min(n_jobs) < MIN_JOBS {
            return Self { n_reference, n_jobs, ..Self::default() };
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let names = channels.iter().map(|name| (*name).to_owned()).chain(["score".to_owned()]);
        let distances = names.enumerate().map(|(index, name)| {
            let values = |jobs: &[JobSummary]| jobs.iter().map(|job| job.values[index]).collect::<Vec<f64>>();
            distance(name, &values(reference), &values(day), &mut rng)
        });
        let distances = distances.collect();
        let new = new_jobs(reference, day);
        Self {
            n_reference,
            n_jobs,
            distances,
            n_new: new.len(),
            new_jobs: new.into_iter().take(MAX_NEW).collect(),
        }
    }
}

/// A job on a node.
struct JobSummary {
    job: JobId,
    /// The mean of each channel, and the logarithm of the mean reconstruction error.
    values: Vec<f64>,
    embeddings: Vec<Vec<f32>>,
}

fn jobs_of(
    archive: &Archive,
    detector: &TrainedDetector,
    scope: Scope,
    control: Control<'_>,
) -> Result<Vec<JobSummary>, DetectError> {
    let (spec, filter) = (detector.window_spec(detector.config.window), scope.filter());
    let reading = Reading { archive, filter: &filter, spec: &spec, control };
    let mut jobs: BTreeMap<(NodeName, JobId), Sums> = BTreeMap::new();
    reading.for_each_batch::<DetectError>(|batch| {
        for (thread, finding) in batch.threads().iter().zip(detector.examine(&batch)) {
            let Some(job) = thread.job() else { continue };
            let sums = jobs.entry((thread.node.clone(), job.clone())).or_default();
            sums.channels.resize(batch.n_channels(), 0.0);
            for step in thread.values.chunks_exact(batch.n_channels()) {
                for (sum, value) in sums.channels.iter_mut().zip(step) {
                    *sum += f64::from(*value);
                }
                sums.n_steps += 1;
            }
            sums.error += finding.error();
            sums.n_windows += 1;
            if sums.embeddings.len() < MAX_POINTS {
                sums.embeddings.push(finding.embedding);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(jobs.into_iter().map(|((_, job), sums)| sums.summary(job)).collect())
}

#[derive(Default)]
struct Sums {
    channels: Vec<f64>,
    n_steps: usize,
    error: f64,
    n_windows: usize,
    embeddings: Vec<Vec<f32>>,
}

impl Sums {
    fn summary(self, job: JobId) -> JobSummary {
        let mut values: Vec<f64> = self.channels.iter().map(|sum| sum / self.n_steps.max(1) as f64).collect();
        values.push((self.error / self.n_windows.max(1) as f64 + 1e-6).log10());
        JobSummary { job, values, embeddings: self.embeddings }
    }
}

/// The distance of a quantity, and what chance alone gives.
fn distance(name: String, reference: &[f64], day: &[f64], rng: &mut Xoshiro256PlusPlus) -> Distance {
    let scale = std_dev(reference).max(1e-9);
    let mut pooled: Vec<f64> = reference.iter().chain(day).copied().collect();
    let mut by_chance: Vec<f64> = (0..N_PERMUTATIONS)
        .map(|_| {
            pooled.shuffle(rng);
            let (a, b) = pooled.split_at(reference.len());
            wasserstein(a, b) / scale
        })
        .collect();
    by_chance.sort_by(f64::total_cmp);
    let place = ((N_PERMUTATIONS as f64 * QUANTILE) as usize).min(N_PERMUTATIONS - 1);
    Distance { name, distance: wasserstein(reference, day) / scale, threshold: by_chance[place] }
}

/// The Wasserstein distance of two samples.
fn wasserstein(one: &[f64], other: &[f64]) -> f64 {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    distances(&sorted(one), &sorted(other)).wasserstein
}

/// Jobs whose windows are far from those of every reference job.
fn new_jobs(reference: &[JobSummary], day: &[JobSummary]) -> Vec<JobId> {
    let mut usual: Vec<f64> = reference
        .iter()
        .enumerate()
        .map(|(at, job)| {
            nearest(job, reference.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, job)| job))
        })
        .collect();
    usual.sort_by(f64::total_cmp);
    let place = (usual.len() as f64 * NEW_QUANTILE) as usize;
    let Some(limit) = usual.get(place).or(usual.last()) else { return Vec::new() };
    let is_new = |job: &&JobSummary| nearest(job, reference.iter()) > limit * NEW_FACTOR;
    day.iter().filter(is_new).map(|job| job.job.clone()).collect()
}

/// How far the windows of a job are from the nearest windows of others, in the mean.
fn nearest<'a>(job: &JobSummary, others: impl Iterator<Item = &'a JobSummary>) -> f64 {
    let mut least = vec![f64::INFINITY; job.embeddings.len()];
    for other in others {
        for (least, embedding) in least.iter_mut().zip(&job.embeddings) {
            for point in &other.embeddings {
                *least = least.min(squared_distance(point, embedding));
            }
        }
    }
    mean(&least.into_iter().map(f64::sqrt).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    /// Jobs with a mean of one channel and an embedding around it.
    fn jobs(n_jobs: usize, mean: f64, seed: u64) -> Vec<JobSummary> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut job = |number: usize| {
            let value = mean + rng.random_range(-0.1..0.1);
            JobSummary {
                job: JobId::new(number.to_string()).unwrap(),
                values: vec![value, -2.0 + rng.random_range(-0.1..0.1)],
                embeddings: (0..4).map(|_| vec![value as f32 + rng.random_range(-0.01..0.01)]).collect(),
            }
        };
        (0..n_jobs).map(&mut job).collect()
    }

    #[test]
    fn days_that_are_alike_do_not_drift_and_others_do() {
        let drifts = |day: &[JobSummary]| {
            let drift = Drift::of_jobs(&["user"], &jobs(60, 0.5, 1), day, 3);
            drift.distances.iter().map(Distance::is_drift).collect::<Vec<bool>>()
        };
        assert_eq!(drifts(&jobs(50, 0.5, 2)), [false, false]);
        assert_eq!(drifts(&jobs(50, 0.56, 2)), [true, false]);
        assert!(drifts(&jobs(5, 0.9, 2)).is_empty(), "too few jobs");
    }

    #[test]
    fn jobs_unlike_all_others_are_new() {
        let mut day = jobs(30, 0.5, 2);
        assert_eq!(new_jobs(&jobs(60, 0.5, 1), &day), []);
        let strange = JobSummary { job: JobId::new("strange").unwrap(), ..jobs(1, 0.9, 4).remove(0) };
        day.push(strange);
        let new: Vec<String> = new_jobs(&jobs(60, 0.5, 1), &day).iter().map(ToString::to_string).collect();
        assert_eq!(new, ["strange"]);
    }
}
