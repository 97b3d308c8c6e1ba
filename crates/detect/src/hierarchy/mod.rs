//! A hierarchy of normal: thread, job, node, cluster.
//!
//! Windows are described by a few features and the embedding error of an autoencoder. A mixture of normal
//! distributions learns which descriptions there are; a window's deviation is how it differs from the group it belongs
//! to. Deviations are then pooled: a window against its group, against the other threads of its job, and the middles
//! of its job, its node and the whole cluster against what such middles usually are. Each level says how surprised it
//! is, and the most surprised one speaks. The embedding of a window is that of its job on the node: the mean of its threads'.

mod features;
mod level;
mod surprise;

use std::collections::BTreeSet;
use std::ops::Range;

use learn::Matrix;
use learn::artifact::Tensors;
use learn::mixture::Mixture;
use rayon::prelude::*;
use workload::JobId;

use self::features::features;
use self::level::{Level, Pool};
use self::surprise::Surprise;
use super::autoencoder::Autoencoder;
use super::{Detector, Finding, Moment, Sample};

const N_GROUPS: usize = 24;
/// Jobs that have to be there for something to be said of all of them.
const LEAST_JOBS: usize = 5;
/// Levels, from how a window is restored and what it is like to the cluster.
const N_LEVELS: usize = 6;
pub const LEVELS: [&str; N_LEVELS] = ["restored", "thread", "peers", "job", "node", "cluster"];
/// With one job in validation, others may vary by this much more, in variance.
const DOUBT: f64 = 8.0;

#[derive(Debug, Clone)]
pub struct Hierarchy {
    base: Autoencoder,
    mixture: Mixture,
    levels: Levels,
}

impl Hierarchy {
    /// Also the scores of the validation windows of each moment, to set thresholds with. What is usual on each level
    /// comes from validation too, so each half of it is scored by what was learnt from the other: by what was learnt from
    /// themselves, windows would look more usual than others will.
    pub fn fit(base: Autoencoder, train: &Sample, validation: &Sample, seed: u64) -> (Self, Vec<Vec<f64>>) {
        let described = |sample: &Sample| -> Vec<Vec<Vec<f32>>> {
            sample.moments.iter().map(|moment| describe(moment, &base.examine(moment))).collect()
        };
        let (of_train, of_validation) = (described(train), described(validation));
        let rows: Vec<f32> = of_train.iter().flatten().flatten().copied().collect();
        let size = of_train.iter().flatten().next().map_or(1, Vec::len);
        let mixture = Mixture::fit(&Matrix::new(rows, size), N_GROUPS, seed);
        let pooled = |sample: &Sample, described: &[Vec<Vec<f32>>]| -> Vec<Pooled> {
            let pairs = sample.moments.iter().zip(described);
            pairs.map(|(moment, described)| Pooled::new(moment, described, &mixture)).collect()
        };
        let (of_train, of_validation) = (pooled(train, &of_train), pooled(validation, &of_validation));
        let n_earlier = of_validation.len() / 2;
        let (earlier, later) = of_validation.split_at(n_earlier);
        let scores_by = |learnt: &[Pooled], judged: &[Pooled]| -> Vec<Vec<f64>> {
            // A single moment has no other half.
            let levels = Levels::fit(&of_train, if learnt.is_empty() { judged } else { learnt }, size);
            let scores = |pooled| levels.surprises(pooled).into_iter().map(|(score, _)| score).collect();
            judged.iter().map(scores).collect()
        };
        let mut scores = if earlier.is_empty() { Vec::new() } else { scores_by(later, earlier) };
        scores.extend(scores_by(earlier, later));
        let levels = Levels::fit(&of_train, &of_validation, size);
        (Self { base, mixture, levels }, scores)
    }

    pub fn from_tensors(base: Autoencoder, tensors: &Tensors) -> Option<Self> {
        let size = tensors.get("level.job")?.shape[1];
        let mixture = Mixture::from_tensor(tensors.get("mixture")?, size)?;
        Some(Self { base, mixture, levels: Levels::from_tensors(tensors)? })
    }
}

