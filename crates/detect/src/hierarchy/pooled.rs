//! The deviations of a batch pooled by job, node and cluster, and their distributions when all is normal.

use std::collections::BTreeSet;
use std::ops::Range;

use learn::artifact::restore::{RestoreError, ensure, expect_vector};
use learn::artifact::{Tensor, Tensors};
use learn::mixture::Mixture;
use learn::stats::quantile;
use rayon::prelude::*;
use workload::Owner;

use super::features::job_features;
use super::group::{GroupDeviation, Offset, Pool};
use super::p_value::NormalDistances;
use crate::detector::Level;
use crate::window::WindowBatch;

const N_LEVELS: usize = Level::ALL.len();
/// The levels that are measured: all except the combined one, which follows from the first of them.
const N_MEASURED: usize = Level::Combined as usize;
/// The levels that are combined: those of a single job.
const N_COMBINED: usize = Level::Node as usize;
/// The fraction of the distances of a component in training data that its scale exceeds, and how many it needs.
const USUAL_FRACTION: f64 = 0.998;
const MIN_IN_COMPONENT: usize = 50;
/// With fewer jobs, a common deviation of a node or cluster cannot be separated from that of one job.
const MIN_JOBS: usize = 5;
/// The common variance of groups is inflated by `1 + INFLATION / n_jobs`.
const INFLATION: f64 = 8.0;

/// The names under which levels are stored.
const fn stored_name(level: Level) -> &'static str {
    match level {
        Level::Reconstruction => "restored",
        _ => level.name(),
    }
}

/// The deviations of the windows of a batch, and the mean deviations of its jobs on each node.
pub struct Pooled {
    /// The owner of each window.
    owners: Vec<Owner>,
    /// The deviation of each window.
    deviations: Vec<Vec<f64>>,
    /// The mixture component of each window.
    pub components: Vec<usize>,
    /// The windows of each job on each node.
    windows_of_job: Vec<Range<usize>>,
    /// The mean deviation of each job on each node.
    jobs: Vec<Vec<f64>>,
    /// The deviation of each job's own description; empty in models that do not describe jobs.
    job_deviations: Vec<Vec<f64>>,
    /// The mixture component of each job's description.
    job_components: Vec<usize>,
    /// The jobs of each node, as ranges of `jobs`.
    jobs_of_node: Vec<Range<usize>>,
}

impl Pooled {
    pub fn new(
        batch: &WindowBatch,
        described: &[Vec<f32>],
        mixture: &Mixture,
        of_jobs: Option<&Mixture>,
    ) -> Self {
        let (deviations, components): (Vec<Vec<f64>>, Vec<usize>) = described
            .par_iter()
            .map(|row| {
                let assignment = mixture.assign(row);
                (assignment.deviation, assignment.component)
            })
            .unzip();
        // Threads that no single job owned are pooled like those of a job.
        let windows_of_job = batch.groups();
        let jobs =
            windows_of_job.iter().map(|windows| Pool::Mean.pool(&deviations[windows.clone()])).collect();
        let of_jobs = of_jobs.into_iter().flat_map(|of_jobs| {
            windows_of_job.iter().map(|windows| {
                let assignment = of_jobs.assign(&job_features(&described[windows.clone()]));
                (assignment.deviation, assignment.component)
            })
        });
        let (job_deviations, job_components) = of_jobs.unzip();
        let mut jobs_of_node = Vec::new();
        let mut first = 0;
        for node in batch.nodes() {
            let n_jobs = windows_of_job.iter().filter(|job| node.contains(&job.start)).count();
            jobs_of_node.push(first..first + n_jobs);
            first += n_jobs;
        }
        let owners = batch.threads().iter().map(|thread| thread.owner.clone()).collect();
        Self {
            owners,
            deviations,
            components,
            windows_of_job,
            jobs,
            job_deviations,
            job_components,
            jobs_of_node,
        }
    }

    fn by_job(&self) -> Vec<Vec<Vec<f64>>> {
        self.windows_of_job.iter().map(|windows| self.deviations[windows.clone()].to_vec()).collect()
    }

    fn by_node(&self) -> Vec<Vec<Vec<f64>>> {
        self.jobs_of_node.iter().map(|jobs| self.jobs[jobs.clone()].to_vec()).collect()
    }

    /// The job of a window, and the node of that job, as indices.
    fn job_and_node_of(&self, window: usize) -> (usize, usize) {
        let job = self.windows_of_job.partition_point(|windows| windows.end <= window);
        (job, self.jobs_of_node.partition_point(|jobs| jobs.end <= job))
    }

