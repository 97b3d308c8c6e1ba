//! The Gaussian copula of a kind: sticks as normal deviates, and the correlations between them.

use std::collections::BTreeMap;

use learn::stats::correlation;
use statrs::distribution::{ContinuousCDF, Normal};

use super::{Run, rounded};
use crate::simulate::model::{N_STICKS, sticks_of};

/// Correlations of time and of threads stay below this, so that the simulator keeps some noise.
const MAX_CORRELATION: f64 = 0.98;
/// The same between sticks, where the correlation matrix has to stay positive definite.
const MAX_STICK_CORRELATION: f64 = 0.95;

type Sticks = [f64; N_STICKS];

/// Sticks as normal deviates: the deviate of their rank within the same phase and role.
pub struct Deviates {
    /// By run, second and thread.
    runs: Vec<Vec<Vec<Sticks>>>,
}

/// One thread in one second of one run.
#[derive(Clone, Copy)]
struct Position {
    run: usize,
    second: usize,
    thread: usize,
}

impl Deviates {
    pub fn new(runs: &[Run<'_>], phase_runs: &[&[usize]]) -> Self {
        let mut deviates: Vec<Vec<Vec<Sticks>>> = runs
            .iter()
            .map(|run| run.iter().map(|second| vec![[0.0; N_STICKS]; second.len()]).collect())
            .collect();
        let mut by_phase_and_role: BTreeMap<(usize, bool), Vec<Position>> = BTreeMap::new();
        for (run, (seconds, phases)) in runs.iter().zip(phase_runs).enumerate() {
            for (second, (threads, phase)) in seconds.iter().zip(*phases).enumerate() {
                for thread in 0..threads.len() {
                    let positions = by_phase_and_role.entry((*phase, thread == 0)).or_default();
                    positions.push(Position { run, second, thread });
                }
            }
        }
        for positions in by_phase_and_role.values() {
            let sticks: Vec<[f32; N_STICKS]> =
                positions.iter().map(|at| sticks_of(runs[at.run][at.second][at.thread])).collect();
            for stick in 0..N_STICKS {
                let values: Vec<f32> = sticks.iter().map(|sticks| sticks[stick]).collect();
                for (at, deviate) in positions.iter().zip(normal_scores(&values)) {
                    deviates[at.run][at.second][at.thread][stick] = deviate;
                }
            }
        }
        Self { runs: deviates }
    }

    /// The correlation of each stick with the same stick one second later.
    pub fn autocorrelation(&self) -> Sticks {
        self.correlate(|run, stick, pairs| {
            for (here, next) in run.iter().zip(&run[1..]) {
                pairs.extend(here.iter().zip(next).map(|(a, b)| (a[stick], b[stick])));
            }
        })
    }

    /// The correlation of each stick between the first thread and the others.
    pub fn shared(&self) -> Sticks {
        self.correlate(|run, stick, pairs| {
            for second in run {
                pairs.extend(second[1..].iter().map(|other| (second[0][stick], other[stick])));
            }
        })
    }

    /// The correlation between sticks of the same thread and second.
    pub fn correlation(&self) -> [Sticks; N_STICKS] {
        let between = |one: usize, other: usize| {
            let sticks = self.runs.iter().flatten().flatten();
            let found = correlation(sticks.map(|sticks| (sticks[one], sticks[other])));
            rounded(found.clamp(-MAX_STICK_CORRELATION, MAX_STICK_CORRELATION))
        };
        std::array::from_fn(|one| {
            std::array::from_fn(|other| if one == other { 1.0 } else { between(one, other) })
        })
    }

    fn correlate(&self, gather: impl Fn(&[Vec<Sticks>], usize, &mut Vec<(f64, f64)>)) -> Sticks {
        std::array::from_fn(|stick| {
            let mut pairs = Vec::new();
            for run in self.runs.iter().filter(|run| !run.is_empty()) {
                gather(run, stick, &mut pairs);
            }
            rounded(correlation(pairs.into_iter())).clamp(0.0, MAX_CORRELATION)
        })
    }
}

/// The normal deviate of the rank of each value; equal values get the same.
fn normal_scores(values: &[f32]) -> Vec<f64> {
    let normal = Normal::standard();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut scores = vec![0.0; values.len()];
    let mut below = 0;
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = (below as f64 + tied.len() as f64 / 2.0) / values.len() as f64;
        let score = normal.inverse_cdf(rank.clamp(1e-4, 1.0 - 1e-4));
        for index in tied {
            scores[*index] = score;
        }
        below += tied.len();
    }
    scores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_scores_are_symmetric_and_equal_for_equal_values() {
        let scores = normal_scores(&[0.9, 0.1, 0.5, 0.5]);
        assert_eq!(scores[2], scores[3]);
        assert!((scores[2]).abs() < 1e-9 && (scores[0] + scores[1]).abs() < 1e-9);
        // The outer quarters have the ranks 1/8 and 7/8.
        assert!((scores[0] - 1.150_349).abs() < 1e-5, "{scores:?}");
    }
}
