//! A consistent view of an archive, and the derivation of traces from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use ulid::Ulid;
use workload::{
    Cpu, Derivation, Deriver, JobId, JobReading, Millis, NodeName, Source, Stop, ThreadId, Timestamp, Trace,
};

use crate::error::{Error, Result};
use crate::file::OpenFile;
use crate::hours::{self, Piece};
use crate::rows::{JobRows, ThreadRows};
use crate::segment::SegmentIndex;
use crate::spool::Spool;
use crate::store::Store;
use crate::visible::{FilesByNode, open_published, read_journal};

/// How often files are listed again that change while they are opened.
const MAX_TRIES: usize = 5;
/// Steps of traces that may be derived without a reading for each thousand of them.
const MIN_STEPS: u64 = 1 << 24;
const STEPS_PER_READING: u64 = 1_000;

/// How far before a selection its first reading's predecessor is looked for.
pub(crate) const LOOKBACK: Millis = Millis(2 * 3_600_000);

/// Which readings to read; by default all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Only this node.
    pub node: Option<NodeName>,
    /// Only threads while this job owned them.
    pub job: Option<JobId>,
    /// Start of the time range.
    pub from: Timestamp,
    /// End of the time range; readings at this time are left out.
    pub to: Timestamp,
}

impl Default for Selection {
    fn default() -> Self {
        Self { node: None, job: None, from: Timestamp::MIN, to: Timestamp::MAX }
    }
}

/// The files and journal segments of a selection. Readings that arrive later are not in it.
pub struct Snapshot {
    store: Store,
    selection: Selection,
    threads: FilesByNode,
    jobs: FilesByNode,
    segments: Vec<SegmentIndex>,
}

/// Where the readings of an hour come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Group(Piece),
    /// Index into the rows read from the journal.
    Journal(usize),
}

impl Snapshot {
    pub(crate) fn take(store: &Store, spool: &Spool, selection: Selection) -> Result<Self> {
        // The journal first: what moves from there to Parquet meanwhile is then seen twice, and
        // counted once, rather than missed.
        let segments = read_journal(store, spool)?;
        // A compaction may remove a file between the moments it is listed and opened.
        let mut tries = 0;
        let (threads, jobs) = loop {
            match open_published(store, spool, &selection) {
                Err(error) if error.is_not_found() && tries < MAX_TRIES => tries += 1,
                opened => break opened?,
            }
        };
        Ok(Self { store: store.clone(), selection, threads, jobs, segments })
    }

    pub(crate) fn stop(&self) -> &Stop {
        self.store.stop()
    }

    /// The nodes that may have readings in the selection.
    pub fn nodes(&self) -> Vec<NodeName> {
        let in_journal = self.segments.iter().flat_map(|segment| segment.nodes());
        let nodes: BTreeSet<&NodeName> =
            self.threads.keys().chain(self.jobs.keys()).chain(in_journal).collect();
        let wanted = |node: &&&NodeName| self.selection.node.as_ref().is_none_or(|only| only == **node);
        nodes.iter().filter(wanted).map(|node| (*node).clone()).collect()
    }

    pub(crate) fn thread_files(&self, node: &NodeName) -> &[OpenFile] {
        self.threads.get(node).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn job_files(&self, node: &NodeName) -> &[OpenFile] {
        self.jobs.get(node).map_or(&[], Vec::as_slice)
    }

    /// What the journal has of a node, each with the id of its segment.
    pub(crate) fn journal_rows(&self, node: &NodeName) -> Result<Vec<(Ulid, Source, ThreadRows)>> {
        let mut found = Vec::new();
        for segment in &self.segments {
            self.store.check_stop()?;
            let read = segment.read_node(node)?.into_iter();
            found.extend(read.map(|rows| (segment.id, rows.source, rows.threads)));
        }
        Ok(found)
    }

    /// The shortest interval at which a node was read.
    pub fn period(&self, node: &NodeName) -> Millis {
        self.periods(node).min().unwrap_or(Millis::SECOND)
    }

    fn periods(&self, node: &NodeName) -> impl Iterator<Item = Millis> {
        let stored = self.thread_files(node).iter().map(|file| file.info.source.period);
        let journal = self.segments.iter().flat_map(move |segment| segment.sources(node));
        stored.chain(journal.map(|source| source.period))
    }

    /// First and last reading of a node within the selection, to the precision of row groups.
    pub fn bounds(&self, node: &NodeName) -> Option<(Timestamp, Timestamp)> {
        let files = self.thread_files(node).iter();
        let groups = files.flat_map(|file| &file.info.row_groups).map(|group| (group.first, group.last));
        let journal = self.segments.iter().filter_map(|segment| segment.bounds(node));
        let all: Vec<_> = groups.chain(journal).collect();
        let first = all.iter().map(|(first, _)| *first).min()?.max(self.selection.from);
        let last = all.iter().map(|(_, last)| *last).max()?.min(self.selection.to - Millis(1));
        (first <= last).then_some((first, last))
    }

    /// First and last reading of all nodes, the same way.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        let bounds = self.nodes().into_iter().filter_map(|node| self.bounds(&node));
        bounds.reduce(|(first, last), other| (first.min(other.0), last.max(other.1)))
    }

