//! Windows, the input of every detector: the same stretch of time on every thread of a cluster.

use std::collections::BTreeMap;
use std::ops::Range;

use archive::{Archive, Selection};
use workload::{Cpu, JobId, Label, Millis, NodeName, Set, Timestamp};

use crate::channel::{JobChannel, N_RATES};

/// Without labels, the fractions of an archive's time that are used for training and for validation.
const TRAIN_FRACTION: f64 = 0.6;
const VALIDATION_FRACTION: f64 = 0.2;

/// The length, spacing and channels of windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowSpec {
    pub period: Millis,
    pub n_steps: usize,
    /// Steps from one window to the next. Windows start at multiples of the stride since the epoch.
    pub stride: usize,
    pub job_channels: Vec<JobChannel>,
}

impl WindowSpec {
    pub fn n_channels(&self) -> usize {
        N_RATES + self.job_channels.len()
    }

    pub fn length(&self) -> Millis {
        Millis(self.period.0 * self.n_steps as i64)
    }
}

/// The window of one thread that one job owned from the first step to the last.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadWindow {
    pub node: NodeName,
    pub cpu: Cpu,
    pub job: JobId,
    /// All channels of the first step, then of the second, and so on.
    pub values: Vec<f32>,
}

/// The windows of a cluster that start at the same time, sorted by node, job and CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowBatch {
    start: Timestamp,
    n_channels: usize,
    threads: Vec<ThreadWindow>,
}

impl WindowBatch {
    pub fn new(start: Timestamp, n_channels: usize, mut threads: Vec<ThreadWindow>) -> Self {
        threads.sort_by(|a, b| (&a.node, &a.job, a.cpu).cmp(&(&b.node, &b.job, b.cpu)));
        Self { start, n_channels, threads }
    }

    pub fn start(&self) -> Timestamp {
        self.start
    }

    pub fn n_channels(&self) -> usize {
        self.n_channels
    }

    pub fn threads(&self) -> &[ThreadWindow] {
        &self.threads
    }

    /// The values of all windows, one window after the other.
    pub fn values(&self) -> Vec<f32> {
        self.threads.iter().flat_map(|thread| thread.values.iter().copied()).collect()
    }

    /// The values of some windows, to be changed in place.
    pub fn values_mut(&mut self, windows: Range<usize>) -> Vec<&mut [f32]> {
        self.threads[windows].iter_mut().map(|thread| thread.values.as_mut_slice()).collect()
    }

    /// The same batch with only some of its windows.
    #[must_use]
    pub fn filtered(&self, is_kept: impl Fn(&ThreadWindow) -> bool) -> Self {
        let threads = self.threads.iter().filter(|thread| is_kept(thread)).cloned().collect();
        Self { threads, ..*self }
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
    let mut ranges = Vec::new();
    let mut first = 0;
    for group in threads.chunk_by(are_same) {
        ranges.push(first..first + group.len());
        first += group.len();
    }
    ranges
}

/// Selects the jobs whose windows are read.
#[derive(Debug, Clone)]
pub enum JobFilter {
    All,
    /// The jobs that labels put into a set.
    Labelled {
        sets: BTreeMap<JobId, Set>,
        set: Set,
    },
    /// All jobs, but only windows within a stretch of time.
    Between {
        from: Timestamp,
        to: Timestamp,
    },
}

impl JobFilter {
    /// The jobs of a set: by label, or by time in an archive without labels.
    pub fn of_set(archive: &Archive, labels: &[Label], set: Set) -> archive::Result<Self> {
        if !labels.is_empty() {
            let sets = labels.iter().map(|label| (label.job.clone(), label.set)).collect();
            return Ok(Self::Labelled { sets, set });
        }
        let span = archive.snapshot(Selection::default())?.span();
        let (first, last) = span.unwrap_or((Timestamp(0), Timestamp(0)));
        let at = |fraction: f64| first + Millis(((last - first).0 as f64 * fraction) as i64);
        let (train_end, validation_end) = (at(TRAIN_FRACTION), at(TRAIN_FRACTION + VALIDATION_FRACTION));
        let (from, to) = match set {
            Set::Train => (first, train_end),
            Set::Validation => (train_end, validation_end),
            Set::Test => (validation_end, last + Millis(1)),
        };
        Ok(Self::Between { from, to })
    }

    /// Whether some stretch of a job may pass the filter.
    pub fn contains_job(&self, job: &JobId) -> bool {
        match self {
            Self::All | Self::Between { .. } => true,
            Self::Labelled { sets, set } => sets.get(job) == Some(set),
        }
    }

    /// Whether a stretch of a job passes the filter.
    pub fn contains(&self, job: &JobId, start: Timestamp, end: Timestamp) -> bool {
        match self {
            Self::All => true,
            Self::Labelled { sets, set } => sets.get(job) == Some(set),
            Self::Between { from, to } => start >= *from && end <= *to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(node: &str, job: &str, cpu: u16) -> ThreadWindow {
        ThreadWindow {
            node: NodeName::new(node).unwrap(),
            cpu: Cpu(cpu),
            job: JobId::new(job).unwrap(),
            values: vec![f32::from(cpu); 8],
        }
    }

    #[test]
    fn a_batch_groups_windows_by_node_and_job_whatever_their_order() {
        let threads =
            [("n2", "a", 1), ("n1", "b", 7), ("n1", "a", 3), ("n1", "b", 2), ("n2", "a", 0), ("n1", "a", 9)];
        let threads = threads.map(|(node, job, cpu)| window(node, job, cpu)).to_vec();
        let mut batch = WindowBatch::new(Timestamp(0), 4, threads);
        assert_eq!(batch.nodes(), [0..4, 4..6]);
        assert_eq!(batch.jobs(), [0..2, 2..4, 4..6]);
        let cpus: Vec<u16> = batch.threads().iter().map(|thread| thread.cpu.0).collect();
        assert_eq!(cpus, [3, 9, 2, 7, 0, 1]);
        for values in batch.values_mut(2..4) {
            values.fill(0.5);
        }
        assert_eq!(batch.values()[16..32], [0.5; 16]);
        let only_n2 = batch.filtered(|thread| thread.node.as_str() == "n2");
        assert_eq!((only_n2.nodes().len(), only_n2.threads().len()), (1, 2));
    }

    #[test]
    fn filters_pass_the_jobs_of_their_set_or_time() {
        let job = JobId::new("1").unwrap();
        let times = (Timestamp(100), Timestamp(200));
        let labelled = |set| JobFilter::Labelled { sets: [(job.clone(), Set::Train)].into(), set };
        assert!(labelled(Set::Train).contains(&job, times.0, times.1));
        assert!(!labelled(Set::Test).contains(&job, times.0, times.1));
        assert!(!labelled(Set::Train).contains(&JobId::new("2").unwrap(), times.0, times.1));
        let between = |from, to| JobFilter::Between { from: Timestamp(from), to: Timestamp(to) };
        assert!(between(100, 200).contains(&job, times.0, times.1));
        assert!(!between(101, 300).contains(&job, times.0, times.1));
        assert!(!between(0, 199).contains(&job, times.0, times.1));
    }
}
