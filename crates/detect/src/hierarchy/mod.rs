//! A hierarchical detector: thread, job, node, cluster.
//!
//! Each window is described by a few summary features and the reconstruction error of an autoencoder. A Gaussian
//! mixture models the descriptions of normal windows; a window's deviation is its whitened difference from the
//! mixture component it most likely belongs to. Deviations are compared on six [`Level`]s: the window itself, the
//! window against the other threads of its job, and the pooled deviations of its job, its node and the cluster
//! against those of normal ones; a seventh combines those of a single job. The score is −log10 p of the least likely level. The embedding of a window is the
//! mean embedding of its job's threads on the node.

mod features;
mod group;
mod p_value;
mod pooled;

use learn::Matrix;
use std::ops::Range;

use learn::artifact::Tensors;
use learn::artifact::restore::RestoreError;
use learn::mixture::{Mixture, MixtureError};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;
use rayon::prelude::*;
use workload::{Stop, Timestamp};

use self::features::{
    error_feature, feature_names, features, job_feature_names, job_features, n_job_features,
};
use self::group::Pool;
use self::pooled::{LevelScores, Levels, Pooled};
use crate::autoencoder::Autoencoder;
use crate::channel::names;
use crate::detector::{Detector, Finding, Level};
use crate::explain::{Explanation, FeatureDeviation, explain_error, explain_features};
use crate::sample::Sample;
use crate::window::{WindowBatch, WindowSpec};

const N_COMPONENTS: usize = 24;
const N_JOB_COMPONENTS: usize = 16;
/// Jobs are described from this many windows of jobs on.
const MIN_JOB_ROWS: usize = 100;
/// The name under which the mixture of jobs is stored.
const OF_JOBS: &str = "mixture.jobs";
/// The standard deviation of noise that is added to descriptions in training: smaller differences do not count.
const MIN_DIFFERENCE: f32 = 0.02;

#[derive(Debug, Clone)]
pub struct Hierarchy {
    base: Autoencoder,
    mixture: Mixture,
    /// Describes jobs; absent in models of the first versions.
    of_jobs: Option<Mixture>,
    levels: Levels,
}

/// A fitted hierarchy, and two that judge the validation data in its place: the levels are fitted to validation data,
/// whose own distances would be too small.
pub struct FittedHierarchy {
    pub hierarchy: Hierarchy,
    /// Fitted to the validation batches from `boundary` on: it judges those before.
    pub for_earlier: Hierarchy,
    /// Fitted to the validation batches before `boundary`: it judges those after.
    pub for_later: Hierarchy,
    pub boundary: Timestamp,
}

