//! Ranks that wait for each other: how long they compute between two barriers.

use std::sync::Arc;

use learn::stats::{correlation, std_dev};
use rand::{RngExt, SeedableRng};
use rand_distr::Binomial;
use rand_xoshiro::Xoshiro256PlusPlus;
use workload::{Stop, Stopped};

use super::{Run, sticks_distribution};
use crate::job_trace::JobTrace;
use crate::jobs::Mpi;
use crate::simulate::model::{
    Barrier, Behaviour, Foreign, KindModel, Memory, N_QUANTILES, N_STICKS, Quantiles, Sticks, sticks_of,
};
use crate::simulate::sampler::JobSampler;

/// A rank computes for a whole step if it waited for less than this fraction of it, and waits for a whole step if it
/// computed for less.
const CLEARLY: f64 = 0.04;
/// The percentile of the waiting stick that stands for a step of waiting only.
const WAITING_PERCENTILE: usize = 97;
/// Ranks that wait for less than this fraction of such a step have no barrier that can be fitted.
const MIN_WAITING: f64 = 0.5;
/// Steps that are simulated for each candidate.
const SIMULATED_STEPS: usize = 10_000;
/// Candidates of the mean time: a geometric series.
const FIRST_MEAN: f64 = 0.1;
const MEAN_RATIO: f64 = 1.12;
const N_MEANS: i32 = 40;
const TICKS_PER_SECOND: f64 = 100.0;

/// The steps of recorded ranks, at the shortest interval that was recorded.
pub struct Recorded<'a> {
    runs: Vec<Run<'a>>,
    step_seconds: f64,
    /// The stick that shows waiting. Waiting ranks of MPI yield, which is system time; waiting threads sleep.
    stick: usize,
    /// The value of that stick in a step in which a rank only waits.
    while_waiting: f64,
}

impl<'a> Recorded<'a> {
    /// `None` if ranks never wait for most of a step: those that reach the barrier nearly together are modelled like
    /// any other threads.
    pub fn of(jobs: &[&'a JobTrace]) -> Option<Self> {
        let are_threads = jobs.iter().any(|job| job.label.made_by.as_deref() == Some(Mpi::NAME_WITHOUT));
        let stick = if are_threads { 0 } else { 2 };
        let step_seconds = jobs.first()?.settled_steps().1;
        let runs: Vec<Run<'a>> = jobs
            .iter()
            .map(|job| job.settled_steps())
            .filter(|(_, step)| *step == step_seconds)
            .map(|(run, _)| run)
            .collect();
        let mut sorted: Vec<f32> =
            runs.iter().flat_map(|run| run.iter()).flatten().map(|rates| sticks_of(*rates)[stick]).collect();
        sorted.sort_by(f32::total_cmp);
        let while_waiting = f64::from(*sorted.get(sorted.len().checked_sub(1)? * WAITING_PERCENTILE / 100)?);
        (while_waiting > MIN_WAITING).then_some(Self { runs, step_seconds, stick, while_waiting })
    }

    fn waited(&self, rates: &[f32; 4]) -> f64 {
        (f64::from(sticks_of(*rates)[self.stick]) / self.while_waiting).min(1.0)
    }

    /// The sticks of the steps that pass a filter. Short steps have few ticks, so only their mean is meaningful.
    fn sticks(&self, is_wanted: impl Fn(f64) -> bool) -> Sticks {
        let wanted = || {
            let all = self.runs.iter().flat_map(|run| run.iter()).flatten();
            all.filter(|rates| is_wanted(self.waited(rates)))
        };
        if self.step_seconds >= 1.0 {
            return sticks_distribution(wanted());
        }
        let n_steps = wanted().count().max(1) as f64;
        let mut means = [0.0; N_STICKS];
        for rates in wanted() {
            for (mean, stick) in means.iter_mut().zip(sticks_of(*rates)) {
                *mean += f64::from(stick) / n_steps;
            }
        }
        Sticks(means.map(|mean| Quantiles(vec![((mean * 1e4).round() / 1e4) as f32; N_QUANTILES])))
    }

    /// The fraction of each step that each rank waited: one series per rank.
    fn waits(&self) -> Vec<Vec<f64>> {
        let of_rank = |run: &Run<'_>, rank: usize| {
            run.iter().filter_map(|step| step.get(rank)).map(|rates| self.waited(rates)).collect()
        };
        self.runs
            .iter()
            .flat_map(|run| (0..run.first().map_or(0, Vec::len)).map(move |rank| of_rank(run, rank)))
            .collect()
    }
}

