//! What an archive contains, in numbers.

use std::collections::{BTreeMap, BTreeSet};

use workload::{JobId, NodeName, Timestamp};

use crate::error::Result;
use crate::{Archive, Selection};

/// One node of an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSummary {
    /// The node.
    pub node: NodeName,
    /// First and last reading.
    pub first: Timestamp,
    /// Last reading.
    pub last: Timestamp,
    /// Hardware threads that were read.
    pub threads: usize,
    /// Readings of a thread at a moment, each counted once.
    pub readings: u64,
    /// How often the node was read, in milliseconds.
    pub period_ms: i64,
    /// Jobs that owned a thread.
    pub jobs: BTreeSet<JobId>,
    /// Where the readings come from.
    pub sources: BTreeSet<String>,
    /// Parquet files.
    pub files: usize,
    /// Bytes of these files.
    pub bytes: u64,
}

/// When and where a job was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSummary {
    /// The job.
    pub job: JobId,
    /// First reading.
    pub first: Timestamp,
    /// Last reading.
    pub last: Timestamp,
    /// Nodes on which it owned a thread.
    pub nodes: BTreeSet<NodeName>,
}

/// The nodes and jobs of an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// The address of the archive.
    pub archive: String,
    /// One summary per node.
    pub nodes: Vec<NodeSummary>,
    /// One summary per job.
    pub jobs: Vec<JobSummary>,
}

impl Catalog {
    /// Readings of all nodes.
    pub fn readings(&self) -> u64 {
        self.nodes.iter().map(|node| node.readings).sum()
    }

    /// Bytes of all Parquet files.
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
