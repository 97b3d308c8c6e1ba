//! Fits the model of each kind to the jobs that were recorded of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use learn::stats::{correlation, std_dev};
use learn::{KMeans, Matrix};
use statrs::distribution::{ContinuousCDF, Normal};
use workload::label::family;

use super::draw::JobDraw;
use super::model::{
    Barrier, Behaviour, KindModel, Memory, Model, N_QUANTILES, N_STICKS, Phase, Phases, Quantiles, REACH,
    Sticks, VERSION, sticks_of,
};
use crate::job_trace::JobTrace;
use crate::jobs::Mpi;

const N_PHASES: usize = 5;
/// A phase that fewer seconds are in is no phase.
const LEAST_SHARE: f64 = 0.03;
const LEAST_SECONDS: usize = 60;
/// How far a rank computes, or waits, to count as doing nothing else.
const CLEARLY: f64 = 0.04;

#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error("{kind} was recorded for {n_seconds} s, and a fit needs {LEAST_SECONDS}")]
    TooShort { kind: String, n_seconds: usize },
    #[error("there is no labelled job to fit to")]
    Nothing,
}

/// What a job did, second by second and thread by thread.
type Run<'a> = &'a [Vec<[f32; 4]>];

/// Fits every kind that was recorded.
pub fn fit(jobs: &[JobTrace], origin: &str) -> Result<Model, FitError> {
    let mut by_kind: BTreeMap<String, Vec<&JobTrace>> = BTreeMap::new();
    for job in jobs {
        by_kind.entry(family(&job.label.kind).to_owned()).or_default().push(job);
    }
    if by_kind.is_empty() {
        return Err(FitError::Nothing);
    }
    let mut kinds = BTreeMap::new();
    for (kind, jobs) in by_kind {
        let runs: Vec<Run<'_>> = jobs.iter().map(|job| job.settled()).collect();
        let n_seconds: usize = runs.iter().map(|run| run.len()).sum();
        if n_seconds < LEAST_SECONDS {
            return Err(FitError::TooShort { kind, n_seconds });
        }
        let behaviour = match kind.as_str() {
            "mpi" if ranks_wait(&runs, waiting_stick(&jobs)) => {
                Behaviour::Barrier(fit_barrier(&runs, waiting_stick(&jobs)))
            }
            _ => Behaviour::Phases(fit_phases(&runs)),
        };
        kinds.insert(kind, KindModel { behaviour, memory: fit_memory(&jobs) });
    }
    Ok(Model { version: VERSION, origin: origin.to_owned(), kinds })
}

/// What the first thread did, and the others on the average.
fn features(second: &[[f32; 4]]) -> [f32; 6] {
    let others = if second.len() > 1 { &second[1..] } else { second };
    let mean = |mode: usize| others.iter().map(|rates| rates[mode]).sum::<f32>() / others.len() as f32;
    let first = second[0];
    [first[0], first[1], first[2], mean(0), mean(1), mean(2)]
}