    /// The hours of the selection that have readings of threads, of any node. There may be years between two
    /// of them, if a clock was wrong.
    pub fn hours_with_readings(&self) -> BTreeSet<Timestamp> {
        let mut hours = BTreeSet::new();
        for node in self.nodes() {
            for file in self.thread_files(&node) {
                hours.extend(file.info.row_groups.iter().map(|group| group.first.floor(Millis::HOUR)));
            }
            hours.extend(self.segments.iter().flat_map(|segment| segment.hours(&node)));
        }
        let (from, to) = (self.selection.from, self.selection.to);
        hours.retain(|hour| *hour < to && *hour + Millis::HOUR > from);
        hours
    }

    /// The readings of a node as they were counted, hour by hour, sorted by thread and time.
    pub(crate) fn hours(&self, node: &NodeName, lookback: Millis) -> Result<Hours<'_>> {
        let from = self.selection.from - lookback;
        let to = self.selection.to;
        let files = self.thread_files(node);
        let mut parts: BTreeMap<Timestamp, Vec<Part>> = hours::pieces_by_hour(files, from, to)
            .into_iter()
            .map(|(hour, pieces)| (hour, pieces.into_iter().map(Part::Group).collect()))
            .collect();
        let mut journal = Vec::new();
        for (id, _, rows) in self.journal_rows(node)? {
            let rows = rows.sorted().between(from, to);
            let hour_of = |time: &i64| Timestamp(*time).floor(Millis::HOUR);
            for hour in rows.times.iter().map(hour_of).collect::<BTreeSet<_>>() {
                parts.entry(hour).or_default().push(Part::Journal(journal.len()));
            }
            journal.push((id, rows));
        }
        // What was written last comes last, and wins.
        let written = |part: &Part| match part {
            Part::Group((file, _)) => files[*file].stored.name.id,
            Part::Journal(index) => journal[*index].0,
        };
        parts.values_mut().for_each(|parts| parts.sort_by_key(written));
        if let Some(job) = &self.selection.job {
            let spans: Vec<_> = files.iter().filter_map(|file| file.info.jobs.get(job)).collect();
            let near = |hour: &Timestamp| {
                spans.iter().any(|span| *hour <= span.1 && *hour + Millis::HOUR > span.0 - lookback)
            };
            parts.retain(|hour, parts| {
                near(hour) || parts.iter().any(|part| matches!(part, Part::Journal(_)))
            });
        }
        let job = self.selection.job.clone();
        let stored = files.iter().flat_map(|file| &file.info.row_groups).map(|group| group.rows);
        let n_readings = stored.sum::<u64>() + journal.iter().map(|(_, rows)| rows.len() as u64).sum::<u64>();
        let most_steps = MIN_STEPS.saturating_add(n_readings.saturating_mul(STEPS_PER_READING));
        Ok(Hours { store: &self.store, files, journal, parts, from, to, job, most_steps })
    }

    /// The job readings (memory, pressure) of a node, sorted by time.
    pub fn job_readings(&self, node: &NodeName) -> Result<Vec<(Timestamp, JobReading)>> {
        self.job_readings_between(node, self.selection.from, self.selection.to)
    }

    /// The job readings of a node within a part of the selection, sorted by time.
    pub fn job_readings_between(
        &self,
        node: &NodeName,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<(Timestamp, JobReading)>> {
        let Selection { job, .. } = &self.selection;
        let (from, to) = (&from.max(self.selection.from), &to.min(self.selection.to));
        let files = self.job_files(node);
        let mut rows = JobRows::default();
        for (file, group) in hours::pieces_by_hour(files, *from, *to).into_values().flatten() {
            self.store.check_stop()?;
            let read = files[file].read_jobs(&self.store, group);
            rows.rows.extend(or_left_out(&self.store, read)?.rows);
        }
        let overlaps = |segment: &&SegmentIndex| {
            segment.bounds(node).is_none_or(|(first, last)| first < *to && last >= *from)
        };
        for segment in self.segments.iter().filter(overlaps) {
            rows.rows.extend(segment.read_node(node)?.into_iter().flat_map(|rows| rows.jobs.rows));
        }
        let mut rows = rows.sorted().rows;
        rows.retain(|(time, reading)| {
            (*from..*to).contains(time) && job.as_ref().is_none_or(|only| *only == reading.job)
        });
        rows.sort_by(|a, b| (a.0, &a.1.job).cmp(&(b.0, &b.1.job)));
        Ok(rows)
    }

    /// The traces of a node's threads over the whole selection. A thread has several where hours
    /// without any reading lie between them.
    pub fn traces(&self, node: &NodeName, derivation: &Derivation) -> Result<Vec<Trace>> {
        let lookback = self.lookback(node, derivation);
        let mut hours = self.hours(node, lookback)?;
        let mut traces = Vec::new();
        while let Some(stretch) =
            hours.next_stretch(Millis(Millis::HOUR.0 + self.longest_gap(node, derivation).0))
        {
            let bounds = stretch.iter().map(|(hour, parts)| hours.bounds(*hour, parts));
            let (firsts, lasts): (Vec<_>, Vec<_>) = bounds.unzip();
            let first = firsts.into_iter().min().unwrap_or(Timestamp::MAX).max(self.selection.from);
            let last = lasts.into_iter().max().unwrap_or(Timestamp::MIN).min(self.selection.to - Millis(1));
            if first > last {
                continue;
            }
            let start = first.floor(derivation.period);
            let n_steps = ((last - start).0 / derivation.period.0 + 1) as usize;
            let mut threads = Threads::new(node, derivation);
            for (hour, parts) in &stretch {
                threads.derive(&hours, *hour, parts, start, n_steps)?;
            }
            traces.extend(threads.take_traces());
        }
        Ok(traces)
    }

    /// The traces of a node's threads, hour by hour, so that no more than an hour is in memory.
    pub fn traces_by_hour(
        &self,
        node: &NodeName,
        derivation: &Derivation,
    ) -> Result<impl Iterator<Item = Result<Vec<Trace>>> + '_> {
        let mut threads = Threads::new(node, derivation);
        let (from, period) = (self.selection.from, derivation.period);
        let mut hours = self.hours(node, self.lookback(node, derivation))?;
        Ok(std::iter::from_fn(move || {
            let (hour, parts) = hours.parts.pop_first()?;
            // A step may begin before the hour does, or end after it.
            let start = hour.max(from).floor(period);
            let n_steps = ((hour + Millis::HOUR - start).0.max(0) as u64).div_ceil(period.0 as u64);
            let derived = threads.derive(&hours, hour, &parts, start, n_steps as usize);
            Some(derived.map(|()| threads.take_traces()))
        }))
    }

    /// The longest time that one reading can cover.
    fn longest_gap(&self, node: &NodeName, derivation: &Derivation) -> Millis {
        let longest = self.periods(node).max().unwrap_or(Millis::SECOND).max(derivation.period);
        Millis(longest.0.saturating_mul(i64::from(derivation.max_missed) + 2))
    }

    fn lookback(&self, node: &NodeName, derivation: &Derivation) -> Millis {
        self.longest_gap(node, derivation).min(LOOKBACK)
    }
}