impl Hierarchy {
    pub fn fit(
        base: Autoencoder,
        train: &Sample,
        validation: &Sample,
        seed: u64,
        stop: &Stop,
    ) -> Result<FittedHierarchy, MixtureError> {
        let describe_all = |sample: &Sample| -> Vec<Vec<Vec<f32>>> {
            sample.batches.iter().map(|batch| describe(batch, &base.examine(batch))).collect()
        };
        let (of_train, of_validation) = (describe_all(train), describe_all(validation));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut noisy = |row: Vec<f32>| -> Vec<f32> {
            row.into_iter()
                .map(|value| value + MIN_DIFFERENCE * rng.sample::<f32, _>(StandardNormal))
                .collect()
        };
        let size = of_train.iter().flatten().next().map_or(1, Vec::len);
        let rows: Vec<f32> = of_train.iter().flatten().cloned().flat_map(&mut noisy).collect();
        let mixture = Mixture::fit(&Matrix::new(rows, size), N_COMPONENTS, seed, stop)?;
        let mut rows: Vec<f32> = Vec::new();
        for (batch, described) in train.batches.iter().zip(&of_train) {
            let is_job = |group: &Range<usize>| batch.threads()[group.start].job().is_some();
            for group in batch.groups().into_iter().filter(is_job) {
                rows.extend(noisy(job_features(&described[group])));
            }
        }
        let job_rows = Matrix::new(rows, n_job_features(size));
        // Without any job there is nothing to describe.
        let of_jobs = match job_rows.n_rows() {
            0..MIN_JOB_ROWS => None,
            _ => Some(Mixture::fit(&job_rows, N_JOB_COMPONENTS, seed, stop)?),
        };
        let pool_all = |sample: &Sample, described: &[Vec<Vec<f32>>]| -> Vec<Pooled> {
            let pairs = sample.batches.iter().zip(described);
            pairs
                .map(|(batch, described)| Pooled::new(batch, described, &mixture, of_jobs.as_ref()))
                .collect()
        };
        let (of_train, of_validation) = (pool_all(train, &of_train), pool_all(validation, &of_validation));
        let middle = of_validation.len() / 2;
        let (earlier, later) = of_validation.split_at(middle);
        let fitted_to = |part: &[Pooled]| {
            // A single batch has no other half.
            let part = if part.is_empty() { &of_validation } else { part };
            let levels = Levels::fit(&of_train, part, &of_validation, size);
            Self { base: base.clone(), mixture: mixture.clone(), of_jobs: of_jobs.clone(), levels }
        };
        Ok(FittedHierarchy {
            for_earlier: fitted_to(later),
            for_later: fitted_to(earlier),
            boundary: validation.batches.get(middle).map_or(Timestamp::MIN, WindowBatch::start),
            hierarchy: fitted_to(&of_validation),
        })
    }

    pub fn restore(base: Autoencoder, tensors: &Tensors) -> Result<Self, RestoreError> {
        let n_channels = base.net.shape.n_channels;
        let size = features(&vec![0.0; n_channels], n_channels).len() + 1;
        let mixture = Mixture::restore(tensors, "mixture", size)?;
        let of_jobs = if tensors.contains_key(OF_JOBS) {
            Some(Mixture::restore(tensors, OF_JOBS, n_job_features(size))?)
        } else {
            None
        };
        Ok(Self { base, mixture, of_jobs, levels: Levels::restore(tensors, size)? })
    }

    /// The features of one window that deviate at a level, in natural units.
    fn deviations(
        &self,
        level: Level,
        pooled: &Pooled,
        described: &[Vec<f32>],
        window: usize,
        names: &[String],
    ) -> Vec<FeatureDeviation> {
        if let (Level::Job, Some(of_jobs)) = (level, &self.of_jobs) {
            return job_deviations(
                of_jobs,
                &described[pooled.pooled_windows(level, window)[0].clone()],
                names,
            );
        }
        let offsets = self.levels.offsets(level, pooled, window);
        let jobs = pooled.pooled_windows(level, window);
        let rows_of = |job: &Range<usize>| -> Vec<Vec<f64>> {
            described[job.clone()].iter().map(|row| row.iter().copied().map(f64::from).collect()).collect()
        };
        let job_means: Vec<Vec<f64>> = jobs.iter().map(|job| Pool::Mean.pool(&rows_of(job))).collect();
        let observed =
            if jobs.len() > 1 { Pool::Median.pool(&job_means) } else { Pool::Mean.pool(&job_means) };
        let windows: Vec<usize> = jobs.into_iter().flatten().collect();
        let mut deviations = Vec::new();
        for (axis, (offset, name)) in offsets.into_iter().zip(names).enumerate() {
            let std_of =
                |window: &usize| self.mixture.components()[pooled.components[*window]].conditional_std(axis);
            let std = windows.iter().map(std_of).sum::<f64>() / windows.len() as f64;
            // The expected value is the one from which the offset was measured. Features are square roots.
            let expected = observed[axis] - offset.value * std;
            deviations.push(FeatureDeviation::of_square_root(
                name.clone(),
                observed[axis],
                expected,
                offset.z,
            ));
        }
        deviations
    }
}