fn fit_phases(runs: &[Run<'_>]) -> Phases {
    let points: Vec<f32> =
        runs.iter().flat_map(|run| run.iter()).flat_map(|second| features(second)).collect();
    let phase_of = group(&Matrix::new(points, 6));
    let n_phases = phase_of.iter().max().map_or(1, |most| most + 1);
    let mut phase_runs = Vec::new();
    let mut rest = phase_of.as_slice();
    for run in runs {
        let (here, later) = rest.split_at(run.len());
        phase_runs.push(here);
        rest = later;
    }
    let phases: Vec<Phase> = (0..n_phases)
        .map(|phase| {
            let role = |is_first: bool| {
                let mut sticks: [Vec<f32>; N_STICKS] = Default::default();
                for (run, phases) in runs.iter().zip(&phase_runs) {
                    for (second, _) in run.iter().zip(*phases).filter(|(_, here)| **here == phase) {
                        let threads = match (is_first, second.len()) {
                            (true, _) => &second[..1],
                            (false, 1) => &second[..],
                            (false, _) => &second[1..],
                        };
                        for rates in threads {
                            let broken = sticks_of(*rates);
                            sticks.iter_mut().zip(broken).for_each(|(all, stick)| all.push(stick));
                        }
                    }
                }
                Sticks(sticks.map(quantiles))
            };
            Phase { first: role(true), others: role(false) }
        })
        .collect();
    let scores = Scores::new(runs, &phase_runs);
    Phases {
        transitions: transitions(&phase_runs, n_phases),
        memory: scores.memory(),
        shared: scores.shared(),
        correlation: scores.correlation(),
        phases,
    }
}

/// Numbers of phases, without those that are too rare.
fn group(points: &Matrix) -> Vec<usize> {
    let Ok(found) = KMeans::fit(points, N_PHASES, 0) else { return Vec::new() };
    let n_groups = found.centres.n_rows();
    let mut counts = vec![0usize; n_groups];
    found.groups.iter().for_each(|group| counts[*group] += 1);
    let least = (LEAST_SHARE * points.n_rows() as f64) as usize;
    let kept: Vec<usize> = (0..n_groups).filter(|group| counts[*group] > least).collect();
    let phases = KMeans { centres: found.centres.select(&kept), groups: Vec::new() };
    points.rows().map(|point| phases.nearest(point)).collect()
}

fn transitions(phase_runs: &[&[usize]], n_phases: usize) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; n_phases]; n_phases];
    for run in phase_runs {
        run.windows(2).for_each(|pair| counts[pair[0]][pair[1]] += 1.0);
    }
    for (phase, row) in counts.iter_mut().enumerate() {
        let total: f64 = row.iter().sum();
        match total > 0.0 {
            true => row.iter_mut().for_each(|count| *count = rounded(*count / total)),
            false => row[phase] = 1.0,
        }
        // What rounding has left goes to the most likely.
        let left = 1.0 - row.iter().sum::<f64>();
        if let Some(most) = row.iter_mut().max_by(|a, b| a.total_cmp(b)) {
            *most = rounded(*most + left);
        }
    }
    counts
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn quantiles(mut values: Vec<f32>) -> Quantiles {
    values.sort_by(f32::total_cmp);
    let normal = Normal::standard();
    let at = |index: usize| {
        let deviate = -REACH + 2.0 * REACH * index as f64 / (N_QUANTILES - 1) as f64;
        let place = normal.cdf(deviate) * (values.len() - 1) as f64;
        let (below, rest) = (place as usize, place.fract() as f32);
        let value = values[below] + (values[(below + 1).min(values.len() - 1)] - values[below]) * rest;
        (value * 1e4).round() / 1e4
    };
    match values.is_empty() {
        true => Quantiles(vec![0.0; N_QUANTILES]),
        false => Quantiles((0..N_QUANTILES).map(at).collect()),
    }
}

/// A run, a second of it, a thread.
type Place = (usize, usize, usize);

/// Sticks as normal deviates: how unusual each is in its phase and role.
struct Scores {
    /// By run, second, thread.
    runs: Vec<Vec<Vec<[f64; N_STICKS]>>>,
}

impl Scores {
    fn new(runs: &[Run<'_>], phase_runs: &[&[usize]]) -> Self {
        let mut scored: Vec<Vec<Vec<[f64; N_STICKS]>>> = runs
            .iter()
            .map(|run| run.iter().map(|second| vec![[0.0; N_STICKS]; second.len()]).collect())
            .collect();
        // Where each second of a thread is, by phase and role.
        let mut places: BTreeMap<(usize, bool), Vec<Place>> = BTreeMap::new();
        for (at, (run, phases)) in runs.iter().zip(phase_runs).enumerate() {
            for (second, (threads, phase)) in run.iter().zip(*phases).enumerate() {
                for thread in 0..threads.len() {
                    places.entry((*phase, thread == 0)).or_default().push((at, second, thread));
                }
            }
        }
        for places in places.values() {
            let sticks: Vec<[f32; N_STICKS]> =
                places.iter().map(|(run, second, thread)| sticks_of(runs[*run][*second][*thread])).collect();
            for stick in 0..N_STICKS {
                let values: Vec<f32> = sticks.iter().map(|sticks| sticks[stick]).collect();
                for ((run, second, thread), score) in places.iter().zip(normal_scores(&values)) {
                    scored[*run][*second][*thread][stick] = score;
                }
            }
        }
        Self { runs: scored }
    }

    fn memory(&self) -> [f64; N_STICKS] {
        self.correlate(|run, stick, pairs| {
            for (here, next) in run.iter().zip(&run[1..]) {
                pairs.extend(here.iter().zip(next).map(|(a, b)| (a[stick], b[stick])));
            }
        })
        .map(|memory| memory.clamp(0.0, 0.98))
    }

    fn shared(&self) -> [f64; N_STICKS] {
        self.correlate(|run, stick, pairs| {
            for second in run {
                pairs.extend(second[1..].iter().map(|other| (second[0][stick], other[stick])));
            }
        })
        .map(|shared| shared.clamp(0.0, 0.98))
    }

    fn correlation(&self) -> [[f64; N_STICKS]; N_STICKS] {
        std::array::from_fn(|one| {
            std::array::from_fn(|other| {
                let mut pairs = Vec::new();
                for rates in self.runs.iter().flatten().flatten() {
                    pairs.push((rates[one], rates[other]));
                }
                if one == other { 1.0 } else { rounded(correlation(pairs.into_iter()).clamp(-0.95, 0.95)) }
            })
        })
    }

    fn correlate(
        &self,
        gather: impl Fn(&[Vec<[f64; N_STICKS]>], usize, &mut Vec<(f64, f64)>),
    ) -> [f64; N_STICKS] {
        std::array::from_fn(|stick| {
            let mut pairs = Vec::new();
            self.runs.iter().filter(|run| !run.is_empty()).for_each(|run| gather(run, stick, &mut pairs));
            rounded(correlation(pairs.into_iter()))
        })
    }
}

/// The normal deviate of each value's rank; values that are alike share theirs.
fn normal_scores(values: &[f32]) -> Vec<f64> {
    let normal = Normal::standard();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut scores = vec![0.0; values.len()];
    let mut below = 0;
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let place = (below as f64 + tied.len() as f64 / 2.0) / values.len() as f64;
        let score = normal.inverse_cdf(place.clamp(1e-4, 1.0 - 1e-4));
        tied.iter().for_each(|index| scores[*index] = score);
        below += tied.len();
    }
    scores
}