/// The hours of a node: see [`Snapshot::hours`].
pub(crate) struct Hours<'a> {
    store: &'a Store,
    files: &'a [OpenFile],
    /// Each with the id of its segment.
    journal: Vec<(Ulid, ThreadRows)>,
    parts: BTreeMap<Timestamp, Vec<Part>>,
    from: Timestamp,
    to: Timestamp,
    /// Whose readings are preferred if there are several of one time.
    job: Option<JobId>,
    /// How many steps of traces its readings justify.
    most_steps: u64,
}

impl Hours<'_> {
    /// The next hours that follow each other without a gap longer than `longest`.
    fn next_stretch(&mut self, longest: Millis) -> Option<Vec<(Timestamp, Vec<Part>)>> {
        let mut stretch = vec![self.parts.pop_first()?];
        while let Some(next) = self.parts.first_entry() {
            let last = stretch[stretch.len() - 1].0;
            if *next.key() - last > longest {
                break;
            }
            stretch.push(next.remove_entry());
        }
        Some(stretch)
    }

    /// The first and the last reading of an hour.
    fn bounds(&self, hour: Timestamp, parts: &[Part]) -> (Timestamp, Timestamp) {
        let of_part = |part: &Part| match part {
            Part::Group((file, group)) => {
                let group = &self.files[*file].info.row_groups[*group];
                (group.first, group.last)
            }
            Part::Journal(index) => {
                let times = self.journal[*index].1.times.iter().copied().map(Timestamp);
                let times = times.filter(|time| time.floor(Millis::HOUR) == hour);
                (times.clone().min().unwrap_or(Timestamp::MAX), times.max().unwrap_or(Timestamp::MIN))
            }
        };
        parts.iter().map(of_part).fold((Timestamp::MAX, Timestamp::MIN), |(first, last), part| {
            (first.min(part.0), last.max(part.1))
        })
    }

    /// The parts of an hour that can be read apart, because they have no thread in common: the row
    /// groups of a single file.
    fn separable<'p>(&self, parts: &'p [Part]) -> std::slice::Chunks<'p, Part> {
        let file_of = |part: &Part| match part {
            Part::Group((file, _)) => Some(*file),
            Part::Journal(_) => None,
        };
        let first = parts.first().and_then(file_of);
        let is_one_file = first.is_some() && parts.iter().all(|part| file_of(part) == first);
        parts.chunks(if is_one_file { 1 } else { parts.len().max(1) })
    }

    /// The readings of parts of an hour, sorted.
    fn read(&self, hour: Timestamp, parts: &[Part]) -> Result<ThreadRows> {
        self.store.check_stop()?;
        let rows = ThreadRows::merged(parts.iter().map(|part| match part {
            Part::Group((file, group)) => {
                or_left_out(self.store, self.files[*file].read_threads(self.store, *group))
            }
            Part::Journal(index) => Ok(self.journal[*index].1.clone().between(hour, hour + Millis::HOUR)),
        }))?;
        Ok(rows.between(self.from, self.to))
    }

    /// The readings of parts of an hour, one for each thread and moment.
    fn read_resolved(&self, hour: Timestamp, parts: &[Part]) -> Result<ThreadRows> {
        Ok(self.read(hour, parts)?.resolved(self.job.as_ref()))
    }

    /// When the hours that are still to come begin.
    pub(crate) fn starts(&self) -> impl Iterator<Item = Timestamp> {
        self.parts.keys().copied()
    }

    /// The readings of one hour.
    pub(crate) fn only(&self, wanted: Timestamp) -> Result<ThreadRows> {
        self.parts.get(&wanted).map_or(Ok(ThreadRows::default()), |parts| self.read_resolved(wanted, parts))
    }

    /// How many readings there are, without reading those that need not be read to know.
    pub(crate) fn n_readings(&self) -> Result<u64> {
        let mut n_readings = 0;
        for (hour, parts) in &self.parts {
            let stored = parts.iter().map(|part| match part {
                Part::Group((file, group)) => Some(self.files[*file].info.row_groups[*group].moments),
                Part::Journal(_) => None,
            });
            let are_apart = self.separable(parts).len() == parts.len();
            n_readings += match stored.sum::<Option<u64>>().filter(|_| are_apart) {
                Some(rows) => rows,
                None => self.read_resolved(*hour, parts)?.len() as u64,
            };
        }
        Ok(n_readings)
    }
}

