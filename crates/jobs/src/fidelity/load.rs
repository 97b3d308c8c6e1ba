//! The work that arrives: node seconds per hour and day, as nodes that would be busy if no job waited.

use serde::Serialize;

use super::sequence::{Figure, MAX_BINS};
use crate::replay::ReplayTrace;

pub(super) const HOUR_SECONDS: f64 = 3_600.0;
pub(super) const DAY_SECONDS: f64 = 24.0 * HOUR_SECONDS;

/// How the offered load varies. All figures are in nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadFidelity {
    pub mean: Figure,
    pub std_dev: Figure,
    pub largest: Figure,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OfferedLoad {
    pub hourly: LoadFidelity,
    pub daily: LoadFidelity,
}

impl OfferedLoad {
    pub fn of(real: &ReplayTrace, synthetic: &ReplayTrace) -> Self {
        let figures = |width: f64| {
            let (real, synthetic) = (offered_load(real, width), offered_load(synthetic, width));
            let figure = |of: fn(&[f64]) -> f64| Figure { real: of(&real), synthetic: of(&synthetic) };
            LoadFidelity {
                mean: figure(learn::stats::mean),
                std_dev: figure(learn::stats::std_dev),
                largest: figure(|loads| loads.iter().copied().fold(0.0, f64::max)),
            }
        };
        Self { hourly: figures(HOUR_SECONDS), daily: figures(DAY_SECONDS) }
    }
}

/// The node seconds of the jobs submitted in each bin of `width` seconds, divided by `width`.
pub(super) fn offered_load(trace: &ReplayTrace, width: f64) -> Vec<f64> {
    let last = trace.jobs().last().map_or(0.0, |job| job.submit_seconds);
    // Gaps in traces of more bins are errors; their jobs are counted in the last one.
    let n_bins = ((last / width) as usize).min(MAX_BINS) + 1;
    let mut loads = vec![0.0; n_bins];
    for job in trace.jobs() {
        let bin = ((job.submit_seconds / width) as usize).min(n_bins - 1);
        loads[bin] += job.n_nodes as f64 * job.run_seconds / width;
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::ReplayJob;

    fn trace(submitted: &[f64]) -> ReplayTrace {
        let job = |submit_seconds: &f64| ReplayJob {
            submit_seconds: *submit_seconds,
            run_seconds: HOUR_SECONDS,
            requested_seconds: None,
            n_nodes: 10,
            user: 0,
        };
        ReplayTrace::new(submitted.iter().map(job).collect())
    }

    #[test]
    fn the_same_work_at_once_has_larger_peaks() {
        let steady = trace(&[0.0, 3_600.0, 7_200.0, 10_800.0]);
        let burst = trace(&[0.0, 0.0, 0.0, 10_800.0]);
        let OfferedLoad { hourly, daily } = OfferedLoad::of(&steady, &burst);
        assert_eq!((hourly.mean.real, hourly.mean.synthetic), (10.0, 10.0));
        assert_eq!((hourly.largest.real, hourly.largest.synthetic), (10.0, 30.0));
        assert!(hourly.std_dev.real == 0.0 && hourly.std_dev.synthetic > 10.0);
        assert_eq!(daily.largest.real, daily.largest.synthetic, "both are within one day");
    }

    #[test]
    fn a_gap_of_centuries_does_not_take_all_memory() {
        let gap = trace(&[0.0, 1e15]);
        assert_eq!(offered_load(&gap, HOUR_SECONDS).len(), MAX_BINS + 1);
    }
}
