//! Windows that detectors look at: the same stretch of time of every thread of a cluster.

use std::collections::BTreeMap;
use std::ops::Range;

use archive::{Archive, Selection, Snapshot};
use workload::{Cpu, Derivation, JobId, JobReading, Label, Millis, NodeName, Owner, Set, Timestamp, Trace};

use super::channel::{Extra, N_RATES};

/// What is read at once: no more of an archive is in memory than this of every node.
const SLICE: Millis = Millis::HOUR;
/// Shares of the time of an archive without labels that are for training and for validation.
const TRAIN_SHARE: f64 = 0.6;
const VALIDATION_SHARE: f64 = 0.2;

/// How windows are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    pub period: Millis,
    pub n_steps: usize,
    /// Steps from one window to the next; windows begin at its multiples since the epoch.
    pub stride: usize,
    pub extras: Vec<Extra>,
}

impl Cut {
    pub fn n_channels(&self) -> usize {
        N_RATES + self.extras.len()
    }

    pub fn length(&self) -> Millis {
        Millis(self.period.0 * self.n_steps as i64)
    }
}

/// One thread's window: a thread that one job owned from the first step to the last.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadWindow {
    pub node: NodeName,
    pub cpu: Cpu,
    pub job: JobId,
    /// Every channel of each step.
    pub values: Vec<f32>,
}

/// The windows of a cluster that begin at the same moment: those of a node beside each other, and there
/// those of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    pub start: Timestamp,
    pub n_channels: usize,
    pub threads: Vec<ThreadWindow>,
}

impl Moment {
    fn new(start: Timestamp, n_channels: usize, mut threads: Vec<ThreadWindow>) -> Self {
        threads.sort_by(|a, b| (&a.node, &a.job, a.cpu).cmp(&(&b.node, &b.job, b.cpu)));
        Self { start, n_channels, threads }
    }

    /// The windows of each node.
    pub fn nodes(&self) -> Vec<Range<usize>> {
        ranges(&self.threads, |a, b| a.node == b.node)
    }

    /// The windows of each job on each node.
    pub fn jobs(&self) -> Vec<Range<usize>> {
        ranges(&self.threads, |a, b| a.node == b.node && a.job == b.job)
    }
}

fn ranges(
    threads: &[ThreadWindow],
    are_same: impl Fn(&ThreadWindow, &ThreadWindow) -> bool,
) -> Vec<Range<usize>> {
    let mut first = 0;
    let range = |group: &[ThreadWindow]| {
        let range = first..first + group.len();
        first = range.end;
        range
    };
    threads.chunk_by(are_same).map(range).collect()
}

/// Which jobs windows are taken of.
#[derive(Debug, Clone)]
pub enum Jobs {
    All,
    /// Those that labels say are of a set.
    Labelled {
        sets: BTreeMap<JobId, Set>,
        set: Set,
    },
    /// Whatever ran in a stretch of time.
    Between {
        from: Timestamp,
        to: Timestamp,
    },
}

impl Jobs {
    /// The jobs of a set: by label, or by time where there are none.
    pub fn of_set(archive: &Archive, labels: &[Label], set: Set) -> archive::Result<Self> {
        if !labels.is_empty() {
            let sets = labels.iter().map(|label| (label.job.clone(), label.set)).collect();
            return Ok(Self::Labelled { sets, set });
        }
        let span = archive.snapshot(Selection::default())?.span();
        let (first, last) = span.unwrap_or((Timestamp(0), Timestamp(0)));
        let at = |share: f64| first + Millis(((last - first).0 as f64 * share) as i64);
        let (train, validation) = (at(TRAIN_SHARE), at(TRAIN_SHARE + VALIDATION_SHARE));
        let (from, to) = match set {
            Set::Train => (first, train),
            Set::Validation => (train, validation),
            Set::Test => (validation, last + Millis(1)),
        };
        Ok(Self::Between { from, to })
    }

    /// Whether a stretch of a job is one of them.
    pub fn contains(&self, job: &JobId, start: Timestamp, end: Timestamp) -> bool {
        match self {
            Self::All => true,
            Self::Labelled { sets, set } => sets.get(job) == Some(set),
            Self::Between { from, to } => start >= *from && end <= *to,
        }
    }
}

/// How often an archive was read: as often as the slowest of its nodes, at its densest; a second where nothing says.
pub fn period_of(archive: &Archive) -> archive::Result<Millis> {
    let snapshot = archive.snapshot(Selection::default())?;
    let periods = snapshot.nodes().into_iter().map(|node| snapshot.period(&node));
    Ok(periods.max().unwrap_or(Millis::SECOND))
}

/// Visits the windows of an archive in order of time, and tells how much of it is done. What belongs to
/// nobody, changes owner or has a gap within a window is left out.
pub fn for_each_moment(
    archive: &Archive,
    jobs: &Jobs,
    cut: &Cut,
    mut visit: impl FnMut(Moment),
    mut progress: impl FnMut(u64, u64),
) -> archive::Result<()> {
    let Some((first, last)) = archive.snapshot(Selection::default())?.span() else { return Ok(()) };
    let begin = first.floor(SLICE);
    let n_slices = ((last - begin).0 / SLICE.0 + 1) as u64;
    for slice in 0..n_slices {
        let from = begin + Millis(SLICE.0 * slice as i64);
        let to = from + SLICE + cut.length();
        let moments = cut_slice(archive, from..to, jobs, cut, from + SLICE)?;
        for (start, threads) in moments {
            visit(Moment::new(start, cut.n_channels(), threads));
        }
        progress(slice + 1, n_slices);
    }
    Ok(())
}

