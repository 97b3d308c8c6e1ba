//! What the threads of a labelled job did, second by second, side by side.

use archive::{Archive, Selection};
use workload::{Derivation, Label, Millis, Owner};

/// One job of an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTrace {
    pub label: Label,
    /// For each second: user, system, iowait, other of each thread.
    pub seconds: Vec<Vec<[f32; 4]>>,
    /// Seconds since the start, and bytes.
    pub memory: Vec<(f64, f64)>,
}

/// Seconds after a job's start in which it is not itself yet.
const START_SECONDS: usize = 3;

impl JobTrace {
    /// Its seconds without those of its start.
    pub fn settled(&self) -> &[Vec<[f32; 4]>] {
        &self.seconds[START_SECONDS.min(self.seconds.len())..]
    }

    /// Its memory without that of its start.
    pub fn settled_memory(&self) -> impl Iterator<Item = (f64, f64)> {
        self.memory.iter().copied().filter(|(second, _)| *second >= START_SECONDS as f64)
    }
}

/// Reads the jobs of labels. Seconds in which a thread was not read, or not owned, are left out.
pub fn read(
    archive: &Archive,
    labels: &[Label],
    mut progress: impl FnMut(u64, u64),
) -> archive::Result<Vec<JobTrace>> {
    let mut jobs = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        jobs.push(read_one(archive, label)?);
        progress(index as u64 + 1, labels.len() as u64);
    }
    Ok(jobs)
}

fn read_one(archive: &Archive, label: &Label) -> archive::Result<JobTrace> {
    let selection = Selection {
        node: Some(label.node.clone()),
        from: label.start,
        to: label.end + Millis::SECOND,
        ..Selection::default()
    };
    let snapshot = archive.snapshot(selection)?;
    let traces = snapshot.traces(&label.node, &Derivation::default())?;
    let owner = Owner::Job(label.job.clone());
    let of_job: Vec<_> = label
        .threads
        .iter()
        .filter_map(|cpu| traces.iter().find(|trace| trace.thread().cpu == *cpu))
        .collect();
    let n_steps = of_job.iter().map(|trace| trace.len()).min().unwrap_or(0);
    let second = |step: usize| -> Option<Vec<[f32; 4]>> {
        of_job
            .iter()
            .map(|trace| {
                let rates = trace.rates(step).filter(|_| *trace.owner(step) == owner)?;
                Some(*rates.as_array())
            })
            .collect()
    };
    let seconds = if of_job.len() == label.threads.len() {
        (0..n_steps).filter_map(second).collect()
    } else {
        Vec::new()
    };
    let memory =
        snapshot.job_readings(&label.node)?.into_iter().filter(|(_, reading)| reading.job == label.job);
    let memory = memory
        .filter_map(|(time, reading)| Some(((time - label.start).as_seconds(), reading.memory_bytes? as f64)))
        .collect();
    Ok(JobTrace { label: label.clone(), seconds, memory })
}
