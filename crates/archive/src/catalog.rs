//! What an archive holds, in numbers.

use std::collections::{BTreeMap, BTreeSet};

use workload::{JobId, NodeName, Timestamp};

use crate::error::Result;
use crate::{Archive, Selection};

/// One node's share of an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSummary {
    pub node: NodeName,
    /// First and last reading.
    pub first: Timestamp,
    pub last: Timestamp,
    pub threads: usize,
    /// Readings of a thread at a moment, each counted once.
    pub readings: u64,
    pub period_ms: i64,
    pub jobs: BTreeSet<JobId>,
    pub sources: BTreeSet<String>,
    pub files: usize,
    pub bytes: u64,
}

/// When and where a job was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSummary {
    pub job: JobId,
    pub first: Timestamp,
    pub last: Timestamp,
    pub nodes: BTreeSet<NodeName>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    pub archive: String,
    pub nodes: Vec<NodeSummary>,
    pub jobs: Vec<JobSummary>,
}

impl Catalog {
    pub fn readings(&self) -> u64 {
        self.nodes.iter().map(|node| node.readings).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.bytes).sum()
    }
}

impl Archive {
    /// What the archive holds of a selection, to the precision of an hour.
    pub fn catalog(&self, selection: Selection) -> Result<Catalog> {
        let snapshot = self.snapshot(selection)?;
        let mut nodes = Vec::new();
        let mut jobs: BTreeMap<JobId, JobSummary> = BTreeMap::new();
        for node in snapshot.nodes() {
            let Some((first, last)) = snapshot.bounds(&node) else { continue };
            let mut summary = NodeSummary {
                node: node.clone(),
                first,
                last,
                threads: 0,
                readings: snapshot.hours(&node, workload::Millis(0))?.n_readings()?,
                period_ms: snapshot.period(&node).0,
                jobs: BTreeSet::new(),
                sources: BTreeSet::new(),
                files: 0,
                bytes: 0,
            };
            let mut cpus: BTreeSet<u16> = BTreeSet::new();
            let mut note = |job: &JobId, first: Timestamp, last: Timestamp| {
                summary.jobs.insert(job.clone());
                let known = jobs.entry(job.clone()).or_insert_with(|| JobSummary {
                    job: job.clone(),
                    first,
                    last,
                    nodes: BTreeSet::new(),
                });
                (known.first, known.last) = (known.first.min(first), known.last.max(last));
                known.nodes.insert(node.clone());
            };
            for file in snapshot.thread_files(&node).iter().chain(snapshot.job_files(&node)) {
                file.info.jobs.iter().for_each(|(job, span)| note(job, span.0, span.1));
                cpus.extend(&file.info.cpus);
                summary.sources.insert(file.info.source.origin.clone());
                summary.files += 1;
                summary.bytes += file.stored.bytes;
            }
            for (_, source, rows) in snapshot.journal_rows(&node)? {
                for row in 0..rows.len() {
                    let time = Timestamp(rows.times[row]);
                    rows.owner(row).job().into_iter().for_each(|job| note(job, time, time));
                }
                cpus.extend(&rows.cpus);
                summary.sources.insert(source.origin);
            }
            summary.threads = cpus.len();
            nodes.push(summary);
        }
        Ok(Catalog { archive: self.address().to_owned(), nodes, jobs: jobs.into_values().collect() })
    }
}
