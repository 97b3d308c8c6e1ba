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

use std::ops::Range;

use learn::artifact::{Tensor, Tensors};
use learn::mixture::Mixture;
use learn::Matrix;
use rayon::prelude::*;

use self::features::features;
use self::level::Level;
use self::surprise::Surprise;
use super::autoencoder::Autoencoder;
use super::{Detector, Finding, Moment, Sample};

const N_GROUPS: usize = 24;
/// Levels, from the window itself to the cluster.
const N_LEVELS: usize = 5;
pub const LEVELS: [&str; N_LEVELS] = ["thread", "peers", "job", "node", "cluster"];
/// A group of the mixture that validation visits so much less than training is not normal: it was in the training
/// data by mistake.
const LEAST_VISITED: f64 = 0.1;

#[derive(Debug, Clone)]
pub struct Hierarchy {
    base: Autoencoder,
    mixture: Mixture,
    job: Level,
    node: Level,
    cluster: Level,
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
        let mixture = visited(mixture, &of_validation);
        let deviations: Vec<Vec<Vec<f64>>> =
            of_train.iter().map(|moment| deviations_of(&mixture, moment)).collect();
        let level = |ranges: &dyn Fn(&Moment) -> Vec<Range<usize>>| {
            let moments = train.moments.iter().zip(&deviations);
            Level::fit(moments.map(|(moment, deviations)| (deviations.as_slice(), ranges(moment))), size)
        };
        let job = level(&Moment::jobs);
        let node = level(&Moment::nodes);
        let cluster = level(&|moment: &Moment| std::iter::once(0..moment.threads.len()).collect());
        let mut distances: [Vec<f64>; N_LEVELS] = Default::default();
        for (moment, deviations) in train.moments.iter().zip(&deviations) {
            for window in distances_of(moment, deviations, [&job, &node, &cluster]) {
                distances.iter_mut().zip(window).for_each(|(all, distance)| all.push(distance));
            }
        }
        Self { base, mixture, job, node, cluster, surprises: distances.map(Surprise::fit) }
    }

    pub fn from_tensors(base: Autoencoder, tensors: &Tensors) -> Option<Self> {
        let level = |name: &str| Level::from_tensor(tensors.get(name)?);
        let job = level("level.job")?;
        let size = tensors.get("level.job")?.shape[1];
        let mut surprises = Vec::new();
        for name in LEVELS {
            surprises.push(Surprise::from_tensor(tensors.get(&format!("surprise.{name}"))?)?);
        }
        Some(Self {
            base,
            mixture: Mixture::from_tensor(tensors.get("mixture")?, size)?,
            job,
            node: level("level.node")?,
            cluster: level("level.cluster")?,
            surprises: surprises.try_into().ok()?,
        })
    }
}

impl Detector for Hierarchy {
    fn examine(&self, moment: &Moment) -> Vec<Finding> {
        let findings = self.base.examine(moment);
        let deviations = deviations_of(&self.mixture, &describe(moment, &findings));
        let distances = distances_of(moment, &deviations, [&self.job, &self.node, &self.cluster]);
        let scored = findings.into_iter().zip(distances);
        scored
            .map(|(finding, distances)| {
                let surprises = distances.iter().zip(&self.surprises).map(|(distance, level)| level.of(*distance));
                Finding { score: surprises.fold(0.0, f64::max), ..finding }
            })
            .collect()
    }

    fn tensors(&self) -> Tensors {
        let mut tensors = self.base.tensors();
        let mut add = |name: String, tensor: Tensor| tensors.insert(name, tensor);
        add("mixture".into(), self.mixture.to_tensor());
        for (name, level) in [("job", &self.job), ("node", &self.node), ("cluster", &self.cluster)] {
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

/// How far each window is from what is normal, on every level.
fn distances_of(moment: &Moment, deviations: &[Vec<f64>], [job, node, cluster]: [&Level; 3]) -> Vec<[f64; N_LEVELS]> {
    let mut distances = vec![[0.0; N_LEVELS]; deviations.len()];
    for (distances, deviation) in distances.iter_mut().zip(deviations) {
        distances[0] = deviation.iter().map(|value| value * value).sum::<f64>() / deviation.len() as f64;
    }
    for range in moment.jobs() {
        let of_job = job.distance(&deviations[range.clone()]);
        for which in range.clone() {
            distances[which][1] = job.distance_from_peers(&deviations[range.clone()], which - range.start);
            distances[which][2] = of_job;
        }
    }
    for range in moment.nodes() {
        let of_node = node.distance(&deviations[range.clone()]);
        distances[range].iter_mut().for_each(|distances| distances[3] = of_node);
    }
    let of_cluster = cluster.distance(deviations);
    distances.iter_mut().for_each(|distances| distances[4] = of_cluster);
    distances
}

/// The mixture without groups that validation hardly visits.
fn visited(mixture: Mixture, validation: &[Vec<Vec<f32>>]) -> Mixture {
    let rows: Vec<&Vec<f32>> = validation.iter().flatten().collect();
    let belongs: Vec<usize> = rows.par_iter().map(|row| mixture.belonging(row).group).collect();
    let share = |group: usize| belongs.iter().filter(|one| **one == group).count() as f64 / belongs.len() as f64;
    let is_visited = |(group, known): &(usize, &learn::mixture::Group)| share(*group) >= LEAST_VISITED * known.weight;
    let kept: Vec<_> = mixture.groups.iter().enumerate().filter(is_visited).map(|(_, group)| group.clone()).collect();
    if kept.is_empty() { mixture } else { Mixture { groups: kept } }
}
