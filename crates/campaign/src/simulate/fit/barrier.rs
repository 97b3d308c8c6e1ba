//! Ranks that wait for each other: how long they compute between two barriers.

use std::sync::Arc;

use learn::stats::{correlation, std_dev};
use workload::{Stop, Stopped};

use super::{Run, sticks_distribution};
use crate::job_trace::JobTrace;
use crate::jobs::Mpi;
use crate::simulate::model::{Barrier, Behaviour, KindModel, Memory, N_STICKS, Sticks, sticks_of};
use crate::simulate::sampler::JobSampler;

/// A rank computes for a whole second if it waited for less than this fraction of it, and waits for a whole
/// second if it computed for less.
const CLEARLY: f64 = 0.04;
/// The percentile of the waiting stick that stands for a second of waiting only.
const WAITING_PERCENTILE: usize = 97;
/// Seconds that are simulated for each candidate.
const SIMULATED_SECONDS: usize = 5_000;
/// Candidates of the mean time: a geometric series.
const FIRST_MEAN: f64 = 0.1;
const MEAN_RATIO: f64 = 1.12;
const N_MEANS: i32 = 40;

/// The stick that shows waiting. Waiting ranks of MPI yield, which is system time; waiting threads sleep.
pub fn waiting_stick(jobs: &[&JobTrace]) -> usize {
    let are_threads = jobs.iter().any(|job| job.label.made_by.as_deref() == Some(Mpi::NAME_WITHOUT));
    if are_threads { 0 } else { 2 }
}

/// Whether ranks ever wait for most of a second. Ranks that reach the barrier nearly together do not, and are
/// modelled like any other threads.
pub fn ranks_wait(runs: &[Run<'_>], stick: usize) -> bool {
    stick_while_waiting(runs, stick) > 0.5
}

/// The value of the waiting stick in a second in which a rank only waits.
fn stick_while_waiting(runs: &[Run<'_>], stick: usize) -> f64 {
    let mut sorted: Vec<f32> =
        runs.iter().flat_map(|run| run.iter()).flatten().map(|rates| sticks_of(*rates)[stick]).collect();
    sorted.sort_by(f32::total_cmp);
    f64::from(sorted[(sorted.len() - 1) * WAITING_PERCENTILE / 100])
}

/// Simulates ranks with different mean times, and takes the mean whose waits vary as the recorded ones do.
pub fn fit(runs: &[Run<'_>], stick: usize, stop: &Stop) -> Result<Barrier, Stopped> {
    let while_waiting = stick_while_waiting(runs, stick);
    let waited = |rates: &[f32; 4]| (f64::from(sticks_of(*rates)[stick]) / while_waiting).min(1.0);
    let all_rates = || runs.iter().flat_map(|run| run.iter()).flatten();
    let computing = sticks_distribution(all_rates().filter(|rates| waited(rates) < CLEARLY));
    let waiting = sticks_distribution(all_rates().filter(|rates| waited(rates) > 1.0 - CLEARLY));
    let n_ranks = runs.iter().find_map(|run| run.first()).map_or(1, Vec::len);
    let recorded = Variation::of(&waits(runs, &waited));
    let mut best = (f64::INFINITY, 1.0);
    for step in 0..N_MEANS {
        stop.check()?;
        let mean_seconds = FIRST_MEAN * MEAN_RATIO.powi(step);
        let seconds = simulated(mean_seconds, &computing, &waiting, n_ranks);
        let distance = Variation::of(&waits(&[&seconds], &waited)).distance(&recorded);
        if distance < best.0 {
            best = (distance, (mean_seconds * 100.0).round() / 100.0);
        }
    }
    Ok(Barrier { mean_seconds: best.1, computing, waiting })
}

fn simulated(mean_seconds: f64, computing: &Sticks, waiting: &Sticks, n_ranks: usize) -> Vec<Vec<[f32; 4]>> {
    let barrier = Barrier { mean_seconds, computing: computing.clone(), waiting: waiting.clone() };
    let memory = Memory { bytes_per_thread: 0.0, growth_bytes_per_second: 0.0 };
    let model = KindModel { behaviour: Behaviour::Barrier(barrier), memory };
    let mut sampler = JobSampler::new(Arc::new(model), n_ranks, 1);
    (0..SIMULATED_SECONDS)
        .map(|_| {
            let mut second = vec![[0.0; 4]; n_ranks];
            sampler.second([0.0; N_STICKS], |rank, rates| second[rank] = rates);
            second
        })
        .collect()
}

/// The fraction of each second that each rank waited: one series per rank.
fn waits(runs: &[Run<'_>], waited: &impl Fn(&[f32; 4]) -> f64) -> Vec<Vec<f64>> {
    let of_rank =
        |run: &Run<'_>, rank: usize| run.iter().filter_map(|second| second.get(rank)).map(waited).collect();
    runs.iter()
        .flat_map(|run| (0..run.first().map_or(0, Vec::len)).map(move |rank| of_rank(run, rank)))
        .collect()
}

/// How waits vary from second to second.
struct Variation {
    deviation: f64,
    autocorrelation: f64,
}

impl Variation {
    fn of(series: &[Vec<f64>]) -> Self {
        let values: Vec<f64> = series.iter().flatten().copied().collect();
        let pairs = series.iter().flat_map(|series| series.windows(2).map(|pair| (pair[0], pair[1])));
        Self { deviation: std_dev(&values), autocorrelation: correlation(pairs) }
    }

    fn distance(&self, other: &Self) -> f64 {
        (self.deviation - other.deviation).powi(2) + (self.autocorrelation - other.autocorrelation).powi(2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;
    use crate::simulate::model::{N_QUANTILES, Quantiles};

    #[test]
    fn seconds_sampled_from_ranks_give_back_how_long_they_compute() {
        let always = |value: f32| Quantiles(vec![value; N_QUANTILES]);
        let sticks = |system| Sticks([always(0.0), always(0.0), always(system)]);
        let barrier = Barrier { mean_seconds: 1.7, computing: sticks(0.01), waiting: sticks(0.97) };
        let memory = Memory { bytes_per_thread: 0.0, growth_bytes_per_second: 0.0 };
        let model = KindModel { behaviour: Behaviour::Barrier(barrier), memory };
        let sampled = sample(&model, 4_000, 5);
        assert!(ranks_wait(&[&sampled], 2));
        // 1.7 is one of the candidates; the ones next to it are 1.52 and 1.90.
        let found = fit(&[&sampled], 2, &Stop::default()).unwrap();
        assert_eq!(found.mean_seconds, 1.7);
    }

    #[test]
    fn ranks_that_are_always_nearly_together_have_no_barrier_to_fit() {
        let together: Vec<Vec<[f32; 4]>> = (0..100).map(|_| vec![[0.94, 0.06, 0.0, 0.0]; 2]).collect();
        assert!(!ranks_wait(&[&together], 2));
    }
}
