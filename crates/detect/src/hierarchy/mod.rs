//! A hierarchical detector: thread, job, node, cluster.
//!
//! Each window is described by a few summary features and the reconstruction error of an autoencoder. A Gaussian
//! mixture models the descriptions of normal windows; a window's deviation is its whitened difference from the
//! mixture component it most likely belongs to. Deviations are compared on six [`Level`]s: the window itself, the
//! window against the other threads of its job, and the pooled deviations of its job, its node and the cluster
//! against those of normal ones. The score is −log10 p of the least likely level. The embedding of a window is the
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
use rayon::prelude::*;
use workload::Stop;

use self::features::{error_feature, feature_names, features};
use self::group::Pool;
use self::pooled::{Levels, Pooled};
use crate::autoencoder::Autoencoder;
use crate::channel::names;
use crate::detector::{Detector, Finding, Level};
use crate::explain::{Explanation, FeatureDeviation, explain_features, explain_reconstruction};
use crate::sample::Sample;
use crate::window::{WindowBatch, WindowSpec};

const N_COMPONENTS: usize = 24;

#[derive(Debug, Clone)]
pub struct Hierarchy {
    base: Autoencoder,
    mixture: Mixture,
    levels: Levels,
}

/// A fitted hierarchy, and cross-fitted scores of the validation windows to set thresholds with.
pub struct FittedHierarchy {
    pub hierarchy: Hierarchy,
    /// For each batch of the validation sample, the score of each window.
    pub validation_scores: Vec<Vec<f64>>,
}

impl Hierarchy {
    /// The distributions of the levels are fitted to validation data, so its scores are cross-fitted: each half is
    /// scored with distributions fitted to the other half. Scored by themselves, they would be too low.
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
        let rows: Vec<f32> = of_train.iter().flatten().flatten().copied().collect();
        let size = of_train.iter().flatten().next().map_or(1, Vec::len);
        let mixture = Mixture::fit(&Matrix::new(rows, size), N_COMPONENTS, seed, stop)?;
        let pool_all = |sample: &Sample, described: &[Vec<Vec<f32>>]| -> Vec<Pooled> {
            let pairs = sample.batches.iter().zip(described);
            pairs.map(|(batch, described)| Pooled::new(batch, described, &mixture)).collect()
        };
        let (of_train, of_validation) = (pool_all(train, &of_train), pool_all(validation, &of_validation));
        let (earlier, later) = of_validation.split_at(of_validation.len() / 2);
        let scores_by = |fitted_to: &[Pooled], scored: &[Pooled]| -> Vec<Vec<f64>> {
            // A single batch has no other half.
            let levels = Levels::fit(&of_train, if fitted_to.is_empty() { scored } else { fitted_to }, size);
            let scores = |pooled| levels.scores(pooled).into_iter().map(|(score, _)| score).collect();
            scored.iter().map(scores).collect()
        };
        let mut validation_scores = if earlier.is_empty() { Vec::new() } else { scores_by(later, earlier) };
        validation_scores.extend(scores_by(earlier, later));
        let levels = Levels::fit(&of_train, &of_validation, size);
        Ok(FittedHierarchy { hierarchy: Self { base, mixture, levels }, validation_scores })
    }

    pub fn restore(base: Autoencoder, tensors: &Tensors) -> Result<Self, RestoreError> {
        let n_channels = base.net.shape.n_channels;
        let size = features(&vec![0.0; n_channels], n_channels).len() + 1;
        let mixture = Mixture::restore(tensors, "mixture", size)?;
        Ok(Self { base, mixture, levels: Levels::restore(tensors, size)? })
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
            let expected = (observed[axis] - offset.value * std).max(0.0);
            deviations.push(FeatureDeviation {
                feature: name.clone(),
                observed: observed[axis].powi(2),
                expected: expected.powi(2),
                z: offset.z,
            });
        }
        deviations
    }
}

impl Detector for Hierarchy {
    fn examine(&self, batch: &WindowBatch) -> Vec<Finding> {
        let findings = self.base.examine(batch);
        let pooled = Pooled::new(batch, &describe(batch, &findings), &self.mixture);
        let scored = findings.into_iter().zip(self.levels.scores(&pooled));
        let mut findings: Vec<Finding> = scored
            .map(|(finding, (score, level))| Finding { score, level: Some(level), ..finding })
            .collect();
        for job in batch.jobs() {
            let embedding = mean_embedding(&findings[job.clone()]);
            for finding in &mut findings[job] {
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
        let pooled = Pooled::new(batch, &described, &self.mixture);
        let mut explanations = Vec::new();
        for window in windows {
            let finding = &findings[*window];
            let level = finding.level.unwrap_or(Level::Thread);
            explanations.push(if level == Level::Reconstruction {
                let values = &batch.threads()[*window].values;
                let explanation =
                    explain_reconstruction(values, &finding.expected, &channels, batch.start(), spec.period);
                Explanation { level: Some(level), ..explanation }
            } else {
                let deviations = self.deviations(level, &pooled, &described, *window, &feature_names);
                explain_features(level, deviations, batch.start(), batch.start() + spec.length())
            });
        }
        explanations
    }

    fn tensors(&self) -> Tensors {
        let mut tensors = self.base.tensors();
        tensors.insert("mixture".into(), self.mixture.to_tensor());
        tensors.extend(self.levels.tensors());
        tensors
    }
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