    /// The jobs that a level pools to judge one window, each as its windows. A level below the job has one "job" with
    /// the window itself.
    pub fn pooled_windows(&self, level: Level, window: usize) -> Vec<Range<usize>> {
        let (job, node) = self.job_and_node_of(window);
        match level {
            Level::Reconstruction | Level::Thread | Level::Peers | Level::Combined => {
                std::iter::once(window..window + 1).collect()
            }
            Level::Job => vec![self.windows_of_job[job].clone()],
            Level::Node => self.windows_of_job[self.jobs_of_node[node].clone()].to_vec(),
            Level::Cluster => self.windows_of_job.clone(),
        }
    }
}

/// How unlikely a window is.
pub struct LevelScores {
    pub score: f64,
    pub level: Level,
    /// In the order of [`Level::ALL`].
    pub distances: [f64; N_LEVELS],
}

/// The normal distributions of pooled deviations, and of distances at each level.
#[derive(Debug, Clone)]
pub struct Levels {
    job: GroupDeviation,
    node: GroupDeviation,
    cluster: GroupDeviation,
    /// In the order of [`Level::ALL`].
    distances: Vec<NormalDistances>,
    /// What is far for a window, and for a job, of each mixture component.
    thread_scales: Scales,
    job_scales: Scales,
}

impl Levels {
    /// Deviations of groups are fitted to `train` and `validation`. `all_validation` sets the scales of components: a
    /// part of the validation data may lack some of them, or a rare disturbance that is normal for one.
    pub fn fit(train: &[Pooled], validation: &[Pooled], all_validation: &[Pooled], size: usize) -> Self {
        let jobs: BTreeSet<&Owner> = validation.iter().flat_map(|pooled| &pooled.owners).collect();
        let inflation = 1.0 + INFLATION / jobs.len().max(1) as f64;
        let fit = |groups: &dyn Fn(&Pooled) -> Vec<Vec<Vec<f64>>>, pool| {
            let all = |pooled: &[Pooled]| -> Vec<Vec<Vec<f64>>> { pooled.iter().flat_map(groups).collect() };
            GroupDeviation::fit(&all(train), &all(validation), size, pool, inflation)
        };
        let mut levels = Self {
            job: fit(&Pooled::by_job, Pool::Mean),
            node: fit(&Pooled::by_node, Pool::Median),
            cluster: fit(&|pooled: &Pooled| vec![pooled.jobs.clone()], Pool::Median),
            distances: Vec::new(),
            thread_scales: Scales::default(),
            job_scales: Scales::default(),
        };
        levels.fit_scales(train, all_validation);
        // Distances come from validation jobs, which the mixture was not fitted to.
        let measured: Vec<[f64; N_MEASURED]> =
            validation.iter().flat_map(|pooled| levels.measured(pooled)).collect();
        let n_windows = measured.len();
        let count = |groups: &dyn Fn(&Pooled) -> usize| validation.iter().map(groups).sum::<usize>();
        let n_independent = [
            n_windows,
            n_windows,
            n_windows,
            count(&|pooled| pooled.windows_of_job.len()),
            count(&|pooled| pooled.jobs_of_node.len()),
            validation.len(),
        ];
        for (level, n_independent) in n_independent.into_iter().enumerate() {
            let distances = measured.iter().map(|window| window[level]).collect();
            levels.distances.push(NormalDistances::fit(distances, n_independent));
        }
        let combined = measured.iter().map(|window| levels.combined(window)).collect();
        levels.distances.push(NormalDistances::fit(combined, n_windows));
        levels
    }

    /// Finds out how far windows and jobs of each component are at most. Training data may contain anomalies that nobody
    /// has labelled, so its largest distances do not count.
    fn fit_scales(&mut self, train: &[Pooled], validation: &[Pooled]) {
        let [in_train, in_validation] = [train, validation].map(|pooled| self.distances_by_component(pooled));
        let scales = |of: fn(&ByComponent) -> &[(usize, f64)]| {
            let usual = Scales::fit(of(&in_train), USUAL_FRACTION);
            usual.max(&Scales::fit(of(&in_validation), 1.0))
        };
        (self.thread_scales, self.job_scales) = (scales(|all| &all.threads), scales(|all| &all.jobs));
    }

