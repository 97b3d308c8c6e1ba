//! A hierarchy of normal: thread, job, node, cluster.
//!
//! Windows are described by a few features and the embedding error of an autoencoder. A mixture of normal
//! distributions learns which descriptions there are; a window's deviation is how it differs from the group it belongs
//! to. Deviations are then pooled: a window against its group, against the other threads of its job, and the means
//! of its job, its node and the whole cluster against what such means usually are. Each level says how surprised it
//! is, and the most surprised one speaks.

mod features;
mod level;
mod surprise;

use std::collections::BTreeSet;
use std::ops::Range;

use learn::Matrix;
use learn::artifact::{Tensor, Tensors};
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
/// Levels, from the window itself to the cluster.
const N_LEVELS: usize = 5;
pub const LEVELS: [&str; N_LEVELS] = ["thread", "peers", "job", "node", "cluster"];
/// With one job in validation, others may vary by this much more, in variance.
const DOUBT: f64 = 8.0;

#[derive(Debug, Clone)]
pub struct Hierarchy {
    base: Autoencoder,
    mixture: Mixture,
    levels: Levels,
    surprises: [Surprise; N_LEVELS],
}

impl Hierarchy {
    pub fn fit(base: Autoencoder, train: &Sample, validation: &Sample, seed: u64) -> Self {
        let described = |sample: &Sample| -> Vec<Vec<Vec<f32>>> {
            sample.moments.iter().map(|moment| describe(moment, &base.examine(moment))).collect()
        };
        let (of_train, of_validation) = (described(train), described(validation));
        let rows: Vec<f32> = of_train.iter().flatten().flatten().copied().collect();
        let size = of_train.iter().flatten().next().map_or(1, Vec::len);
        let mixture = Mixture::fit(&Matrix::new(rows, size), N_GROUPS, seed);
        let pooled = |sample: &Sample, described: &[Vec<Vec<f32>>]| -> Vec<Pooled> {
            let pairs = sample.moments.iter().zip(described);
            pairs.map(|(moment, described)| Pooled::new(moment, deviations_of(&mixture, described))).collect()
        };
        let (of_train, of_validation) = (pooled(train, &of_train), pooled(validation, &of_validation));
        // What few jobs have in common says little of what many would.
        let jobs: BTreeSet<&JobId> =
            validation.moments.iter().flat_map(|moment| &moment.threads).map(|thread| &thread.job).collect();
        let doubt = 1.0 + DOUBT / jobs.len().max(1) as f64;
        let level = |groups: &dyn Fn(&Pooled) -> Vec<Vec<Vec<f64>>>, pool| {
            let all = |pooled: &[Pooled]| -> Vec<Vec<Vec<f64>>> { pooled.iter().flat_map(groups).collect() };
            Level::fit(&all(&of_train), &all(&of_validation), size, pool, doubt)
        };
        let levels = Levels {
            job: level(&Pooled::by_job, Pool::Mean),
            node: level(&Pooled::by_node, Pool::Median),
            cluster: level(&|pooled: &Pooled| vec![pooled.jobs.clone()], Pool::Median),
        };
        // How surprising a distance is depends on jobs that the mixture has not seen.
        let mut distances: [Vec<f64>; N_LEVELS] = Default::default();
        for pooled in &of_validation {
            for window in levels.distances(pooled) {
                distances.iter_mut().zip(window).for_each(|(all, distance)| all.push(distance));
            }
        }
        Self { base, mixture, levels, surprises: distances.map(Surprise::fit) }
    }

    pub fn from_tensors(base: Autoencoder, tensors: &Tensors) -> Option<Self> {
        let level = |name: &str, pool| Level::from_tensor(tensors.get(name)?, pool);
        let size = tensors.get("level.job")?.shape[1];
        let mut surprises = Vec::new();
        for name in LEVELS {
            surprises.push(Surprise::from_tensor(tensors.get(&format!("surprise.{name}"))?)?);
        }
        Some(Self {
            base,
            mixture: Mixture::from_tensor(tensors.get("mixture")?, size)?,
            levels: Levels {
                job: level("level.job", Pool::Mean)?,
                node: level("level.node", Pool::Median)?,
                cluster: level("level.cluster", Pool::Median)?,
            },
            surprises: surprises.try_into().ok()?,
        })
    }
}

