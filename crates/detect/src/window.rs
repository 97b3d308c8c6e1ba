//! Windows, the input of every detector: the same stretch of time on every thread of a cluster.

use std::ops::Range;

use workload::{Cpu, JobId, Millis, NodeName, Owner, Timestamp};

use crate::channel::{JobChannel, N_RATES};
use crate::usage::JobUsage;

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

    /// The time from one window to the next.
    pub fn stride_length(&self) -> Millis {
        Millis(self.period.0 * self.stride as i64)
    }

    /// The first start of a window at or after a time.
    pub fn next_start(&self, time: Timestamp) -> Timestamp {
        let start = time.floor(self.stride_length());
        if start < time { start + self.stride_length() } else { start }
    }
}

/// The window of one thread that had the same owner from the first step to the last.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadWindow {
    pub node: NodeName,
    pub cpu: Cpu,
    pub owner: Owner,
    /// All channels of the first step, then of the second, and so on.
    pub values: Vec<f32>,
}

impl ThreadWindow {
    /// The job that owned the thread, if exactly one did.
    pub fn job(&self) -> Option<&JobId> {
        self.owner.job()
    }
}

/// The windows of a cluster that start at the same time, sorted by node, owner and CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowBatch {
    start: Timestamp,
    n_channels: usize,
    threads: Vec<ThreadWindow>,
    usage: Vec<JobUsage>,
}

impl WindowBatch {
    pub fn new(start: Timestamp, n_channels: usize, mut threads: Vec<ThreadWindow>) -> Self {
        threads.sort_by(|a, b| (&a.node, &a.owner, a.cpu).cmp(&(&b.node, &b.owner, b.cpu)));
        Self { start, n_channels, threads, usage: Vec::new() }
    }

    /// The same batch with what control groups say about its jobs.
    #[must_use]
    pub fn with_usage(self, mut usage: Vec<JobUsage>) -> Self {
        usage.sort_by(|a, b| (&a.node, &a.job).cmp(&(&b.node, &b.job)));
        Self { usage, ..self }
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

    /// What control groups say about the jobs of this batch, as far as it was recorded.
    pub fn usage(&self) -> &[JobUsage] {
        &self.usage
    }

    /// What the control group of a thread's job says, if it was recorded.
    pub fn usage_of(&self, thread: &ThreadWindow) -> Option<&JobUsage> {
        let wanted = (&thread.node, thread.job()?);
        let place = self.usage.binary_search_by(|usage| (&usage.node, &usage.job).cmp(&wanted));
        place.ok().map(|place| &self.usage[place])
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
        let threads: Vec<ThreadWindow> =
            self.threads.iter().filter(|thread| is_kept(thread)).cloned().collect();
        let is_there = |usage: &&JobUsage| {
            threads.iter().any(|thread| thread.node == usage.node && thread.job() == Some(&usage.job))
        };
        let usage = self.usage.iter().filter(is_there).cloned().collect();
        Self { threads, usage, ..*self }
    }

    /// The windows of each node.
    pub fn nodes(&self) -> Vec<Range<usize>> {
        ranges(&self.threads, |a, b| a.node == b.node)
    }

    /// The windows of each owner on each node: of each job, and of the threads that no single job owned.
    pub fn groups(&self) -> Vec<Range<usize>> {
        ranges(&self.threads, |a, b| a.node == b.node && a.owner == b.owner)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn window(node: &str, job: Option<&str>, cpu: u16) -> ThreadWindow {
        ThreadWindow {
            node: NodeName::new(node).unwrap(),
            cpu: Cpu(cpu),
            owner: job.map_or(Owner::Nobody, |job| Owner::Job(JobId::new(job).unwrap())),
            values: vec![f32::from(cpu); 8],
        }
    }

    #[test]
    fn a_batch_groups_windows_by_node_and_owner_whatever_their_order() {
        let threads = [
            ("n2", Some("a"), 1),
            ("n1", Some("b"), 7),
            ("n1", None, 0),
            ("n1", Some("a"), 3),
            ("n1", Some("b"), 2),
            ("n2", Some("a"), 0),
            ("n1", Some("a"), 9),
        ];
        let threads = threads.map(|(node, job, cpu)| window(node, job, cpu)).to_vec();
        let mut batch = WindowBatch::new(Timestamp(0), 4, threads);
        assert_eq!(batch.nodes(), [0..5, 5..7]);
        assert_eq!(batch.groups(), [0..2, 2..4, 4..5, 5..7]);
        let cpus: Vec<u16> = batch.threads().iter().map(|thread| thread.cpu.0).collect();
        assert_eq!(cpus, [3, 9, 2, 7, 0, 0, 1]);
        for values in batch.values_mut(2..4) {
            values.fill(0.5);
        }
        assert_eq!(batch.values()[16..32], [0.5; 16]);
        let only_n2 = batch.filtered(|thread| thread.node.as_str() == "n2");
        assert_eq!((only_n2.nodes().len(), only_n2.threads().len()), (1, 2));
    }

    #[test]
    fn windows_start_at_multiples_of_the_stride() {
        let spec = WindowSpec { period: Millis(100), n_steps: 20, stride: 5, job_channels: Vec::new() };
        assert_eq!(spec.next_start(Timestamp(1_000)), Timestamp(1_000));
        assert_eq!(spec.next_start(Timestamp(1_001)), Timestamp(1_500));
    }
}