/// The last window of every thread: the one that ends with the last reading of the archive.
pub fn latest_moment(archive: &Archive, cut: &Cut) -> archive::Result<Option<Moment>> {
    let Some((_, last)) = archive.snapshot(Selection::default())?.span() else { return Ok(None) };
    // The last step may not be there of every node yet.
    let from = last.floor(cut.period) - cut.length();
    let cut = Cut { stride: 1, ..cut.clone() };
    let mut moments = cut_slice(archive, from..Timestamp::MAX, &Jobs::All, &cut, from + cut.period)?;
    Ok(moments.pop_first().map(|(start, threads)| Moment::new(start, cut.n_channels(), threads)))
}

/// The windows of all nodes in a stretch of time that begin before `end`, by when they begin.
fn cut_slice(
    archive: &Archive,
    stretch: Range<Timestamp>,
    jobs: &Jobs,
    cut: &Cut,
    end: Timestamp,
) -> archive::Result<BTreeMap<Timestamp, Vec<ThreadWindow>>> {
    let mut moments = BTreeMap::new();
    let starts = stretch.start..end;
    let snapshot =
        archive.snapshot(Selection { from: stretch.start, to: stretch.end, ..Selection::default() })?;
    for node in snapshot.nodes() {
        cut_node(&snapshot, &node, jobs, cut, starts.clone(), &mut moments)?;
    }
    Ok(moments)
}

/// The windows of one node that begin within a stretch of time.
fn cut_node(
    snapshot: &Snapshot,
    node: &NodeName,
    jobs: &Jobs,
    cut: &Cut,
    starts: Range<Timestamp>,
    moments: &mut BTreeMap<Timestamp, Vec<ThreadWindow>>,
) -> archive::Result<()> {
    let derivation = Derivation { period: cut.period, ..Derivation::default() };
    let traces = snapshot.traces(node, &derivation)?;
    let extras = ExtraSeries::read(snapshot, node, cut, starts.start, jobs)?;
    let stride = Millis(cut.period.0 * cut.stride as i64);
    for trace in &traces {
        let least = starts.start.max(trace.start());
        let mut start = least.floor(stride);
        if start < least {
            start = start + stride;
        }
        while start < starts.end && start < trace.time(trace.len()) {
            if let Some((job, mut values)) = window(trace, jobs, cut, start)
                && extras.add(&job, start, &mut values)
            {
                let window = ThreadWindow { node: node.clone(), cpu: trace.thread().cpu, job, values };
                moments.entry(start).or_default().push(window);
            }
            start = start + stride;
        }
    }
    Ok(())
}

fn window(trace: &Trace, jobs: &Jobs, cut: &Cut, start: Timestamp) -> Option<(JobId, Vec<f32>)> {
    let first = usize::try_from((start - trace.start()).0 / cut.period.0).ok()?;
    let window = trace.window(first, cut.n_steps)?;
    let Owner::Job(job) = window.owner()? else { return None };
    if !jobs.contains(job, start, start + cut.length()) {
        return None;
    }
    let mut values = Vec::with_capacity(cut.n_steps * cut.n_channels());
    for rates in window.rates() {
        values.extend_from_slice(rates.as_array());
        values.extend(std::iter::repeat_n(0.0, cut.extras.len()));
    }
    Some((job.clone(), values))
}

/// What the control groups of a node's jobs say at each step of a slice.
struct ExtraSeries {
    from: Timestamp,
    period: Millis,
    n_channels: usize,
    /// A series for each channel beside the rates.
    of_job: BTreeMap<JobId, Vec<Vec<Option<f32>>>>,
}

impl ExtraSeries {
    fn read(
        snapshot: &Snapshot,
        node: &NodeName,
        cut: &Cut,
        from: Timestamp,
        jobs: &Jobs,
    ) -> archive::Result<Self> {
        let mut of_job = BTreeMap::new();
        if !cut.extras.is_empty() {
            let mut readings: BTreeMap<JobId, Vec<(Timestamp, JobReading)>> = BTreeMap::new();
            for (time, reading) in snapshot.job_readings(node)? {
                if jobs.contains(&reading.job, time, time) {
                    readings.entry(reading.job.clone()).or_default().push((time, reading));
                }
            }
            let n_steps = ((SLICE.0 + cut.length().0) / cut.period.0 + 1) as usize;
            for (job, readings) in readings {
                let series = |extra: &Extra| extra.series(&readings, from, cut.period, n_steps);
                of_job.insert(job, cut.extras.iter().map(series).collect());
            }
        }
        Ok(Self { from, period: cut.period, n_channels: cut.n_channels(), of_job })
    }

    /// Writes the channels beside the rates into a window; false where one is not known at some step.
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
