//! Fits the model of each kind to the recorded jobs of that kind.

mod barrier;
mod copula;
mod phases;

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, Normal};
use workload::label::family;
use workload::{Stop, Stopped};

use super::model::{
    Behaviour, Foreign, KindModel, MAX_DEVIATE, Memory, Model, N_QUANTILES, N_STICKS, Quantiles, Sticks,
    VERSION, sticks_of,
};
use crate::job_trace::JobTrace;
use crate::kind::Kind;

/// The kind of jobs that somebody else's process competes with.
const HOGGED: &str = "cpu-hog";
/// Seconds that a kind has to be recorded for.
const MIN_SECONDS: usize = 60;

#[derive(Debug, thiserror::Error)]
pub enum FitError {
    #[error("{kind} was recorded for {n_seconds} s, but a fit needs {MIN_SECONDS} s")]
    TooShort { kind: String, n_seconds: usize },
    #[error("there are no labelled jobs to fit to")]
    NoJobs,
    #[error("{0}")]
    Stopped(#[from] Stopped),
}

/// The rates of a job by second and thread: user, system, iowait, other.
type Run<'a> = &'a [Vec<[f32; 4]>];

/// Fits all kinds that were recorded. `origin` describes the recording.
pub fn fit(jobs: &[JobTrace], origin: &str, stop: &Stop) -> Result<Model, FitError> {
    let mut by_kind: BTreeMap<String, Vec<&JobTrace>> = BTreeMap::new();
    // A process without a job owns no threads, so there is nothing to fit.
    for job in jobs.iter().filter(|job| job.label.kind.parse::<Kind>().map_or(true, Kind::owns_threads)) {
        by_kind.entry(family(&job.label.kind).to_owned()).or_default().push(job);
    }
    if by_kind.is_empty() {
        return Err(FitError::NoJobs);
    }
    let mut kinds = BTreeMap::new();
    for (kind, jobs) in by_kind {
        let runs: Vec<Run<'_>> = jobs.iter().map(|job| job.settled()).collect();
        let n_seconds: usize = runs.iter().map(|run| run.len()).sum();
        if n_seconds < MIN_SECONDS {
            return Err(FitError::TooShort { kind, n_seconds });
        }
        let behaviour = match (kind.as_str(), barrier::Recorded::of(&jobs)) {
            ("mpi", Some(recorded)) => Behaviour::Barrier(barrier::fit(&recorded, stop)?),
            _ => Behaviour::Phases(phases::fit(&runs, stop)?),
        };
        let foreign = fit_foreign(&kind, &jobs);
        kinds.insert(kind, KindModel { behaviour, memory: fit_memory(&jobs), foreign });
    }
    Ok(Model { version: VERSION, origin: origin.to_owned(), kinds })
}

/// The CPU time that others used. All of it is that of the hog where there is one.
fn fit_foreign(kind: &str, jobs: &[&JobTrace]) -> Foreign {
    let of_jobs =
        jobs.iter().filter_map(|job| Some((job.foreign_cpu?, job.label.threads.len().max(1) as f64)));
    if kind == HOGGED {
        let hogs = of_jobs.map(|(foreign, _)| rounded(foreign.min(1.0))).collect();
        return Foreign { per_thread: 0.0, hogs };
    }
    let per_thread: Vec<f64> = of_jobs.map(|(foreign, n_threads)| foreign / n_threads).collect();
    let mean = per_thread.iter().sum::<f64>() / per_thread.len().max(1) as f64;
    Foreign { per_thread: rounded(mean), hogs: Vec::new() }
}

/// Linear regression of memory on time, over all jobs of a kind.
fn fit_memory(jobs: &[&JobTrace]) -> Memory {
    struct Point {
        seconds: f64,
        bytes: f64,
        n_threads: f64,
    }
    let mut points = Vec::new();
    for job in jobs {
        let n_threads = job.label.threads.len().max(1) as f64;
        let readings = job.settled_memory();
        points.extend(readings.map(|at| Point { seconds: at.seconds, bytes: at.bytes, n_threads }));
    }
    if points.is_empty() {
        return Memory { bytes_per_thread: 0.0, growth_bytes_per_second: 0.0 };
    }
    let mean = |value: fn(&Point) -> f64| points.iter().map(value).sum::<f64>() / points.len() as f64;
    let (seconds, bytes) = (mean(|point| point.seconds), mean(|point| point.bytes));
    let n_threads = mean(|point| point.n_threads);
    let covariance: f64 = points.iter().map(|point| (point.seconds - seconds) * (point.bytes - bytes)).sum();
    let variance: f64 = points.iter().map(|point| (point.seconds - seconds).powi(2)).sum();
    let growth = if variance > 0.0 { (covariance / variance).max(0.0) } else { 0.0 };
    Memory {
        bytes_per_thread: ((bytes - growth * seconds).max(0.0) / n_threads).round(),
        growth_bytes_per_second: growth.round(),
    }
}

/// The distributions of the sticks of many seconds.
fn sticks_distribution<'a>(all_rates: impl Iterator<Item = &'a [f32; 4]>) -> Sticks {
    let mut sticks: [Vec<f32>; N_STICKS] = Default::default();
    for rates in all_rates {
        for (values, stick) in sticks.iter_mut().zip(sticks_of(*rates)) {
            values.push(stick);
        }
    }
    Sticks(sticks.map(quantiles))
}