/// What shows that a rank waits: ranks of MPI yield, which is system time; threads at a barrier sleep.
fn waiting_stick(jobs: &[&JobTrace]) -> usize {
    let are_threads = jobs.iter().any(|job| job.label.made_by.as_deref() == Some(Mpi::NAME_WITHOUT));
    if are_threads { 0 } else { 2 }
}

/// Whether ranks ever wait for most of a second; those that are always nearly together do not, and are
/// like any other threads.
fn ranks_wait(runs: &[Run<'_>], stick: usize) -> bool {
    share_while_waiting(runs, stick) > 0.5
}

/// The stick of a second in which a rank did nothing but wait, as far as there are any.
fn share_while_waiting(runs: &[Run<'_>], stick: usize) -> f64 {
    let mut sorted: Vec<f32> =
        runs.iter().flat_map(|run| run.iter()).flatten().map(|rates| sticks_of(*rates)[stick]).collect();
    sorted.sort_by(f32::total_cmp);
    f64::from(sorted[(sorted.len() - 1) * 97 / 100])
}

fn fit_barrier(runs: &[Run<'_>], stick: usize) -> Barrier {
    let while_waiting = share_while_waiting(runs, stick);
    let waited = |rates: &[f32; 4]| (f64::from(sticks_of(*rates)[stick]) / while_waiting).min(1.0);
    let gather = |is_wanted: &dyn Fn(f64) -> bool| {
        let mut sticks: [Vec<f32>; N_STICKS] = Default::default();
        for rates in runs.iter().flat_map(|run| run.iter()).flatten().filter(|rates| is_wanted(waited(rates)))
        {
            sticks.iter_mut().zip(sticks_of(*rates)).for_each(|(all, stick)| all.push(stick));
        }
        Sticks(sticks.map(quantiles))
    };
    let computing = gather(&|waited| waited < CLEARLY);
    let waiting = gather(&|waited| waited > 1.0 - CLEARLY);
    let n_ranks = runs.iter().find_map(|run| run.first()).map_or(1, Vec::len);
    let wanted = variation(&waits_of(runs, &waited));
    let off = |mean: f64| {
        let barrier = Barrier { mean_seconds: mean, computing: computing.clone(), waiting: waiting.clone() };
        let memory = Memory { bytes_a_thread: 0.0, growth_bytes_a_second: 0.0 };
        let model = KindModel { behaviour: Behaviour::Barrier(barrier), memory };
        let mut draw = JobDraw::new(Arc::new(model), n_ranks, 1);
        let mut seconds = Vec::new();
        for _ in 0..5_000 {
            let mut second = vec![[0.0; 4]; n_ranks];
            draw.second([0.0; N_STICKS], |rank, rates| second[rank] = rates);
            seconds.push(second);
        }
        let found = variation(&waits_of(&[&seconds], &waited));
        (found.0 - wanted.0).powi(2) + (found.1 - wanted.1).powi(2)
    };
    let candidates = (0..40).map(|step| 0.1 * 1.12f64.powi(step));
    let best = candidates.map(|mean| (mean, off(mean))).min_by(|a, b| a.1.total_cmp(&b.1));
    let mean_seconds = best.map_or(1.0, |(mean, _)| (mean * 100.0).round() / 100.0);
    Barrier { mean_seconds, computing, waiting }
}

/// The share of each second that each rank waited, rank by rank.
fn waits_of(runs: &[Run<'_>], waited: &impl Fn(&[f32; 4]) -> f64) -> Vec<Vec<f64>> {
    let of_rank =
        |run: &Run<'_>, rank: usize| run.iter().filter_map(|second| second.get(rank)).map(waited).collect();
    runs.iter()
        .flat_map(|run| (0..run.first().map_or(0, Vec::len)).map(move |rank| of_rank(run, rank)))
        .collect()
}

/// The standard deviation from second to second, and how much of it is left a second later.
fn variation(series: &[Vec<f64>]) -> (f64, f64) {
    let values: Vec<f64> = series.iter().flatten().copied().collect();
    let pairs = series.iter().flat_map(|series| series.windows(2).map(|pair| (pair[0], pair[1])));
    (std_dev(&values), correlation(pairs))
}

/// A straight line through each job's memory.
fn fit_memory(jobs: &[&JobTrace]) -> Memory {
    let mut pairs = Vec::new();
    for job in jobs {
        let n_threads = job.label.threads.len().max(1) as f64;
        pairs.extend(job.settled_memory().map(|(second, bytes)| (second, bytes, n_threads)));
    }
    if pairs.is_empty() {
        return Memory { bytes_a_thread: 0.0, growth_bytes_a_second: 0.0 };
    }
    let n_pairs = pairs.len() as f64;
    let seconds = pairs.iter().map(|(second, _, _)| second).sum::<f64>() / n_pairs;
    let bytes = pairs.iter().map(|(_, bytes, _)| bytes).sum::<f64>() / n_pairs;
    let along: f64 = pairs.iter().map(|(second, here, _)| (second - seconds) * (here - bytes)).sum();
    let spread: f64 = pairs.iter().map(|(second, _, _)| (second - seconds).powi(2)).sum();
    let growth = if spread > 0.0 { (along / spread).max(0.0) } else { 0.0 };
    let n_threads = pairs.iter().map(|(_, _, n_threads)| n_threads).sum::<f64>() / n_pairs;
    Memory {
        bytes_a_thread: ((bytes - growth * seconds).max(0.0) / n_threads).round(),
        growth_bytes_a_second: growth.round(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorded_model;
    use super::*;

    fn draw(model: &KindModel, n_seconds: usize, seed: u64) -> Vec<Vec<[f32; 4]>> {
        let mut draw = JobDraw::new(Arc::new(model.clone()), 2, seed);
        let second = |_| {
            let mut second = vec![[0.0; 4]; 2];
            draw.second([0.0; N_STICKS], |thread, rates| second[thread] = rates);
            second
        };
        (0..n_seconds).map(second).collect()
    }

    #[test]
    fn what_was_drawn_from_ranks_gives_back_how_long_they_compute() {
        let always = |share: f32| Quantiles(vec![share; N_QUANTILES]);
        let sticks = |system| Sticks([always(0.0), always(0.0), always(system)]);
        let barrier = Barrier { mean_seconds: 1.7, computing: sticks(0.01), waiting: sticks(0.97) };
        let memory = Memory { bytes_a_thread: 0.0, growth_bytes_a_second: 0.0 };
        let model = KindModel { behaviour: Behaviour::Barrier(barrier), memory };
        let drawn = draw(&model, 4_000, 5);
        assert!(ranks_wait(&[&drawn], 2));
        let found = fit_barrier(&[&drawn], 2);
        assert!((found.mean_seconds / 1.7 - 1.0).abs() < 0.35, "{}", found.mean_seconds);
    }

    #[test]
    fn ranks_that_are_always_nearly_together_have_no_barrier_to_fit() {
        let together: Vec<Vec<[f32; 4]>> = (0..100).map(|_| vec![[0.94, 0.06, 0.0, 0.0]; 2]).collect();
        assert!(!ranks_wait(&[&together], 2));
    }

    #[test]
    fn what_was_drawn_from_phases_has_their_means_and_shares_as_much() {
        let model = &recorded_model().unwrap().kinds["good-io"];
        let Behaviour::Phases(wanted) = &model.behaviour else { panic!("writers go through phases") };
        let (one, other) = (draw(model, 4_000, 5), draw(model, 4_000, 6));
        let mean = |run: Run<'_>, mode: usize| {
            run.iter().flatten().map(|rates| f64::from(rates[mode])).sum::<f64>() / (2 * run.len()) as f64
        };
        for mode in 0..4 {
            assert!((mean(&one, mode) - mean(&other, mode)).abs() < 0.05);
        }
        let found = fit_phases(&[&one]);
        for stick in 0..N_STICKS {
            assert!(
                (found.shared[stick] - wanted.shared[stick]).abs() < 0.25,
                "{:?} {:?}",
                found.shared,
                wanted.shared
            );
        }
    }
}
