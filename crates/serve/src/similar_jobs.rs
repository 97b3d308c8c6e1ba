//! Compares a job with others of its kind, or else with those whose windows resemble its own: scores, mean rates, and the
//! distance of their mean embeddings.

use std::collections::{BTreeMap, BTreeSet};

use archive::Archive;
use detect::{DetectError, Span, TrainedDetector};
use learn::stats::squared_distance;
use serde::Serialize;
use workload::{Control, JobId, NodeName, Timestamp};

use crate::embeddings::{KnownKinds, Point, for_each_point, moments};

/// Other jobs that are returned.
const MAX_JOBS: usize = 20;
/// Moments at which windows are taken.
const N_MOMENTS: i64 = 24;
/// With fewer windows of the job, other moments are taken.
const MIN_WINDOWS: usize = 3;

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
        let moments = moments(detector, self.from, self.to, N_MOMENTS);
        let mut sums = self.sums(archive, detector, moments, control)?;
        if sums.get(&self.job).is_none_or(|own| own.n_windows < MIN_WINDOWS) {
            let moments = self.own_moments(archive, detector, control)?;
            sums = self.sums(archive, detector, moments, control)?;
        }
        let own = sums.remove(&self.job).ok_or_else(|| SimilarJobsError::NoWindows(self.job.clone()))?;
        let centre = own.mean(&own.embedding);
        let n_compared = sums.len();
        let job = own.into_profile(self.job.clone(), &centre);
        let mut others: Vec<JobProfile> =
            sums.into_iter().map(|(job, sums)| sums.into_profile(job, &centre)).collect();
        let is_other_kind = |other: &JobProfile| job.kind.is_none() || other.kind != job.kind;
        others
            .sort_by(|a, b| is_other_kind(a).cmp(&is_other_kind(b)).then(a.distance.total_cmp(&b.distance)));
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

    fn sums(
        &self,
        archive: &Archive,
        detector: &TrainedDetector,
        moments: Vec<Span>,
        control: Control<'_>,
    ) -> Result<BTreeMap<JobId, Sums>, DetectError> {
        let mut sums: BTreeMap<JobId, Sums> = BTreeMap::new();
        for_each_point(archive, detector, moments, self.from, self.to, control, |point| {
            if let Some(job) = &point.job {
                let kind = self.kinds.of(&point).map(|known| known.kind.as_str());
                sums.entry(job.clone()).or_default().add(&point, kind);
            }
        })?;
        Ok(sums)
    }

    /// Moments of the life of the job itself, which may be shorter than the time between two of the others.
    fn own_moments(
        &self,
        archive: &Archive,
        detector: &TrainedDetector,
        control: Control<'_>,
    ) -> Result<Vec<Span>, DetectError> {
        let own = Span { job: Some(self.job.clone()), ..Span::of_time(self.from, self.to) };
        let mut starts = BTreeSet::new();
        for_each_point(archive, detector, vec![own], self.from, self.to, control, |point| {
            starts.insert(point.time);
        })?;
        let length = detector.event_spec().length();
        let every = starts.len().div_ceil(N_MOMENTS as usize).max(1);
        Ok(starts.into_iter().step_by(every).map(|start| Span::of_time(start, start + length)).collect())
    }
}

/// The windows of a job, summed up.
#[derive(Debug, Default)]
struct Sums {
    kind: Option<String>,
    nodes: BTreeSet<NodeName>,
    n_windows: usize,
    score: f64,
    max_score: f64,
    rates: Vec<f32>,
    embedding: Vec<f32>,
}

impl Sums {
    fn add(&mut self, point: &Point, kind: Option<&str>) {
        if self.kind.is_none() {
            self.kind = kind.map(str::to_owned);
        }
        if !self.nodes.contains(&point.node) {
            self.nodes.insert(point.node.clone());
        }
        self.n_windows += 1;
        self.score += point.score;
        self.max_score = self.max_score.max(point.score);
        add_to(&mut self.rates, &point.rates);
        add_to(&mut self.embedding, &point.embedding);
    }

    fn mean(&self, sums: &[f32]) -> Vec<f32> {
        sums.iter().map(|sum| sum / self.n_windows.max(1) as f32).collect()
    }

    fn into_profile(self, job: JobId, centre: &[f32]) -> JobProfile {
        let (rates, embedding) = (self.mean(&self.rates), self.mean(&self.embedding));
        JobProfile {
            job,
            kind: self.kind,
            nodes: self.nodes,
            n_windows: self.n_windows,
            mean_score: self.score / self.n_windows.max(1) as f64,
            max_score: self.max_score,
            rates,
            distance: squared_distance(&embedding, centre).sqrt(),
        }
    }
}

fn add_to(sums: &mut Vec<f32>, values: &[f32]) {
    sums.resize(values.len().max(sums.len()), 0.0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_summed_up() {
        let point = |node: &str, score: f64, embedding: [f32; 2]| Point {
            embedding: embedding.to_vec(),
            time: Timestamp(0),
            node: NodeName::new(node).unwrap(),
            cpu: 0,
            job: None,
            score,
            max_iowait: 0.0,
            rates: vec![0.5],
        };
        let mut sums = Sums::default();
        sums.add(&point("n1", 1.0, [1.0, 2.0]), None);
        sums.add(&point("n2", 3.0, [3.0, 6.0]), Some("blend"));
        assert_eq!(sums.mean(&sums.embedding), [2.0, 4.0]);
        let profile = sums.into_profile(JobId::new("1").unwrap(), &[2.0, 1.0]);
        assert_eq!((profile.n_windows, profile.nodes.len(), profile.distance), (2, 2, 3.0));
        assert_eq!((profile.mean_score, profile.max_score), (2.0, 3.0));
        assert_eq!((profile.kind.as_deref(), &profile.rates[..]), (Some("blend"), &[0.5][..]));
    }
}
