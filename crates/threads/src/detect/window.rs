//! Windows that detectors look at: the same stretch of time of every thread of a node.

use std::collections::BTreeMap;
use std::ops::Range;

use archive::{Archive, Selection};
use workload::{Cpu, Derivation, JobId, Label, Millis, NodeName, Owner, Set, Timestamp, Trace};

use super::net::N_RATES;

/// How windows are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub n_steps: usize,
    /// Steps from one window to the next.
    pub stride: usize,
}

/// One thread's window.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadWindow {
    pub cpu: Cpu,
    pub job: JobId,
    /// User, system, iowait, other of each step.
    pub rates: Vec<f32>,
}

/// The windows of one node that begin at the same moment, those of a job beside each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub node: NodeName,
    pub start: Timestamp,
    pub threads: Vec<ThreadWindow>,
}

impl Moment {
    /// The windows of each job.
    pub fn jobs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut first = 0;
        self.threads.chunk_by(|a, b| a.job == b.job).map(move |threads| {
            let range = first..first + threads.len();
            first = range.end;
            range
        })
    }
}

/// Which jobs windows are taken of.
#[derive(Debug, Clone, Default)]
pub struct Jobs(Option<BTreeMap<JobId, Set>>, Option<Set>);

impl Jobs {
    /// All of them.
    pub fn all() -> Self {
        Self::default()
    }

    /// Those that labels say are of a set.
    pub fn of_set(labels: &[Label], set: Set) -> Self {
        Self(Some(labels.iter().map(|label| (label.job.clone(), label.set)).collect()), Some(set))
    }

    fn contains(&self, job: &JobId) -> bool {
        match (&self.0, self.1) {
            (Some(sets), Some(set)) => sets.get(job) == Some(&set),
            _ => true,
        }
    }
}

/// Visits the windows of an archive, a node's day at a time. A window belongs to a job that owned its thread
/// from the first step to the last; others are left out.
pub fn for_each_moment(
    archive: &Archive,
    jobs: &Jobs,
    cut: Cut,
    mut visit: impl FnMut(Moment),
) -> archive::Result<()> {
    let snapshot = archive.snapshot(Selection::default())?;
    for node in snapshot.nodes() {
        let Some((first, last)) = snapshot.bounds(&node) else { continue };
        let mut day = first.floor(Millis::DAY);
        while day <= last {
            let selection = Selection { from: day, to: day + Millis::DAY, ..Selection::default() };
            let of_day = archive.snapshot(Selection { node: Some(node.clone()), ..selection })?;
            let traces = of_day.traces(&node, &Derivation::default())?;
            for_each_of_day(&node, &traces, jobs, cut, &mut visit);
            day = day + Millis::DAY;
        }
    }
    Ok(())
}

fn for_each_of_day(node: &NodeName, traces: &[Trace], jobs: &Jobs, cut: Cut, visit: &mut impl FnMut(Moment)) {
    let Some(first) = traces.iter().map(Trace::start).min() else { return };
    let end_of = |trace: &Trace| trace.time(trace.len());
    let Some(end) = traces.iter().map(end_of).max() else { return };
    let step = Millis::SECOND;
    let mut start = first;
    while start + Millis(step.0 * cut.n_steps as i64) <= end {
        let mut threads: Vec<ThreadWindow> = traces
            .iter()
            .filter_map(|trace| {
                let offset = (start - trace.start()).0 / step.0;
                let window = trace.window(usize::try_from(offset).ok()?, cut.n_steps)?;
                let Owner::Job(job) = window.owner()? else { return None };
                let rates = || window.rates().iter().flat_map(|rates| *rates.as_array()).collect::<Vec<f32>>();
                jobs.contains(job).then(|| ThreadWindow { cpu: trace.thread().cpu, job: job.clone(), rates: rates() })
            })
            .collect();
        if !threads.is_empty() {
            threads.sort_by(|a, b| (&a.job, a.cpu).cmp(&(&b.job, b.cpu)));
            visit(Moment { node: node.clone(), start, threads });
        }
        start = start + Millis(step.0 * cut.stride as i64);
    }
}

/// The rates that a network sees: all but the last.
pub fn without_other(rates: &[f32]) -> Vec<f32> {
    rates.chunks_exact(N_RATES).flat_map(|step| step[..N_RATES - 1].iter().copied()).collect()
}
