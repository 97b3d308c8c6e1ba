//! The bulk way in: all of an import becomes visible at its end, or nothing does.

use std::collections::BTreeMap;

use serde::Serialize;
use workload::derive::Scale;
use workload::{Millis, NodeName, Source, ThreadReading, Timestamp};

use crate::error::{Error, Result};
use crate::layout::{check_node, next_id};
use crate::rows::{JobRows, ThreadRows};
use crate::spool::{Spool, StagedSet};
use crate::stage::prepare_rows;
use crate::store::Store;

/// Readings kept in memory before the largest node's go to disk; a reading takes about 90 bytes.
const ROWS_IN_MEMORY: usize = 1_000_000;

/// What an import brought.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LoadReport {
    pub nodes: usize,
    /// Readings of a thread at a moment, each counted once.
    pub readings: u64,
    /// Readings of a thread at a moment that came again; the last one was kept.
    pub repeated: u64,
    /// Readings that the source speaks of but does not have, in whole or in part.
    pub missing: u64,
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    pub files: usize,
    pub bytes: u64,
}

/// Collects the readings of one import.
pub struct Loader {
    store: Store,
    set: StagedSet,
    source: Source,
    rows: BTreeMap<NodeName, ThreadRows>,
    periods: BTreeMap<NodeName, Millis>,
    n_rows: usize,
    n_pushed: u64,
    report: LoadReport,
}

impl Loader {
    pub(crate) fn new(store: Store, spool: &Spool, source: Source) -> Result<Self> {
        let set = spool.stage()?;
        let (rows, report) = (BTreeMap::new(), LoadReport::default());
        let periods = BTreeMap::new();
        Ok(Self { store, set, source, rows, periods, n_rows: 0, n_pushed: 0, report })
    }

    /// How often a node was read, if not as often as the source in general.
    pub fn set_period(&mut self, node: &NodeName, period: Millis) {
        self.periods.insert(node.clone(), period);
    }

    fn source_of(&self, node: &NodeName) -> Source {
        let period = self.periods.get(node).copied().unwrap_or(self.source.period);
        Source { period, ..self.source.clone() }
    }

    /// Counts readings that the source does not have.
    pub fn note_missing(&mut self, n_readings: u64) {
        self.report.missing += n_readings;
    }

    pub fn push(&mut self, node: &NodeName, time: Timestamp, reading: &ThreadReading) -> Result<()> {
        let scale = Scale::from(&self.source);
        match self.rows.get_mut(node) {
            Some(rows) => rows.push(time, reading, scale),
            None => {
                check_node(node)?;
                let mut rows = ThreadRows::default();
                rows.push(time, reading, scale);
                self.rows.insert(node.clone(), rows);
                self.report.nodes += 1;
            }
        }
        self.n_rows += 1;
        self.n_pushed += 1;
        if self.n_rows > ROWS_IN_MEMORY {
            let largest = self.rows.iter().max_by_key(|(_, rows)| rows.len()).map(|(node, _)| node.clone());
            largest.map_or(Ok(()), |node| self.write(&node))?;
        }
        Ok(())
    }

    fn write(&mut self, node: &NodeName) -> Result<()> {
        let Some(rows) = self.rows.get_mut(node).map(std::mem::take) else { return Ok(()) };
        self.n_rows -= rows.len();
        let infos =
            prepare_rows(&self.set, node, &self.source_of(node), next_id(), rows, JobRows::default())?;
        for (info, bytes) in infos {
            self.report.readings += info.rows();
            self.report.first = Some(self.report.first.map_or(info.first(), |first| first.min(info.first())));
            self.report.last = Some(self.report.last.map_or(info.last(), |last| last.max(info.last())));
            self.report.files += 1;
            self.report.bytes += bytes;
        }
        Ok(())
    }

    /// Makes everything visible.
    pub fn finish(mut self) -> Result<LoadReport> {
        let nodes: Vec<NodeName> = self.rows.keys().cloned().collect();
        for node in nodes {
            self.write(&node)?;
        }
        if self.set.is_empty() {
            return Err(Error::Nothing { what: format!("{} has no readings", self.source.origin) });
        }
        self.report.repeated = self.n_pushed - self.report.readings;
        self.set.commit(&self.store)?;
        Ok(self.report)
    }
}
