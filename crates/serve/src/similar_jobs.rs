//! Compares a job with others of its kind, or else with those whose windows resemble its own: scores, mean rates, and the
//! distance of their mean embeddings.

use std::collections::{BTreeMap, BTreeSet};

use archive::Archive;
use detect::{DetectError, TrainedDetector};
use learn::stats::squared_distance;
use serde::Serialize;
use workload::{Control, JobId, NodeName, Timestamp};

use crate::embeddings::{KnownKinds, Point, points};

/// Other jobs that are returned.
const MAX_JOBS: usize = 20;
/// Moments at which windows are taken.
const N_MOMENTS: i64 = 24;

/// What is asked for.
pub struct SimilarJobsQuery {
    pub job: JobId,
    pub from: Timestamp,
    pub to: Timestamp,
    pub kinds: KnownKinds,
}

/// A job in a few numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobProfile {
    pub job: JobId,
    /// Its kind, if it is known.
    pub kind: Option<String>,
    pub nodes: BTreeSet<NodeName>,
    pub n_windows: usize,
    pub mean_score: f64,
    pub max_score: f64,
    /// The mean rate of each channel.
    pub rates: Vec<f32>,
    /// The distance of its mean embedding from that of the compared job.
    pub distance: f64,
}

/// A job and others.
#[derive(Debug, Serialize)]
pub struct SimilarJobs {
    pub channels: Vec<&'static str>,
    pub from: Timestamp,
    pub to: Timestamp,
    pub job: JobProfile,
    /// Those of the same kind first, then by distance.
    pub others: Vec<JobProfile>,
    /// Jobs that were compared with it.
    pub n_compared: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum SimilarJobsError {
    #[error("the archive has no complete windows of job {0} in this time")]
    NoWindows(JobId),
    #[error(transparent)]
    Detect(#[from] DetectError),
}

impl SimilarJobsQuery {
    /// Reads windows of all jobs at the same moments and compares them.
    pub fn run(
        &self,
        archive: &Archive,
        detector: &TrainedDetector,
        control: Control<'_>,
    ) -> Result<SimilarJobs, SimilarJobsError> {
        let found = points(archive, detector, self.from, self.to, N_MOMENTS, control)?;
        let mut by_job: BTreeMap<&JobId, Vec<&Point>> = BTreeMap::new();
        for point in &found {
            if let Some(job) = &point.job {
                by_job.entry(job).or_default().push(point);
            }
        }
        let own = by_job.remove(&self.job).ok_or_else(|| SimilarJobsError::NoWindows(self.job.clone()))?;
        let centre = mean(own.iter().map(|point| point.embedding.as_slice()));
        let job = self.profile(&self.job, &own, &centre);
        let mut others: Vec<JobProfile> =
            by_job.iter().map(|(job, points)| self.profile(job, points, &centre)).collect();
        let is_other_kind = |other: &JobProfile| job.kind.is_none() || other.kind != job.kind;
        others
            .sort_by(|a, b| is_other_kind(a).cmp(&is_other_kind(b)).then(a.distance.total_cmp(&b.distance)));
        let n_compared = others.len();
        others.truncate(MAX_JOBS);
        Ok(SimilarJobs {
            channels: detector.channels(),
            from: self.from,
            to: self.to,
            job,
            others,
            n_compared,
        })
    }

    fn profile(&self, job: &JobId, points: &[&Point], centre: &[f32]) -> JobProfile {
        let embedding = mean(points.iter().map(|point| point.embedding.as_slice()));
        let scores = || points.iter().map(|point| point.score);
        JobProfile {
            job: job.clone(),
            kind: points.iter().find_map(|point| self.kinds.of(point)).map(|known| known.kind.clone()),
            nodes: points.iter().map(|point| point.node.clone()).collect(),
            n_windows: points.len(),
            mean_score: scores().sum::<f64>() / points.len().max(1) as f64,
            max_score: scores().fold(0.0, f64::max),
            rates: mean(points.iter().map(|point| point.rates.as_slice())),
            distance: squared_distance(&embedding, centre).sqrt(),
        }
    }
}

/// The mean of vectors of the same length; empty if there are none.
fn mean<'a>(vectors: impl Iterator<Item = &'a [f32]>) -> Vec<f32> {
    let (mut sums, mut n_vectors) = (Vec::new(), 0.0_f32);
    for vector in vectors {
        sums.resize(vector.len().max(sums.len()), 0.0);
        for (sum, value) in sums.iter_mut().zip(vector) {
            *sum += value;
        }
        n_vectors += 1.0;
    }
    sums.iter_mut().for_each(|sum| *sum /= n_vectors.max(1.0));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_vectors() {
        assert_eq!(mean([&[1.0, 2.0][..], &[3.0, 6.0]].into_iter()), [2.0, 4.0]);
        assert!(mean(std::iter::empty()).is_empty());
    }
}