impl Detector for Hierarchy {
    fn examine(&self, moment: &Moment) -> Vec<Finding> {
        let findings = self.base.examine(moment);
        let pooled = Pooled::new(moment, deviations_of(&self.mixture, &describe(moment, &findings)));
        let distances = self.levels.distances(&pooled);
        let scored = findings.into_iter().zip(distances);
        scored
            .map(|(finding, distances)| {
                let surprises =
                    distances.iter().zip(&self.surprises).map(|(distance, level)| level.of(*distance));
                let most = surprises.zip(LEVELS).max_by(|a, b| a.0.total_cmp(&b.0));
                let (score, level) = most.map_or((0.0, LEVELS[0]), |most| most);
                Finding { score, level: Some(level), ..finding }
            })
            .collect()
    }

    fn tensors(&self) -> Tensors {
        let mut tensors = self.base.tensors();
        let mut add = |name: String, tensor: Tensor| tensors.insert(name, tensor);
        add("mixture".into(), self.mixture.to_tensor());
        let Levels { job, node, cluster } = &self.levels;
        for (name, level) in [("job", job), ("node", node), ("cluster", cluster)] {
            add(format!("level.{name}"), level.to_tensor());
        }
        for (name, surprise) in LEVELS.iter().zip(&self.surprises) {
            add(format!("surprise.{name}"), surprise.to_tensor());
        }
        tensors
    }
}

/// What each window of a moment is like.
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

fn deviations_of(mixture: &Mixture, described: &[Vec<f32>]) -> Vec<Vec<f64>> {
    described.par_iter().map(|row| mixture.belonging(row).deviation).collect()
}

/// The deviations of a moment, and those of its jobs on each node.
struct Pooled {
    deviations: Vec<Vec<f64>>,
    /// The windows of each job.
    ranges: Vec<Range<usize>>,
    /// The mean deviation of each job.
    jobs: Vec<Vec<f64>>,
    /// The jobs of each node.
    nodes: Vec<Range<usize>>,
}

impl Pooled {
    fn new(moment: &Moment, deviations: Vec<Vec<f64>>) -> Self {
        let ranges = moment.jobs();
        let jobs = ranges.iter().map(|range| Pool::Mean.middle(&deviations[range.clone()])).collect();
        let mut nodes = Vec::new();
        let mut first = 0;
        for node in moment.nodes() {
            let n_jobs = ranges.iter().filter(|job| node.contains(&job.start)).count();
            nodes.push(first..first + n_jobs);
            first += n_jobs;
        }
        Self { deviations, ranges, jobs, nodes }
    }

    fn by_job(&self) -> Vec<Vec<Vec<f64>>> {
        self.ranges.iter().map(|range| self.deviations[range.clone()].to_vec()).collect()
    }

    fn by_node(&self) -> Vec<Vec<Vec<f64>>> {
        self.nodes.iter().map(|range| self.jobs[range.clone()].to_vec()).collect()
    }
}

/// What is normal of jobs, nodes and the cluster.
#[derive(Debug, Clone)]
struct Levels {
    job: Level,
    node: Level,
    cluster: Level,
}

impl Levels {
    /// How far each window is from what is normal, on every level.
    fn distances(&self, pooled: &Pooled) -> Vec<[f64; N_LEVELS]> {
        let mut distances = vec![[0.0; N_LEVELS]; pooled.deviations.len()];
        for (distances, deviation) in distances.iter_mut().zip(&pooled.deviations) {
            distances[0] = deviation.iter().map(|value| value * value).sum::<f64>() / deviation.len() as f64;
        }
        let of_cluster = self.distance_of_many(&self.cluster, &pooled.jobs);
        for node in &pooled.nodes {
            let of_node = self.distance_of_many(&self.node, &pooled.jobs[node.clone()]);
            for range in &pooled.ranges[node.clone()] {
                let deviations = &pooled.deviations[range.clone()];
                let of_job = self.job.distance(deviations);
                for which in range.clone() {
                    let of_peers = self.job.distance_from_peers(deviations, which - range.start);
                    distances[which][1..].copy_from_slice(&[of_peers, of_job, of_node, of_cluster]);
                }
            }
        }
        distances
    }

    /// With a few jobs there is no saying whether it is one of them or all.
    fn distance_of_many(&self, level: &Level, jobs: &[Vec<f64>]) -> f64 {
        if jobs.len() < LEAST_JOBS { 0.0 } else { level.distance(jobs) }
    }
}
