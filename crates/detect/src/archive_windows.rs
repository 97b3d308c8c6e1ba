//! Reads windows from an archive, batch by batch in order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use archive::{Archive, Selection, Snapshot};
use workload::{Control, Derivation, Millis, NodeName, Timestamp, Trace};

use crate::node_windows::{JOB_MARGIN, NodeWindows, cut};
use crate::split::WindowFilter;
use crate::usage::JobReadings;
use crate::window::{WindowBatch, WindowSpec};

/// How much is read at once: no more of an archive is in memory than this much of every node.
const SLICE: Millis = Millis::HOUR;
/// How many hours without readings may lie between two readings.
const MAX_HOURS_BEFORE: i64 = 48;

/// How often a slice is read again of which a compaction removed a file.
const MAX_TRIES: usize = 5;

/// The sampling period of an archive: that of most of its nodes, at the node's densest, and of two the
/// shorter; one second if it is empty. Nodes that are read less often have no windows.
pub fn period_of(archive: &Archive) -> archive::Result<Millis> {
    let snapshot = archive.snapshot(Selection::default())?;
    let mut n_nodes: BTreeMap<Millis, usize> = BTreeMap::new();
    for node in snapshot.nodes() {
        *n_nodes.entry(snapshot.period(&node)).or_default() += 1;
    }
    let most = n_nodes.into_iter().max_by_key(|(period, n_nodes)| (*n_nodes, Reverse(*period)));
    Ok(most.map_or(Millis::SECOND, |(period, _)| period))
}

/// Whether any node of an archive can be analysed at `period`: it is read as often, or more often if the period was
/// chosen. Warns of nodes that are read less often, because they have no windows, and of those that are analysed at
/// another period than theirs.
pub(crate) fn has_period(archive: &Archive, period: Millis, is_chosen: bool) -> archive::Result<bool> {
    let snapshot = archive.snapshot(Selection::default())?;
    let periods: Vec<(NodeName, Millis)> =
        snapshot.nodes().into_iter().map(|node| (node.clone(), snapshot.period(&node))).collect();
    let has_period = periods.iter().any(|(_, found)| *found == period || is_chosen && *found < period);
    for (node, found) in periods.iter().filter(|(_, found)| has_period && !is_chosen && *found < period) {
        let (found, period) = (found.as_seconds(), period.as_seconds());
        tracing::warn!("{node} is read every {found} s, but analysed every {period} s");
    }
    for (node, found) in periods.iter().filter(|(_, found)| has_period && *found > period) {
        let (found, period) = (found.as_seconds(), period.as_seconds());
        tracing::warn!("{node} is left out: it is read every {found} s, and not every {period} s");
    }
    Ok(has_period)
}

/// The hours of an archive in which windows can start, in order. A reading accounts for steps before it, so
/// hours before one with readings count as well.
pub(crate) fn hours_of(snapshot: &Snapshot, period: Millis) -> BTreeSet<Timestamp> {
    let longest_gap = period.0.saturating_mul(i64::from(Derivation::default().max_missed) + 2);
    let n_before = (longest_gap / SLICE.0 + 1).min(MAX_HOURS_BEFORE);
    let hours = snapshot.hours_with_readings();
    hours.iter().flat_map(|hour| (0..=n_before).map(|before| *hour - Millis(SLICE.0 * before))).collect()
}

/// The windows of an archive that are read.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    pub archive: &'a Archive,
    pub filter: &'a WindowFilter,
    pub spec: &'a WindowSpec,
    pub control: Control<'a>,
}

impl Reading<'_> {
    /// Visits the window batches of an archive in order of time. Windows that change owner or have a gap
    /// are left out.
    ///
    /// The visitor ends the reading early with `ControlFlow::Break`, or with an error.
    pub fn for_each_batch<E: From<archive::Error>>(
        &self,
        mut visit: impl FnMut(WindowBatch) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        let archive = self.archive.with_stop(self.control.stop());
        let mut hours = hours_of(&archive.snapshot(Selection::default())?, self.spec.period);
        hours.retain(|hour| self.filter.reaches(None, *hour, *hour + SLICE + self.spec.length()));
        let n_hours = hours.len() as u64;
        for (done, hour) in (1..).zip(hours) {
            for batch in read_again(|| self.slice(&archive, hour))? {
                self.control.check().map_err(archive::Error::from)?;
                if visit(batch)?.is_break() {
                    return Ok(());
                }
            }
            self.control.report(done, n_hours).map_err(archive::Error::from)?;
        }
        Ok(())
    }

    /// The batches that start within the slice of time from `from` on.
    fn slice(&self, archive: &Archive, from: Timestamp) -> archive::Result<Vec<WindowBatch>> {
        let to = from + SLICE + self.spec.length();
        let selection = Selection { from: from - JOB_MARGIN, to: to + JOB_MARGIN, ..Selection::default() };
        let snapshot = archive.snapshot(selection)?;
        let mut windows = Windows::default();
        for node in snapshot.nodes().into_iter().filter(|node| self.filter.reaches(Some(node), from, to)) {
            self.control.check()?;
            windows.add(&snapshot, &node, self.filter, self.spec, from..from + SLICE)?;
        }
        Ok(windows.into_batches(self.spec))
    }
}