    fn distances_by_component(&self, all: &[Pooled]) -> ByComponent {
        let mut found = ByComponent::default();
        for pooled in all {
            let distances = self.measured(pooled);
            let of_threads = distances.iter().zip(&pooled.components);
            found.threads.extend(of_threads.map(|(one, component)| (*component, one[1])));
            for (windows, component) in pooled.windows_of_job.iter().zip(&pooled.job_components) {
                found.jobs.push((*component, distances[windows.start][3]));
            }
        }
        found
    }

    /// `size` is the number of features.
    pub fn restore(tensors: &Tensors, size: usize) -> Result<Self, RestoreError> {
        let mut distances = Vec::new();
        for level in Level::ALL {
            let name = format!("surprise.{}", stored_name(level));
            // Models of earlier versions did not have these levels.
            let is_absent =
                matches!(level, Level::Reconstruction | Level::Combined) && !tensors.contains_key(&name);
            distances.push(if is_absent {
                NormalDistances::uninformative()
            } else {
                NormalDistances::restore(tensors, &name)?
            });
        }
        Ok(Self {
            job: GroupDeviation::restore(tensors, "level.job", size, Pool::Mean)?,
            node: GroupDeviation::restore(tensors, "level.node", size, Pool::Median)?,
            cluster: GroupDeviation::restore(tensors, "level.cluster", size, Pool::Median)?,
            distances,
            thread_scales: Scales::restore(tensors, "scale.thread")?,
            job_scales: Scales::restore(tensors, "scale.job")?,
        })
    }

    pub fn tensors(&self) -> Tensors {
        let groups = [("job", &self.job), ("node", &self.node), ("cluster", &self.cluster)]
            .map(|(name, group)| (format!("level.{name}"), group.to_tensor()));
        let distances = Level::ALL
            .into_iter()
            .zip(&self.distances)
            .map(|(level, distances)| (format!("surprise.{}", stored_name(level)), distances.to_tensor()));
        let scales = [("scale.thread", &self.thread_scales), ("scale.job", &self.job_scales)]
            .map(|(name, scales)| (name.to_owned(), scales.to_tensor()));
        groups.into_iter().chain(distances).chain(scales).collect()
    }

    /// For each window, −log10 p of the least likely level, that level, and the distance on every level.
    pub fn scores(&self, pooled: &Pooled) -> Vec<LevelScores> {
        let of_window = |measured: [f64; N_MEASURED]| {
            let mut distances = [self.combined(&measured); N_LEVELS];
            distances[..N_MEASURED].copy_from_slice(&measured);
            let (score, level) = self.least_likely(&distances);
            LevelScores { score, level, distances }
        };
        self.measured(pooled).into_iter().map(of_window).collect()
    }

    /// The distance on the combined level: the sum of −log10 p of the levels of a single job.
    fn combined(&self, distances: &[f64]) -> f64 {
        let levels = distances[..N_COMBINED].iter().zip(&self.distances);
        levels.map(|(distance, of)| of.minus_log10_p(*distance)).sum()
    }

    /// The least likely of the levels whose distances are given, and its −log10 p.
    fn least_likely(&self, distances: &[f64]) -> (f64, Level) {
        let scores = distances.iter().zip(&self.distances).map(|(distance, of)| of.minus_log10_p(*distance));
        let scores = scores.zip(Level::ALL);
        scores.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, Level::Reconstruction))
    }

    /// The least likely of the levels that are combined.
    pub fn least_likely_of_combined(&self, distances: &[f64]) -> Level {
        self.least_likely(&distances[..N_COMBINED]).1
    }

    /// The deviation along each feature that a level judges a window by.
    pub fn offsets(&self, level: Level, pooled: &Pooled, window: usize) -> Vec<Offset> {
        let (job, node) = pooled.job_and_node_of(window);
        let of_job = pooled.windows_of_job[job].clone();
        match level {
            Level::Reconstruction | Level::Thread | Level::Combined => {
                pooled.deviations[window].iter().map(|deviation| Offset::new(*deviation, 1.0)).collect()
            }
            Level::Peers => {
                self.job.offsets_from_peers(&pooled.deviations[of_job.clone()], window - of_job.start)
            }
            Level::Job => self.job.offsets(&pooled.deviations[of_job]),
            Level::Node => self.node.offsets(&pooled.jobs[pooled.jobs_of_node[node].clone()]),
            Level::Cluster => self.cluster.offsets(&pooled.jobs),
        }
    }

    /// The distance of each window from normal on every measured level, in the order of [`Level::ALL`].
    fn measured(&self, pooled: &Pooled) -> Vec<[f64; N_MEASURED]> {
        let mut distances = vec![[0.0; N_MEASURED]; pooled.deviations.len()];
        for ((distances, deviation), component) in
            distances.iter_mut().zip(&pooled.deviations).zip(&pooled.components)
        {
            // Whitened deviations are independent of those before them, so the last one is how much larger the
            // reconstruction error is than the features explain.
            distances[0] = deviation.last().map_or(0.0, |excess| excess.max(0.0).powi(2));
            distances[1] = mean_square(deviation) / self.thread_scales.of(*component);
        }
        let of_cluster = shared_distances(&self.cluster, &pooled.jobs);
        for jobs in &pooled.jobs_of_node {
            let of_node = shared_distances(&self.node, &pooled.jobs[jobs.clone()]);
            for (job, of_node) in jobs.clone().zip(of_node) {
                let windows = pooled.windows_of_job[job].clone();
                let deviations = &pooled.deviations[windows.clone()];
                let of_job = match pooled.job_deviations.get(job) {
                    Some(own) => mean_square(own) / self.job_scales.of(pooled.job_components[job]),
                    None => self.job.distance(deviations),
                };
                for window in windows.clone() {
                    let of_peers = self.job.distance_from_peers(deviations, window - windows.start);
                    distances[window][2..].copy_from_slice(&[of_peers, of_job, of_node, of_cluster[job]]);
                }
            }
        }
        distances
    }
}