/// The threads of a node on their way from readings to traces.
struct Threads {
    node: NodeName,
    derivation: Derivation,
    threads: BTreeMap<Cpu, Thread>,
}

struct Thread {
    deriver: Deriver,
    trace: Option<Trace>,
}

impl Threads {
    fn new(node: &NodeName, derivation: &Derivation) -> Self {
        Self { node: node.clone(), derivation: *derivation, threads: BTreeMap::new() }
    }

    /// Reads an hour and derives it into traces that begin at `start`. Parts are read at the same
    /// time, and each is derived while it is still in the cache of the core that decoded it.
    fn derive(
        &mut self,
        hours: &Hours<'_>,
        hour: Timestamp,
        parts: &[Part],
        start: Timestamp,
        n_steps: usize,
    ) -> Result<()> {
        let known: Mutex<BTreeMap<Cpu, Thread>> = Mutex::new(std::mem::take(&mut self.threads));
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        let separable: Vec<&[Part]> = hours.separable(parts).collect();
        let n_threads = AtomicU64::new(lock().len() as u64);
        let derived = separable.par_iter().try_for_each(|parts| {
            let rows = hours.read(hour, parts)?;
            let ranges: Vec<_> = rows.by_thread().collect();
            let n_new = ranges.iter().filter(|(cpu, _)| !lock().contains_key(cpu)).count() as u64;
            let n_threads = n_threads.fetch_add(n_new, Ordering::Relaxed) + n_new;
            if n_threads.saturating_mul(n_steps as u64) > hours.most_steps {
                let (node, n_steps) = (self.node.to_string(), n_steps as u64);
                return Err(Error::TooManySteps { node, n_threads, n_steps });
            }
            ranges.into_par_iter().for_each(|(cpu, range)| {
                let mut thread = lock()
                    .remove(&cpu)
                    .unwrap_or_else(|| Thread { deriver: Deriver::new(&self.derivation), trace: None });
                let trace = thread.trace.get_or_insert_with(|| {
                    let id = ThreadId { node: self.node.clone(), cpu };
                    Trace::new(id, start, self.derivation.period, n_steps)
                });
                derive_rows(&rows, range, hours.job.as_ref(), &mut thread.deriver, trace);
                lock().insert(cpu, thread);
            });
            rows.recycle();
            Ok(())
        });
        self.threads = known.into_inner().unwrap_or_else(PoisonError::into_inner);
        derived
    }