/// Simulates ranks with different mean times, and takes the mean whose waits vary as the recorded ones do.
pub fn fit(recorded: &Recorded<'_>, stop: &Stop) -> Result<Barrier, Stopped> {
    let computing = recorded.sticks(|waited| waited < CLEARLY);
    let waiting = recorded.sticks(|waited| waited > 1.0 - CLEARLY);
    let n_ranks = recorded.runs.iter().find_map(|run| run.first()).map_or(1, Vec::len);
    let variation = Variation::of(&recorded.waits());
    let mut best = (f64::INFINITY, 1.0);
    for step in 0..N_MEANS {
        stop.check()?;
        let mean_seconds = FIRST_MEAN * MEAN_RATIO.powi(step);
        let waits = simulated_waits(mean_seconds, recorded.step_seconds, n_ranks);
        let distance = Variation::of(&waits).distance(&variation);
        if distance < best.0 {
            best = (distance, (mean_seconds * 100.0).round() / 100.0);
        }
    }
    Ok(Barrier { mean_seconds: best.1, computing, waiting })
}

/// The waits of simulated ranks, counted in ticks as the kernel does.
fn simulated_waits(mean_seconds: f64, step_seconds: f64, n_ranks: usize) -> Vec<Vec<f64>> {
    let always = Sticks(std::array::from_fn(|_| Quantiles(vec![0.0; N_QUANTILES])));
    let barrier = Barrier { mean_seconds, computing: always.clone(), waiting: always };
    let memory = Memory { bytes_per_thread: 0.0, growth_bytes_per_second: 0.0 };
    let behaviour = Behaviour::Barrier(barrier);
    let model = KindModel { behaviour, memory, foreign: Foreign::default() };
    let mut sampler = JobSampler::new(Arc::new(model), n_ranks, 1);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let n_ticks = (TICKS_PER_SECOND * step_seconds).round().max(1.0);
    let mut waits = vec![Vec::with_capacity(SIMULATED_STEPS); n_ranks];
    for _ in 0..SIMULATED_STEPS {
        let computed = sampler.computing_fractions(mean_seconds, step_seconds);
        for (waits, computed) in waits.iter_mut().zip(computed) {
            let waited = f64::from(1.0 - computed).clamp(0.0, 1.0);
            let counted = Binomial::new(n_ticks as u64, waited).map_or(0, |ticks| rng.sample(ticks));
            waits.push(counted as f64 / n_ticks);
        }
    }
    waits
}

/// How waits vary from step to step.
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
    use crate::job_trace::tests::label;

    fn always(value: f32) -> Quantiles {
        Quantiles(vec![value; N_QUANTILES])
    }

    #[test]
    fn seconds_sampled_from_ranks_give_back_how_long_they_compute() {
        let sticks = |system| Sticks([always(0.0), always(0.0), always(system)]);
        let barrier = Barrier { mean_seconds: 1.7, computing: sticks(0.01), waiting: sticks(0.97) };
        let memory = Memory { bytes_per_thread: 0.0, growth_bytes_per_second: 0.0 };
        let behaviour = Behaviour::Barrier(barrier);
        let sampled = sample(&KindModel { behaviour, memory, foreign: Foreign::default() }, 4_000, 5);
        let job = JobTrace::of(label("mpi-2", 2), sampled);
        let found = fit(&Recorded::of(&[&job]).unwrap(), &Stop::default()).unwrap();
        assert!((1.5..1.95).contains(&found.mean_seconds), "{}", found.mean_seconds);
    }

    #[test]
    fn a_quarter_of_a_second_is_found_in_steps_of_a_tenth() {
        let waits = simulated_waits(0.25, 0.1, 2);
        let steps: Vec<Vec<[f32; 4]>> = (0..waits[0].len())
            .map(|step| {
                waits.iter().map(|rank| [1.0 - rank[step] as f32, rank[step] as f32, 0.0, 0.0]).collect()
            })
            .collect();
        let job = JobTrace { steps, step_seconds: 0.1, ..JobTrace::of(label("mpi-2", 2), Vec::new()) };
        let found = fit(&Recorded::of(&[&job]).unwrap(), &Stop::default()).unwrap();
        assert!((0.2..0.32).contains(&found.mean_seconds), "{}", found.mean_seconds);
    }

    #[test]
    fn ranks_that_are_always_nearly_together_have_no_barrier_to_fit() {
        let together: Vec<Vec<[f32; 4]>> = (0..100).map(|_| vec![[0.94, 0.06, 0.0, 0.0]; 2]).collect();
        assert!(Recorded::of(&[&JobTrace::of(label("mpi-2", 2), together)]).is_none());
    }
}
