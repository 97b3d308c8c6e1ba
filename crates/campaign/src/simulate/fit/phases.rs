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
/// Seconds before and after a second that decide about its phase.
const SMOOTHED_SECONDS: usize = 2;
/// The number of durations that are kept of a phase.
const MAX_DURATIONS: usize = 12;

pub fn fit(runs: &[Run<'_>], stop: &Stop) -> Result<Phases, Stopped> {
    stop.check()?;
    let points: Vec<f32> =
        runs.iter().flat_map(|run| run.iter()).flat_map(|second| features(second)).collect();
    let lengths: Vec<usize> = runs.iter().map(|run| run.len()).collect();
    let phase_of = smoothed(&cluster(&Matrix::new(points, N_FEATURES)), &lengths);
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
    let durations = durations(&phase_runs, n_phases);
    let changes: Vec<Vec<usize>> = phase_runs.iter().map(|run| without_repeats(run)).collect();
    let (followed, durations) = match durations {
        // Only the order of phases matters where their lengths are known.
        Some(durations) => (changes.iter().map(Vec::as_slice).collect(), durations),
        None => (phase_runs.clone(), Vec::new()),
    };
    Ok(Phases {
        transitions: transitions(&followed, n_phases),
        durations,
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

/// Each second gets the most common phase around it: a phase lasts for more than a moment.
fn smoothed(phases: &[usize], lengths: &[usize]) -> Vec<usize> {
    let mut smooth = Vec::with_capacity(phases.len());
    let mut rest = phases;
    for length in lengths {
        let (run, later) = rest.split_at(*length);
        for second in 0..run.len() {
            let around =
                &run[second.saturating_sub(SMOOTHED_SECONDS)..(second + SMOOTHED_SECONDS + 1).min(run.len())];
            let count = |phase: usize| around.iter().filter(|other| **other == phase).count();
            // Its own phase wins a tie.
            let most = around.iter().copied().max_by_key(|phase| (count(*phase), *phase == run[second]));
            smooth.push(most.unwrap_or(run[second]));
        }
        rest = later;
    }
    // A phase that is never the most common one is gone.
    let mut kept = smooth.clone();
    kept.sort_unstable();
    kept.dedup();
    smooth.iter().map(|phase| kept.binary_search(phase).unwrap_or(0)).collect()
}

/// The lengths of the stays in each phase, evenly spaced over those that were recorded; `None` if some phase was only
/// seen cut off by the start or the end of a job, or if there is only one.
fn durations(phase_runs: &[&[usize]], n_phases: usize) -> Option<Vec<Vec<f64>>> {
    let mut lengths: Vec<Vec<f64>> = vec![Vec::new(); n_phases];
    for run in phase_runs {
        let stays: Vec<&[usize]> = run.chunk_by(|a, b| a == b).collect();
        let whole = stays.get(1..stays.len().saturating_sub(1)).unwrap_or_default();
        for stay in whole {
            lengths[stay[0]].push(stay.len() as f64);
        }
    }
    if n_phases < 2 || lengths.iter().any(Vec::is_empty) {
        return None;
    }
    for lengths in &mut lengths {
        lengths.sort_by(f64::total_cmp);
        let last = lengths.len() - 1;
        let n_kept = lengths.len().min(MAX_DURATIONS);
        *lengths = (0..n_kept).map(|at| lengths[at * last / (n_kept - 1).max(1)]).collect();
    }
    Some(lengths)
}

fn without_repeats(phases: &[usize]) -> Vec<usize> {
    let mut changes = phases.to_vec();
    changes.dedup();
    changes
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
        let model = &recorded_model().unwrap().kinds["mpi-steady"];
        let Behaviour::Phases(expected) = &model.behaviour else { panic!("mpi-steady has phases") };
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
    fn phases_last_as_long_as_they_were_recorded() {
        let cycle = [vec![0; 10], vec![1; 60], vec![2; 6]].concat();
        let mut run = [cycle.clone(), cycle.clone(), cycle].concat();
        // A flicker is not a phase.
        run[30] = 2;
        let run = smoothed(&run, &[run.len()]);
        let found = durations(&[&run], 3).unwrap();
        assert!(found[1].iter().all(|length| (59.0..=61.0).contains(length)), "{found:?}");
        assert!(found[2].iter().all(|length| (5.0..=7.0).contains(length)), "{found:?}");
        assert_eq!(without_repeats(&run), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(durations(&[&[0; 50]], 1), None, "one phase has no length");
    }

    #[test]
    fn rows_of_transitions_sum_to_one() {
        let found = transitions(&[&[0, 1, 1, 1, 0, 1, 2], &[1, 0, 0]], 3);
        assert_eq!(found[0], [0.3333, 0.6667, 0.0]);
        assert_eq!(found[1], [0.4, 0.4, 0.2]);
        assert_eq!(found[2], [0.0, 0.0, 1.0], "a phase that nothing follows stays");
    }
}