impl Detector for Hierarchy {
    fn examine(&self, moment: &Moment) -> Vec<Finding> {
        let findings = self.base.examine(moment);
        let pooled = Pooled::new(moment, &describe(moment, &findings), &self.mixture);
        let scored = findings.into_iter().zip(self.levels.surprises(&pooled));
        let mut findings: Vec<Finding> = scored
            .map(|(finding, (score, level))| Finding { score, level: Some(level), ..finding })
            .collect();
        for job in moment.jobs() {
            let embedding = mean_embedding(&findings[job.clone()]);
            findings[job].iter_mut().for_each(|finding| finding.embedding.clone_from(&embedding));
        }
        findings
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

/// What each window of a moment is like: its features, and last how badly it is restored.
fn describe(moment: &Moment, findings: &[Finding]) -> Vec<Vec<f32>> {
    let pairs: Vec<_> = moment.threads.iter().zip(findings).collect();
    pairs
        .into_par_iter()
        .map(|(thread, finding)| {
            let mut described = features(&thread.values, moment.n_channels);
            described.push((finding.score as f32).max(0.0).sqrt().sqrt());
            described
        })
        .collect()
}

/// The deviations of a moment, and those of its jobs on each node.
struct Pooled {
    /// The job of each window.
    owners: Vec<JobId>,
    /// Of each window.
    deviations: Vec<Vec<f64>>,
    /// The windows of each job.
    ranges: Vec<Range<usize>>,
    /// The mean deviation of each job.
    jobs: Vec<Vec<f64>>,
    /// The jobs of each node.
    nodes: Vec<Range<usize>>,
}

impl Pooled {
    fn new(moment: &Moment, described: &[Vec<f32>], mixture: &Mixture) -> Self {
        let deviations: Vec<Vec<f64>> =
            described.par_iter().map(|row| mixture.belonging(row).deviation).collect();
        let ranges = moment.jobs();
        let jobs = ranges.iter().map(|range| Pool::Mean.middle(&deviations[range.clone()])).collect();
        let mut nodes = Vec::new();
        let mut first = 0;
        for node in moment.nodes() {
            let n_jobs = ranges.iter().filter(|job| node.contains(&job.start)).count();
            nodes.push(first..first + n_jobs);
            first += n_jobs;
        }
        let owners = moment.threads.iter().map(|thread| thread.job.clone()).collect();
        Self { owners, deviations, ranges, jobs, nodes }
    }

    fn by_job(&self) -> Vec<Vec<Vec<f64>>> {
        self.ranges.iter().map(|range| self.deviations[range.clone()].to_vec()).collect()
    }

    fn by_node(&self) -> Vec<Vec<Vec<f64>>> {
        self.nodes.iter().map(|range| self.jobs[range.clone()].to_vec()).collect()
    }
}

/// What is normal of jobs, nodes and the cluster, and how surprising it is on each level to be off.
#[derive(Debug, Clone)]
struct Levels {
    job: Level,
    node: Level,
    cluster: Level,
    /// In the order of `LEVELS`.
    surprises: Vec<Surprise>,
}

impl Levels {
    fn fit(train: &[Pooled], validation: &[Pooled], size: usize) -> Self {
        // What few jobs have in common says little of what many would.
        let jobs: BTreeSet<&JobId> = validation.iter().flat_map(|pooled| &pooled.owners).collect();
        let doubt = 1.0 + DOUBT / jobs.len().max(1) as f64;
        let level = |groups: &dyn Fn(&Pooled) -> Vec<Vec<Vec<f64>>>, pool| {
            let all = |pooled: &[Pooled]| -> Vec<Vec<Vec<f64>>> { pooled.iter().flat_map(groups).collect() };
            Level::fit(&all(train), &all(validation), size, pool, doubt)
        };
        let mut levels = Self {
            job: level(&Pooled::by_job, Pool::Mean),
            node: level(&Pooled::by_node, Pool::Median),
            cluster: level(&|pooled: &Pooled| vec![pooled.jobs.clone()], Pool::Median),
            surprises: Vec::new(),
        };
        // How surprising a distance is depends on jobs that the mixture has not seen.
        let mut distances: [Vec<f64>; N_LEVELS] = Default::default();
        for window in validation.iter().flat_map(|pooled| levels.distances(pooled)) {
            distances.iter_mut().zip(window).for_each(|(all, distance)| all.push(distance));
        }
        let n_windows = distances[0].len();
        let count = |groups: &dyn Fn(&Pooled) -> usize| validation.iter().map(groups).sum::<usize>();
        let n_independent = [
            n_windows,
            n_windows,
            n_windows,
            count(&|pooled| pooled.ranges.len()),
            count(&|pooled| pooled.nodes.len()),
            validation.len(),
        ];
        let all = distances.into_iter().zip(n_independent);
        levels.surprises =
            all.map(|(distances, n_independent)| Surprise::fit(distances, n_independent)).collect();
        levels
    }

    fn from_tensors(tensors: &Tensors) -> Option<Self> {
        let level = |name: &str, pool| Level::from_tensor(tensors.get(name)?, pool);
        let surprise = |name: &str| match tensors.get(&format!("surprise.{name}")) {
            Some(tensor) => Surprise::from_tensor(tensor),
            // The first models did not have it.
            None if name == LEVELS[0] => Some(Surprise::never()),
            None => None,
        };
        let surprises: Option<Vec<Surprise>> = LEVELS.into_iter().map(surprise).collect();
        Some(Self {
            job: level("level.job", Pool::Mean)?,
            node: level("level.node", Pool::Median)?,
            cluster: level("level.cluster", Pool::Median)?,
            surprises: surprises?,
        })
    }

    fn tensors(&self) -> Tensors {
        let levels = [("job", &self.job), ("node", &self.node), ("cluster", &self.cluster)]
            .map(|(name, level)| (format!("level.{name}"), level.to_tensor()));
        let surprises = LEVELS
            .iter()
            .zip(&self.surprises)
            .map(|(name, surprise)| (format!("surprise.{name}"), surprise.to_tensor()));
        levels.into_iter().chain(surprises).collect()
    }

    /// How surprised the most surprised level is of each window, and which that is.
    fn surprises(&self, pooled: &Pooled) -> Vec<(f64, &'static str)> {
        let most = |distances: [f64; N_LEVELS]| {
            let surprises =
                distances.iter().zip(&self.surprises).map(|(distance, level)| level.of(*distance));
            surprises.zip(LEVELS).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, LEVELS[0]))
        };
        self.distances(pooled).into_iter().map(most).collect()
    }

