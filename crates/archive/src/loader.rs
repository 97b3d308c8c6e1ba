//! Imports: all readings of an import become visible at its end, or none.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::{Label, Millis, NodeName, NodeReading, Source, ThreadReading, Timestamp};

use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::labels::commit_with_labels;
use crate::layout::{Table, check_node, check_time};
use crate::segment::SegmentIndex;
use crate::spool::{Spool, StagedSet};
use crate::stage::prepare_segment;
use crate::store::Store;

/// What was imported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    /// Nodes with readings.
    pub nodes: usize,
    /// Readings of a thread at a moment, each counted once.
    pub readings: u64,
    /// Readings of a thread at a moment that came again; the last one was kept.
    pub repeated: u64,
    /// Readings that the source lists but does not have, in whole or in part.
    pub missing: u64,
    /// Time of the first reading.
    pub first: Option<Timestamp>,
    /// Time of the last reading.
    pub last: Option<Timestamp>,
    /// Parquet files written.
    pub files: usize,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Collects the readings of one import, in a journal of its own.
pub struct Loader {
    pub(crate) store: Store,
    spool: Spool,
    pub(crate) set: StagedSet,
    pub(crate) labels: Vec<Label>,
    journal: Journal,
    source: Source,
    periods: BTreeMap<NodeName, Millis>,
    /// Readings of one node at one moment come one after the other, and are written together.
    gathered: Option<NodeReading>,
    n_pushed: u64,
    report: LoadReport,
}

impl Loader {
    pub(crate) fn new(store: Store, spool: Spool, source: Source) -> Result<Self> {
        let set = spool.stage()?;
        let journal = Journal::new(set.folder().to_owned())?;
        Ok(Self {
            store,
            spool,
            set,
            labels: Vec::new(),
            journal,
            source,
            periods: BTreeMap::new(),
            gathered: None,
            n_pushed: 0,
            report: LoadReport::default(),
        })
    }

    /// How often a node was read, if not as often as the source in general.
    pub fn set_period(&mut self, node: &NodeName, period: Millis) {
        self.periods.insert(node.clone(), period);
    }

    /// Counts readings that the source does not have.
    pub fn note_missing(&mut self, n_readings: u64) {
        self.report.missing += n_readings;
    }

    /// Adds a reading of one thread.
    pub fn push(&mut self, node: &NodeName, time: Timestamp, reading: &ThreadReading) -> Result<()> {
        self.n_pushed += 1;
        match &mut self.gathered {
            Some(gathered) if gathered.node == *node && gathered.time == time => {
                gathered.threads.push(reading.clone());
                Ok(())
            }
            _ => {
                check_node(node)?;
                check_time(node, time)?;
                self.store.check_stop()?;
                self.write_gathered()?;
                let (node, threads) = (node.clone(), vec![reading.clone()]);
                self.gathered = Some(NodeReading { node, time, threads, jobs: Vec::new() });
                Ok(())
            }
        }
    }

    /// Adds a reading of a node with its jobs.
    pub fn push_node(&mut self, reading: &NodeReading) -> Result<()> {
        check_node(&reading.node)?;
        check_time(&reading.node, reading.time)?;
        self.store.check_stop()?;
        self.write_gathered()?;
        self.n_pushed += reading.threads.len() as u64;
        self.append(reading)
    }

    fn write_gathered(&mut self) -> Result<()> {
        let Some(gathered) = self.gathered.take() else { return Ok(()) };
        self.append(&gathered)
    }

    /// Threads and jobs of a node are of one source, so that they are prepared together, part by part.
    fn append(&mut self, reading: &NodeReading) -> Result<()> {
        let period = self.periods.get(&reading.node).copied().unwrap_or(self.source.period);
        if period == self.source.period {
            return self.journal.append_buffered(reading, &self.source);
        }
        self.journal.append_buffered(reading, &Source { period, ..self.source.clone() })
    }

    /// Makes everything visible. Stopped before its last step, it leaves nothing.
    pub fn finish(mut self) -> Result<LoadReport> {
        self.write_gathered()?;
        let Some(segment) = self.journal.finish()? else {
            return Err(Error::Nothing { what: format!("{} has no readings", self.source.origin) });
        };
        let index = SegmentIndex::read(&segment)?;
        let mut report = LoadReport { nodes: index.nodes().count(), ..self.report };
        for file in prepare_segment(&self.set, &index, self.store.stop())? {
            let (first, last) = (file.info.first(), file.info.last());
            if file.info.table == Table::Cpu {
                report.readings += file.info.rows();
            }
            report.first = Some(report.first.map_or(first, |known| known.min(first)));
            report.last = Some(report.last.map_or(last, |known| known.max(last)));
            report.files += 1;
            report.bytes += file.bytes;
        }
        report.repeated = self.n_pushed.saturating_sub(report.readings);
        self.store.check_stop()?;
        commit_with_labels(&self.store, &self.spool, self.set, &self.labels)?;
        Ok(report)
    }
}
