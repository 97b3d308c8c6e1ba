//! Reads windows from an archive, batch by batch in order of time.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use archive::{Archive, Selection, Snapshot};
use workload::{Control, Derivation, JobId, JobReading, Millis, NodeName, Owner, Timestamp, Trace};

use crate::channel::N_RATES;
use crate::window::{JobFilter, ThreadWindow, WindowBatch, WindowSpec};

/// How much is read at once: no more of an archive is in memory than this much of every node.
const SLICE: Millis = Millis::HOUR;

/// The sampling period of an archive: that of its slowest node, at the node's densest; one second if it is empty.
pub fn period_of(archive: &Archive) -> archive::Result<Millis> {
    let snapshot = archive.snapshot(Selection::default())?;
    let periods = snapshot.nodes().into_iter().map(|node| snapshot.period(&node));
    Ok(periods.max().unwrap_or(Millis::SECOND))
}

/// The windows of an archive that are read.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    pub archive: &'a Archive,
    pub filter: &'a JobFilter,
    pub spec: &'a WindowSpec,
    pub control: Control<'a>,
}

impl Reading<'_> {
    /// Visits the window batches of an archive in order of time. Windows that belong to no job, change
    /// owner or have a gap are left out.
    ///
    /// The visitor ends the reading early with `ControlFlow::Break`, or with an error.
    pub fn for_each_batch<E: From<archive::Error>>(
        &self,
        mut visit: impl FnMut(WindowBatch) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let Some((first, last)) = self.archive.snapshot(Selection::default())?.span() else {
            return Ok(());
        };
        let begin = first.floor(SLICE);
        let n_slices = ((last - begin).0 / SLICE.0 + 1) as u64;
        for slice in 0..n_slices {
            let from = begin + Millis(SLICE.0 * slice as i64);
            for batch in self.slice(from)? {
                self.control.check().map_err(archive::Error::from)?;
                if visit(batch)?.is_break() {
                    return Ok(());
                }
            }
            self.control.report(slice + 1, n_slices).map_err(archive::Error::from)?;
        }
        Ok(())
    }

    /// The batches that start within the slice of time from `from` on.
    fn slice(&self, from: Timestamp) -> archive::Result<Vec<WindowBatch>> {
        let to = from + SLICE + self.spec.length();
        let snapshot = self.archive.snapshot(Selection { from, to, ..Selection::default() })?;
        let mut windows = Windows::default();
        for node in snapshot.nodes() {
            self.control.check()?;
            windows.add(&snapshot, &node, self.filter, self.spec, from..from + SLICE)?;
        }
        Ok(windows.into_batches(self.spec))
    }
}

/// The windows of some nodes that start at exactly one time.
pub(crate) fn batch_at(
    archive: &Archive,
    nodes: &[NodeName],
    spec: &WindowSpec,
    start: Timestamp,
) -> archive::Result<Option<WindowBatch>> {
    let spec = WindowSpec { stride: 1, ..spec.clone() };
    let to = start + spec.length() + spec.period;
    let snapshot = archive.snapshot(Selection { from: start, to, ..Selection::default() })?;
    let mut windows = Windows::default();
    for node in nodes {
        windows.add(&snapshot, node, &JobFilter::All, &spec, start..start + Millis(1))?;
    }
    Ok(windows.into_batches(&spec).pop())
}

/// Windows by the time at which they start.
#[derive(Default)]
struct Windows(BTreeMap<Timestamp, Vec<ThreadWindow>>);

impl Windows {
    fn into_batches(self, spec: &WindowSpec) -> Vec<WindowBatch> {
        let batches = self.0.into_iter();
        batches.map(|(start, threads)| WindowBatch::new(start, spec.n_channels(), threads)).collect()
    }

    /// Adds the windows of one node that start within `starts`.
    fn add(
        &mut self,
        snapshot: &Snapshot,
        node: &NodeName,
        filter: &JobFilter,
        spec: &WindowSpec,
        starts: Range<Timestamp>,
    ) -> archive::Result<()> {
        let derivation = Derivation { period: spec.period, ..Derivation::default() };
        let traces = snapshot.traces(node, &derivation)?;
        let job_series = JobSeries::read(snapshot, node, filter, spec, starts.start)?;
        let stride = Millis(spec.period.0 * spec.stride as i64);
        for trace in &traces {
            let earliest = starts.start.max(trace.start());
            let mut start = earliest.floor(stride);
            if start < earliest {
                start = start + stride;
            }
            while start < starts.end && start < trace.time(trace.len()) {
                if let Some((job, mut values)) = window(trace, filter, spec, start)
                    && job_series.add(&job, start, &mut values)
                {
                    let window = ThreadWindow { node: node.clone(), cpu: trace.thread().cpu, job, values };
                    self.0.entry(start).or_default().push(window);
                }
                start = start + stride;
            }
        }
        Ok(())
    }
}

fn window(
    trace: &Trace,
    filter: &JobFilter,
    spec: &WindowSpec,
    start: Timestamp,
) -> Option<(JobId, Vec<f32>)> {
    let first = usize::try_from((start - trace.start()).0 / spec.period.0).ok()?;
    let window = trace.window(first, spec.n_steps)?;
    let Owner::Job(job) = window.owner()? else { return None };
    if !filter.contains(job, start, start + spec.length()) {
        return None;
    }
    let mut values = Vec::with_capacity(spec.n_steps * spec.n_channels());
    for rates in window.rates() {
        values.extend_from_slice(rates.as_array());
        values.extend(std::iter::repeat_n(0.0, spec.job_channels.len()));
    }
    Some((job.clone(), values))
}

/// The job channels of a node's jobs, at each step of a slice.
struct JobSeries {
    from: Timestamp,
    period: Millis,
    n_channels: usize,
    /// For each job, one series per job channel.
    of_job: BTreeMap<JobId, Vec<Vec<Option<f32>>>>,
}

impl JobSeries {
    fn read(
        snapshot: &Snapshot,
        node: &NodeName,
        filter: &JobFilter,
        spec: &WindowSpec,
        from: Timestamp,
    ) -> archive::Result<Self> {
        let mut of_job = BTreeMap::new();
        if !spec.job_channels.is_empty() {
            let mut readings: BTreeMap<JobId, Vec<(Timestamp, JobReading)>> = BTreeMap::new();
            for (time, reading) in snapshot.job_readings(node)? {
                if filter.contains(&reading.job, time, time) {
                    readings.entry(reading.job.clone()).or_default().push((time, reading));
                }
            }
            let n_steps = ((SLICE.0 + spec.length().0) / spec.period.0 + 1) as usize;
            for (job, readings) in readings {
                let mut series = Vec::new();
                for channel in &spec.job_channels {
                    series.push(channel.series(&readings, from, spec.period, n_steps));
                }
                of_job.insert(job, series);
            }
        }
        Ok(Self { from, period: spec.period, n_channels: spec.n_channels(), of_job })
    }

    /// Writes the job channels into a window; false if one of them is unknown at some step.
    fn add(&self, job: &JobId, start: Timestamp, values: &mut [f32]) -> bool {
        if self.n_channels == N_RATES {
            return true;
        }
        let Some(series) = self.of_job.get(job) else { return false };
        let first = ((start - self.from).0 / self.period.0).max(0) as usize;
        for (step, values) in values.chunks_exact_mut(self.n_channels).enumerate() {
            for (value, series) in values[N_RATES..].iter_mut().zip(series) {
                let Some(known) = series.get(first + step).copied().flatten() else { return false };
                *value = known;
            }
        }
        true
    }
}