fn quantiles(mut values: Vec<f32>) -> Quantiles {
    if values.is_empty() {
        return Quantiles(vec![0.0; N_QUANTILES]);
    }
    values.sort_by(f32::total_cmp);
    let normal = Normal::standard();
    let at = |index: usize| {
        let deviate = -MAX_DEVIATE + 2.0 * MAX_DEVIATE * index as f64 / (N_QUANTILES - 1) as f64;
        let position = normal.cdf(deviate) * (values.len() - 1) as f64;
        let (below, rest) = (position as usize, position.fract() as f32);
        let value = values[below] + (values[(below + 1).min(values.len() - 1)] - values[below]) * rest;
        (value * 1e4).round() / 1e4
    };
    Quantiles((0..N_QUANTILES).map(at).collect())
}

/// To four decimals, so that model files stay small.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::recorded_model;
    use super::super::sampler::JobSampler;
    use super::*;
    use crate::job_trace::MemoryReading;

    /// Seconds of a job of two threads.
    pub fn sample(model: &KindModel, n_seconds: usize, seed: u64) -> Vec<Vec<[f32; 4]>> {
        let mut sampler = JobSampler::new(Arc::new(model.clone()), 2, seed);
        let second = |_| {
            let mut second = vec![[0.0; 4]; 2];
            sampler.second([0.0; N_STICKS], |thread, rates| second[thread] = rates);
            second
        };
        (0..n_seconds).map(second).collect()
    }

    #[test]
    fn a_fit_without_jobs_or_with_too_few_seconds_is_rejected_and_can_be_stopped() {
        assert!(matches!(fit(&[], "", &Stop::default()), Err(FitError::NoJobs)));
        let job = |n_seconds: usize| {
            let seconds = sample(&recorded_model().unwrap().kinds["np"], n_seconds, 1);
            JobTrace::of(crate::job_trace::tests::label("np", 2), seconds)
        };
        let short = fit(&[job(40)], "", &Stop::default());
        assert!(matches!(short, Err(FitError::TooShort { n_seconds: 37, .. })), "{short:?}");
        let stop = Stop::default();
        stop.now();
        assert!(matches!(fit(&[job(400)], "", &stop), Err(FitError::Stopped(_))));
    }

    #[test]
    fn memory_is_a_line_through_all_jobs() {
        let reading = |second: f64| MemoryReading { seconds: second, bytes: 4e6 + 1e3 * second };
        let memory = (0..100).map(|second| reading(f64::from(second))).collect();
        let job = JobTrace { memory, ..JobTrace::of(crate::job_trace::tests::label("leak", 2), Vec::new()) };
        let found = fit_memory(&[&job]);
        assert_eq!(found, Memory { bytes_per_thread: 2e6, growth_bytes_per_second: 1e3 });
    }
}