/// Reads, and reads again if a compaction removed a file meanwhile.
pub(crate) fn read_again<T>(mut read: impl FnMut() -> archive::Result<T>) -> archive::Result<T> {
    let mut tries = 1;
    loop {
        match read() {
            Err(error) if error.is_not_found() && tries < MAX_TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

/// Windows by the time at which they start.
#[derive(Default)]
struct Windows(BTreeMap<Timestamp, NodeWindows>);

impl Windows {
    fn into_batches(self, spec: &WindowSpec) -> Vec<WindowBatch> {
        let batch = |(start, NodeWindows { threads, usage })| {
            WindowBatch::new(start, spec.n_channels(), threads).with_usage(usage)
        };
        self.0.into_iter().map(batch).collect()
    }

    /// Adds the windows of one node that start within `starts`.
    fn add(
        &mut self,
        snapshot: &Snapshot,
        node: &NodeName,
        filter: &WindowFilter,
        spec: &WindowSpec,
        starts: Range<Timestamp>,
    ) -> archive::Result<()> {
        if snapshot.period(node) > spec.period {
            return Ok(());
        }
        let derivation = Derivation { period: spec.period, ..Derivation::default() };
        let traces = snapshot.traces(node, &derivation)?;
        let mut readings = JobReadings::new();
        for (time, reading) in snapshot.job_readings(node)? {
            if filter.contains_job(&reading.job) {
                readings.entry(reading.job.clone()).or_default().push((time, reading));
            }
        }
        let first = traces.iter().map(Trace::start).min().unwrap_or(starts.end).max(starts.start);
        let end = traces.iter().map(|trace| trace.time(trace.len())).max().unwrap_or(first);
        let mut start = spec.next_start(first);
        while start < starts.end && start + spec.length() <= end {
            let NodeWindows { threads, usage } = cut(traces.iter(), &readings, filter, spec, start);
            if !threads.is_empty() {
                let windows = self.0.entry(start).or_default();
                windows.threads.extend(threads);
                windows.usage.extend(usage);
            }
            start = start + spec.stride_length();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use workload::{Control, Cpu, JobId, Label, Owner, Set, Source, Stop, ThreadReading, Ticks};

    use super::*;
    use crate::channel::JobChannel;
    use crate::test_archive::{START, TestArchive};

    fn spec(n_steps: usize, stride: usize) -> WindowSpec {
        WindowSpec { period: Millis::SECOND, n_steps, stride, job_channels: Vec::new() }
    }

    /// The start (in seconds after [`START`]), node, CPU and job of every window.
    fn windows(
        archive: &Archive,
        filter: &WindowFilter,
        spec: &WindowSpec,
    ) -> Vec<(i64, String, u16, String)> {
        let reading = Reading { archive, filter, spec, control: Control::default() };
        let mut found = Vec::new();
        let outcome = reading.for_each_batch::<archive::Error>(|batch| {
            for thread in batch.threads() {
                let start = batch.start().0 / 1_000 - START;
                found.push((
                    start,
                    thread.node.to_string(),
                    thread.cpu.0,
                    thread.job().map_or("-".into(), ToString::to_string),
                ));
            }
            Ok(ControlFlow::Continue(()))
        });
        outcome.unwrap();
        found
    }

    #[test]
    fn windows_start_at_multiples_of_the_stride_and_cross_hours() {
        let mut test = TestArchive::new();
        test.write("n1", START - 31..START + 61, 1, |_, _| Some("1"));
        let starts: Vec<i64> =
            windows(&test.archive, &WindowFilter::All, &spec(20, 10)).into_iter().map(|one| one.0).collect();
        assert_eq!(starts, [-30, -20, -10, 0, 10, 20, 30, 40]);
    }

    #[test]
    fn years_without_readings_between_two_cost_nothing() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 41, 1, |_, _| Some("1"));
        // Clocks that started at the epoch, and at the end of this century.
        test.write("n2", 0..2, 1, |_, _| Some("1"));
        test.write("n3", 4_102_444_800..4_102_444_802, 1, |_, _| Some("1"));
        let hours = hours_of(&test.archive.snapshot(Selection::default()).unwrap(), Millis::SECOND);
        assert!(hours.len() <= 8, "{}", hours.len());
        assert_eq!(windows(&test.archive, &WindowFilter::All, &spec(20, 20)).len(), 2);
    }

    #[test]
    fn a_slow_node_is_left_out_and_does_not_slow_down_the_others() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 41, 1, |_, _| Some("1"));
        test.write("n2", START - 1..START + 41, 1, |_, _| Some("1"));
        let mut slow = test.archive.loader(Source { period: Millis(15_000), ..test.source() }).unwrap();
        for step in 0..20 {
            let thread = ThreadReading {
                cpu: Cpu(0),
                ticks: Ticks::default(),
                owner: Owner::Job(JobId::new("2").unwrap()),
            };
            let time = Timestamp::from_seconds(START + step * 15);
            slow.push(&NodeName::new("slow").unwrap(), time, &thread).unwrap();
        }
        slow.finish().unwrap();
        assert_eq!(period_of(&test.archive).unwrap(), Millis::SECOND);
        assert!(has_period(&test.archive, Millis::SECOND, false).unwrap());
        assert!(!has_period(&test.archive, Millis(5_000), false).unwrap());
        assert!(has_period(&test.archive, Millis(5_000), true).unwrap());
        let found = windows(&test.archive, &WindowFilter::All, &spec(20, 20));
        assert!(found.iter().all(|(_, node, ..)| node != "slow"));
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn windows_with_a_gap_or_an_owner_change_are_left_out() {
        let mut test = TestArchive::new();
        // CPU 0 changes owner at second 50, nobody knows that of CPU 1, and all readings from 81 to 99 are missing.
        let seconds = (START - 1..=START + 80).chain(START + 100..=START + 140);
        test.write("n1", seconds, 2, |second, cpu| match cpu {
            0 if second < START + 50 => Some("first"),
            0 => Some("second"),
            _ => None,
        });
        let found = windows(&test.archive, &WindowFilter::All, &spec(20, 10));
        let shown: Vec<(i64, &str)> = found.iter().map(|(start, _, _, job)| (*start, job.as_str())).collect();
        let first = [0, 10, 20, 30].map(|start| (start, "first"));
        let second = [50, 60, 110, 120].map(|start| (start, "second"));
        let of_jobs: Vec<(i64, &str)> = shown.iter().filter(|(_, job)| *job != "-").copied().collect();
        assert_eq!(of_jobs, [first, second].concat());
        let of_nobody: Vec<i64> =
            shown.iter().filter(|(_, job)| *job == "-").map(|(start, _)| *start).collect();
        assert_eq!(of_nobody, [0, 10, 20, 30, 40, 50, 60, 110, 120]);
    }

    #[test]
    fn a_set_has_the_windows_of_its_labelled_jobs_only() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 60, 2, |_, cpu| Some(["a", "b"][usize::from(cpu)]));
        let label = |job: &str, set: Set| Label {
            campaign: set.to_string(),
            set,
            kind: "np".into(),
            anomalous: None,
            job: JobId::new(job).unwrap(),
            node: NodeName::new("n1").unwrap(),
            threads: Vec::new(),
            start: Timestamp::from_seconds(START),
            end: Timestamp::from_seconds(START + 60),
            made_by: None,
            disturbance: None,
        };
        let filter = WindowFilter::labelled(&[label("a", Set::Train), label("b", Set::Test)], Set::Test);
        let found = windows(&test.archive, &filter, &spec(20, 20));
        assert!(found.iter().all(|(.., job)| job == "b"));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_job_channel_is_added_and_windows_without_it_are_left_out() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 60, 2, |_, cpu| Some(["a", "b"][usize::from(cpu)]));
        test.write_memory("n1", START - 1..START + 61, "a", 1 << 24);
        let spec = WindowSpec { job_channels: vec![JobChannel::Memory], ..spec(20, 20) };
        let (filter, control) = (WindowFilter::All, Control::default());
        let reading = Reading { archive: &test.archive, filter: &filter, spec: &spec, control };
        let mut n_windows = 0;
        let outcome = reading.for_each_batch::<archive::Error>(|batch| {
            for thread in batch.threads() {
                n_windows += 1;
                assert_eq!((thread.job().unwrap().as_str(), thread.values.len()), ("a", 20 * 5));
                for step in thread.values.chunks_exact(5) {
                    assert_eq!(step, [1.0, 0.0, 0.0, 0.0, 0.5]);
                }
            }
            Ok(ControlFlow::Continue(()))
        });
        outcome.unwrap();
        assert_eq!(n_windows, 3);
    }

    #[test]
    fn a_visitor_can_stop_and_fail_and_reading_can_be_cancelled() {
        let mut test = TestArchive::new();
        test.write("n1", START - 1..START + 60, 1, |_, _| Some("a"));
        let (filter, spec, stop) = (WindowFilter::All, spec(20, 10), Stop::default());
        let control = Control::new(&stop, &|_, _| {});
        let reading = Reading { archive: &test.archive, filter: &filter, spec: &spec, control };
        let mut n_visited = 0;
        let ended = reading.for_each_batch::<archive::Error>(|_| {
            n_visited += 1;
            Ok(ControlFlow::Break(()))
        });
        assert!(ended.is_ok() && n_visited == 1);
        #[derive(Debug)]
        enum Failed {
            Archive,
            Visitor,
        }
        impl From<archive::Error> for Failed {
            fn from(_: archive::Error) -> Self {
                Self::Archive
            }
        }
        let failed = reading.for_each_batch(|_| Err::<ControlFlow<()>, _>(Failed::Visitor));
        assert!(matches!(failed, Err(Failed::Visitor)));
        stop.now();
        let cancelled = reading.for_each_batch(|_| Err::<ControlFlow<()>, _>(Failed::Visitor));
        assert!(matches!(cancelled, Err(Failed::Archive)));
    }
}