    fn take_traces(&mut self) -> Vec<Trace> {
        self.threads.values_mut().filter_map(|thread| thread.trace.take()).collect()
    }
}

/// Derives the sorted rows of one thread. If there are several of one time, the one of `job` is
/// used, else the one written last.
fn derive_rows(
    rows: &ThreadRows,
    range: Range<usize>,
    job: Option<&JobId>,
    deriver: &mut Deriver,
    trace: &mut Trace,
) {
    let wanted = rows.owners.iter().position(|owner| job.is_some() && owner.job() == job);
    let is_wanted = |row: usize| Some(rows.owner_of_row[row] as usize) == wanted;
    let mut owner = None;
    let mut next = range.start;
    while next < range.end {
        let mut row = next;
        next += 1;
        while next < range.end && rows.times[next] == rows.times[row] {
            row = if is_wanted(row) && !is_wanted(next) { row } else { next };
            next += 1;
        }
        let (time, number) = (Timestamp(rows.times[row]), rows.owner_of_row[row]);
        let owner = match owner {
            Some((last, owner)) if last == number => owner,
            _ => owner.insert((number, trace.owner_number(rows.owner(row)))).1,
        };
        deriver.push(trace, time, &rows.row_ticks(row), owner, rows.scale(row));
    }
}

/// Readings of a damaged file are left out, with a warning: the others can still be read.
fn or_left_out<T: Default>(store: &Store, read: Result<T>) -> Result<T> {
    match read {
        Err(error @ Error::Damaged { .. }) => {
            store.warn_of(&error);
            Ok(T::default())
        }
        other => other,
    }
}