    /// How far each window is from what is normal, on every level.
    fn distances(&self, pooled: &Pooled) -> Vec<[f64; N_LEVELS]> {
        let mut distances = vec![[0.0; N_LEVELS]; pooled.deviations.len()];
        for (distances, deviation) in distances.iter_mut().zip(&pooled.deviations) {
            // Deviations are independent of those before them: the last is how much worse a window is restored than what it
            // is like explains.
            distances[0] = deviation.last().map_or(0.0, |worse| worse.max(0.0).powi(2));
            distances[1] = deviation.iter().map(|value| value * value).sum::<f64>() / deviation.len() as f64;
        }
        let of_cluster = shared_distances(&self.cluster, &pooled.jobs);
        for node in &pooled.nodes {
            let of_node = shared_distances(&self.node, &pooled.jobs[node.clone()]);
            for (range, (of_node, of_cluster)) in
                pooled.ranges[node.clone()].iter().zip(of_node.into_iter().zip(&of_cluster[node.clone()]))
            {
                let deviations = &pooled.deviations[range.clone()];
                let of_job = self.job.distance(deviations);
                for which in range.clone() {
                    let of_peers = self.job.distance_from_peers(deviations, which - range.start);
                    distances[which][2..].copy_from_slice(&[of_peers, of_job, of_node, *of_cluster]);
                }
            }
        }
        distances
    }
}

/// How far jobs are together from what is normal, for each job as far as it goes the same way. With a few jobs there is
/// no saying whether it is one of them or all.
fn shared_distances(level: &Level, jobs: &[Vec<f64>]) -> Vec<f64> {
    if jobs.len() < LEAST_JOBS {
        return vec![0.0; jobs.len()];
    }
    let distance = level.distance(jobs);
    level.parts(jobs).into_iter().map(|part| part * distance).collect()
}