impl Detector for Hierarchy {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let findings = self.base.examine(batch);
        let pooled = Pooled::new(batch, &describe(batch, &findings), &self.mixture, self.of_jobs.as_ref());
        let scored = findings.into_iter().zip(self.levels.scores(&pooled));
        let mut findings: Vec<Finding> = scored
            .map(|(finding, LevelScores { score, level, distances })| Finding {
                score,
                level: Some(level),
                distances: distances.to_vec(),
                ..finding
            })
            .collect();
        for group in batch.groups() {
            // Threads without a job have nothing to do with each other.
            if batch.threads()[group.start].job().is_none() {
                continue;
            }
            let embedding = mean_embedding(&findings[group.clone()]);
            for finding in &mut findings[group] {
                finding.embedding.clone_from(&embedding);
            }
        }
        findings
    }

    fn explain(
        &self,
        batch: &WindowBatch,
        findings: &[Finding],
        windows: &[usize],
        spec: &WindowSpec,
    ) -> Vec<Explanation> {
        let channels = names(&spec.job_channels);
        let feature_names = feature_names(&channels);
        let described = describe(batch, findings);
        let pooled = Pooled::new(batch, &described, &self.mixture, self.of_jobs.as_ref());
        let mut explanations = Vec::new();
        for window in windows {
            let finding = &findings[*window];
            let level = finding.level.unwrap_or(Level::Thread);
            // The combined level is explained by its least likely part.
            let explained = match level {
                Level::Combined => self.levels.least_likely_of_combined(&finding.distances),
                _ => level,
            };
            let mut explanation = if explained == Level::Reconstruction {
                explain_error(batch, finding, *window, spec)
            } else {
                let deviations = self.deviations(explained, &pooled, &described, *window, &feature_names);
                explain_features(explained, deviations, batch.start(), batch.start() + spec.length())
            };
            if explained != level {
                explanation.text = format!("{}; above all, {}", level.description(), explanation.text);
            }
            explanations.push(Explanation { level: Some(level), ..explanation });
        }
        explanations
    }

    fn tensors(&self) -> Tensors {
        let mut tensors = self.base.tensors();
        tensors.insert("mixture".into(), self.mixture.to_tensor());
        if let Some(of_jobs) = &self.of_jobs {
            tensors.insert(OF_JOBS.into(), of_jobs.to_tensor());
        }
        tensors.extend(self.levels.tensors());
        tensors
    }
}

/// The features of a job that deviate, in natural units.
fn job_deviations(of_jobs: &Mixture, threads: &[Vec<f32>], names: &[String]) -> Vec<FeatureDeviation> {
    let features = job_features(threads);
    let assignment = of_jobs.assign(&features);
    let component = &of_jobs.components()[assignment.component];
    let mut deviations = Vec::new();
    for (axis, feature) in job_feature_names(names).into_iter().enumerate() {
        let (observed, z) = (f64::from(features[axis]), assignment.deviation[axis]);
        let expected = observed - z * component.conditional_std(axis);
        deviations.push(FeatureDeviation::of_square_root(feature, observed, expected, z));
    }
    deviations
}

fn mean_embedding(findings: &[Finding]) -> Vec<f32> {
    let size = findings.first().map_or(0, |finding| finding.embedding.len());
    let mean =
        |axis| findings.iter().map(|finding| finding.embedding[axis]).sum::<f32>() / findings.len() as f32;
    (0..size).map(mean).collect()
}

/// The description of each window of a batch: its features, then its reconstruction error.
fn describe(batch: &WindowBatch, findings: &[Finding]) -> Vec<Vec<f32>> {
    let pairs: Vec<_> = batch.threads().iter().zip(findings).collect();
    pairs
        .into_par_iter()
        .map(|(thread, finding)| {
            let mut described = features(&thread.values, batch.n_channels());
            described.push(error_feature(finding.error()));
            described
        })
        .collect()
}
