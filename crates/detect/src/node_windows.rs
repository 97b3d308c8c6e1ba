//! Cuts windows from the traces of a node. Archives and streams share this code.

use std::collections::BTreeMap;

use workload::{JobId, JobReading, Millis, Owner, Timestamp, Trace};

use crate::channel::N_RATES;
use crate::split::WindowFilter;
use crate::usage::{JobReadings, JobUsage, usage_of};
use crate::window::{ThreadWindow, WindowSpec};

/// How much earlier than a window readings of jobs are needed: the one before it.
pub const JOB_MARGIN: Millis = Millis(60_000);

/// The windows of a node that start at one time, and what is known about their jobs.
#[derive(Debug, Default)]
pub struct NodeWindows {
    pub threads: Vec<ThreadWindow>,
    pub usage: Vec<JobUsage>,
}

/// The windows that start at `start`. Those that change owner, have a gap or lack a job channel are left out.
pub fn cut<'a>(
    traces: impl Iterator<Item = &'a Trace>,
    readings: &JobReadings,
    filter: &WindowFilter,
    spec: &WindowSpec,
    start: Timestamp,
) -> NodeWindows {
    let mut threads: Vec<ThreadWindow> =
        traces.filter_map(|trace| thread_window(trace, filter, spec, start)).collect();
    if !spec.job_channels.is_empty() {
        add_job_channels(&mut threads, readings, spec, start);
    }
    let usage = usage_of(&threads, readings, spec, start);
    NodeWindows { threads, usage }
}

fn thread_window(
    trace: &Trace,
    filter: &WindowFilter,
    spec: &WindowSpec,
    start: Timestamp,
) -> Option<ThreadWindow> {
    let since = (start - trace.start()).0;
    let first = usize::try_from(since / spec.period.0).ok().filter(|_| since >= 0)?;
    let window = trace.window(first, spec.n_steps)?;
    let owner = window.owner()?;
    let thread = trace.thread();
    if !filter.contains(&thread.node, owner, start, start + spec.length()) {
        return None;
    }
    let mut values = Vec::with_capacity(spec.n_steps * spec.n_channels());
    for rates in window.rates() {
        values.extend_from_slice(rates.as_array());
        values.extend(std::iter::repeat_n(0.0, spec.job_channels.len()));
    }
    Some(ThreadWindow { node: thread.node.clone(), cpu: thread.cpu, owner: owner.clone(), values })
}

/// Writes the job channels into windows, and drops windows of jobs for which one is unknown at some step. Threads
/// without a job have zeros.
fn add_job_channels(
    threads: &mut Vec<ThreadWindow>,
    readings: &JobReadings,
    spec: &WindowSpec,
    start: Timestamp,
) {
    let mut known: BTreeMap<JobId, Option<Vec<f32>>> = BTreeMap::new();
    threads.retain_mut(|thread| {
        let Owner::Job(job) = &thread.owner else { return true };
        let of_job = known.entry(job.clone()).or_insert_with(|| {
            // A stream does not have the reading after the window yet.
            let near = near(readings.get(job)?, start - JOB_MARGIN, start + spec.length());
            job_values(near, spec, start)
        });
        let Some(of_job) = of_job else { return false };
        let n_job_channels = spec.job_channels.len();
        let steps = thread.values.chunks_exact_mut(spec.n_channels());
        for (step, of_job) in steps.zip(of_job.chunks_exact(n_job_channels)) {
            step[N_RATES..].copy_from_slice(of_job);
        }
        true
    });
}

fn near(readings: &[(Timestamp, JobReading)], from: Timestamp, to: Timestamp) -> &[(Timestamp, JobReading)] {
    let first = readings.partition_point(|(time, _)| *time < from);
    let last = readings.partition_point(|(time, _)| *time < to);
    &readings[first..last]
}

/// All job channels of the first step, then of the second, and so on; `None` if one is unknown.
fn job_values(readings: &[(Timestamp, JobReading)], spec: &WindowSpec, start: Timestamp) -> Option<Vec<f32>> {
    let series: Vec<Vec<Option<f32>>> = spec
        .job_channels
        .iter()
        .map(|channel| channel.series(readings, start, spec.period, spec.n_steps))
        .collect();
    (0..spec.n_steps).flat_map(|step| series.iter().map(move |series| series[step])).collect()
}