fn mean_square(deviation: &[f64]) -> f64 {
    deviation.iter().map(|value| value * value).sum::<f64>() / deviation.len() as f64
}

/// The distance that windows of each mixture component rarely exceed, so that a kind that varies much does not hide
/// others. One if it is not known.
#[derive(Debug, Clone, Default, PartialEq)]
struct Scales(Vec<f64>);

/// Distances of windows and of jobs, each with its mixture component.
#[derive(Default)]
struct ByComponent {
    threads: Vec<(usize, f64)>,
    jobs: Vec<(usize, f64)>,
}

impl Scales {
    /// Fits pairs of a component and a distance. A component with few of them has the median scale of the others: with
    /// the largest, whatever is near to a rare component would never be far.
    fn fit(distances: &[(usize, f64)], fraction: f64) -> Self {
        let n_components = distances.iter().map(|(component, _)| component + 1).max().unwrap_or(0);
        let mut by_component = vec![Vec::new(); n_components];
        for (component, distance) in distances {
            by_component[*component].push(*distance);
        }
        let scale = |mut distances: Vec<f64>| {
            distances.sort_by(f64::total_cmp);
            (distances.len() >= MIN_IN_COMPONENT).then(|| quantile(&distances, fraction).max(1.0))
        };
        let scales: Vec<Option<f64>> = by_component.into_iter().map(scale).collect();
        let mut known: Vec<f64> = scales.iter().flatten().copied().collect();
        known.sort_by(f64::total_cmp);
        let usual = if known.is_empty() { 1.0 } else { quantile(&known, 0.5) };
        Self(scales.into_iter().map(|scale| scale.unwrap_or(usual)).collect())
    }

    fn of(&self, component: usize) -> f64 {
        self.0.get(component).copied().unwrap_or(1.0)
    }

    /// The larger scale of each component.
    fn max(&self, other: &Self) -> Self {
        let n_components = self.0.len().max(other.0.len());
        Self((0..n_components).map(|component| self.of(component).max(other.of(component))).collect())
    }

    fn to_tensor(&self) -> Tensor {
        Tensor::row(self.0.iter().map(|scale| *scale as f32).collect::<Vec<f32>>())
    }

    /// Absent in models of the first versions.
    fn restore(tensors: &Tensors, name: &str) -> Result<Self, RestoreError> {
        if !tensors.contains_key(name) {
            return Ok(Self::default());
        }
        let scales = expect_vector(tensors, name)?;
        ensure(scales.iter().all(|scale| *scale >= 1.0), "a scale of distances is below one")?;
        Ok(Self(scales.iter().map(|scale| f64::from(*scale)).collect()))
    }
}

/// The common distance of several jobs, weighted by how much each job takes part; zero with too few jobs.
fn shared_distances(group: &GroupDeviation, jobs: &[Vec<f64>]) -> Vec<f64> {
    if jobs.len() < MIN_JOBS {
        return vec![0.0; jobs.len()];
    }
    let distance = group.distance(jobs);
    group.participation(jobs).into_iter().map(|part| part * distance).collect()
}
