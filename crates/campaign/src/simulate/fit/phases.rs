//! Phases of a kind: clusters of seconds, and how they follow each other.

use learn::{KMeans, Matrix};
use workload::{Stop, Stopped};

use super::copula::Deviates;
use super::{Run, rounded, sticks_distribution};
use crate::simulate::model::{Phase, Phases};

const MAX_PHASES: usize = 5;
/// A cluster with a smaller fraction of all seconds is merged into the others.
const MIN_FRACTION: f64 = 0.03;
const N_FEATURES: usize = 6;

pub fn fit(runs: &[Run<'_>], stop: &Stop) -> Result<Phases, Stopped> {
    stop.check()?;
    let points: Vec<f32> =
        runs.iter().flat_map(|run| run.iter()).flat_map(|second| features(second)).collect();
    let phase_of = cluster(&Matrix::new(points, N_FEATURES));
    stop.check()?;
    let n_phases = phase_of.iter().max().map_or(1, |last| last + 1);
    let mut phase_runs = Vec::new();
    let mut rest = phase_of.as_slice();
    for run in runs {
        let (here, later) = rest.split_at(run.len());
        phase_runs.push(here);
        rest = later;
    }
    let distribution = |phase: usize, role: Role| {
        let seconds = runs.iter().zip(&phase_runs).flat_map(|(run, phases)| run.iter().zip(*phases));
        let seconds = seconds.filter(|(_, here)| **here == phase);
        sticks_distribution(seconds.flat_map(|(second, _)| role.threads(second)))
    };
    let phases = (0..n_phases)
        .map(|phase| Phase {
            first: distribution(phase, Role::First),
            others: distribution(phase, Role::Others),
        })
        .collect();
    stop.check()?;
    let deviates = Deviates::new(runs, &phase_runs);
    Ok(Phases {
        transitions: transitions(&phase_runs, n_phases),
        autocorrelation: deviates.autocorrelation(),
        shared: deviates.shared(),
        correlation: deviates.correlation(),
        phases,
    })
}

/// The first thread of a job often differs from the others.
#[derive(Debug, Clone, Copy)]
enum Role {
    First,
    Others,
}

impl Role {
    /// The threads of a second in this role; a job of one thread has that in both.
    fn threads(self, second: &[[f32; 4]]) -> &[[f32; 4]] {
        match self {
            Self::First => &second[..1],
            Self::Others if second.len() == 1 => second,
            Self::Others => &second[1..],
        }
    }
}

/// Three rates of the first thread, and the means of the same rates over the others.
fn features(second: &[[f32; 4]]) -> [f32; N_FEATURES] {
    let others = Role::Others.threads(second);
    let mean = |mode: usize| others.iter().map(|rates| rates[mode]).sum::<f32>() / others.len() as f32;
    let first = second[0];
    [first[0], first[1], first[2], mean(0), mean(1), mean(2)]
}

/// The phase of each second: the nearest centre of k-means, without the clusters that are too small.
fn cluster(points: &Matrix) -> Vec<usize> {
    let Ok(found) = KMeans::fit(points, MAX_PHASES, 0) else { return Vec::new() };
    let n_clusters = found.centres.n_rows();
    let mut counts = vec![0usize; n_clusters];
    for cluster in &found.groups {
        counts[*cluster] += 1;
    }
    let min_count = (MIN_FRACTION * points.n_rows() as f64) as usize;
    let kept: Vec<usize> = (0..n_clusters).filter(|cluster| counts[*cluster] > min_count).collect();
    let phases = KMeans { centres: found.centres.select(&kept), groups: Vec::new() };
    points.rows().map(|point| phases.nearest(point)).collect()
}

/// The probability of each phase after each.
fn transitions(phase_runs: &[&[usize]], n_phases: usize) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; n_phases]; n_phases];
    for run in phase_runs {
        for pair in run.windows(2) {
            counts[pair[0]][pair[1]] += 1.0;
        }
    }
    for (phase, row) in counts.iter_mut().enumerate() {
        let total: f64 = row.iter().sum();
        if total > 0.0 {
            for count in row.iter_mut() {
                *count = rounded(*count / total);
            }
        } else {
            row[phase] = 1.0;
        }
        // The row has to sum to one after rounding.
        let left = 1.0 - row.iter().sum::<f64>();
        if let Some(largest) = row.iter_mut().max_by(|a, b| a.total_cmp(b)) {
            *largest = rounded(*largest + left);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;
    use crate::simulate::model::{Behaviour, N_STICKS};
    use crate::simulate::recorded_model;

    #[test]
    fn seconds_sampled_from_phases_give_back_their_means_and_correlations() {
        let model = &recorded_model().unwrap().kinds["good-io"];
        let Behaviour::Phases(expected) = &model.behaviour else { panic!("good-io has phases") };
        let (one, other) = (sample(model, 4_000, 5), sample(model, 4_000, 6));
        let mean = |run: Run<'_>, mode: usize| {
            run.iter().flatten().map(|rates| f64::from(rates[mode])).sum::<f64>() / (2 * run.len()) as f64
        };
        for mode in 0..4 {
            assert!((mean(&one, mode) - mean(&other, mode)).abs() < 0.01, "{mode}");
        }
        let found = fit(&[&one], &Stop::default()).unwrap();
        for stick in 0..N_STICKS {
            let difference = (found.shared[stick] - expected.shared[stick]).abs();
            assert!(difference < 0.1, "{:?} {:?}", found.shared, expected.shared);
        }
    }

    #[test]
    fn rows_of_transitions_sum_to_one() {
        let found = transitions(&[&[0, 1, 1, 1, 0, 1, 2], &[1, 0, 0]], 3);
        assert_eq!(found[0], [0.3333, 0.6667, 0.0]);
        assert_eq!(found[1], [0.4, 0.4, 0.2]);
        assert_eq!(found[2], [0.0, 0.0, 1.0], "a phase that nothing follows stays");
    }
}
