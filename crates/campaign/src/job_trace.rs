//! The trace of a labelled job: the rates of all its threads, second by second.

use archive::{Archive, Selection};
use workload::{Control, Derivation, Label, Millis, Owner};

/// One labelled job of an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTrace {
    pub label: Label,
    /// By second and thread: user, system, iowait, other.
    pub seconds: Vec<Vec<[f32; 4]>>,
    pub memory: Vec<MemoryReading>,
}

/// The memory of a job at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryReading {
    /// Since the start of the job.
    pub seconds: f64,
    pub bytes: f64,
}

/// Seconds after the start that are left out: the job only sets itself up.
const START_SECONDS: usize = 3;

impl JobTrace {
    /// Its seconds without the start.
    pub fn settled(&self) -> &[Vec<[f32; 4]>] {
        &self.seconds[START_SECONDS.min(self.seconds.len())..]
    }

    /// Its memory without the start.
    pub fn settled_memory(&self) -> impl Iterator<Item = &MemoryReading> {
        self.memory.iter().filter(|reading| reading.seconds >= START_SECONDS as f64)
    }
}

/// Reads the jobs of labels. Seconds in which one of the threads is missing or has another owner are left out.
pub fn read(archive: &Archive, labels: &[Label], control: &Control<'_>) -> archive::Result<Vec<JobTrace>> {
    let archive = archive.with_stop(control.stop());
    let mut jobs = Vec::new();
    for (index, label) in labels.iter().enumerate() {
        jobs.push(read_one(&archive, label)?);
        control.report(index as u64 + 1, labels.len() as u64)?;
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
    let threads: Vec<_> = label
        .threads
        .iter()
        .filter_map(|cpu| traces.iter().find(|trace| trace.thread().cpu == *cpu))
        .collect();
    let n_steps = threads.iter().map(|trace| trace.len()).min().unwrap_or(0);
    let second = |step: usize| -> Option<Vec<[f32; 4]>> {
        threads
            .iter()
            .map(|trace| {
                let rates = trace.rates(step).filter(|_| *trace.owner(step) == owner)?;
                Some(*rates.as_array())
            })
            .collect()
    };
    let seconds = if threads.len() == label.threads.len() {
        (0..n_steps).filter_map(second).collect()
    } else {
        Vec::new()
    };
    let readings = snapshot.job_readings(&label.node)?.into_iter();
    let memory = readings.filter(|(_, reading)| reading.job == label.job).filter_map(|(time, reading)| {
        let bytes = reading.memory_bytes? as f64;
        Some(MemoryReading { seconds: (time - label.start).as_seconds(), bytes })
    });
    Ok(JobTrace { label: label.clone(), seconds, memory: memory.collect() })
}

#[cfg(test)]
pub mod tests {
    use workload::{Cpu, JobId, NodeName, Set, Timestamp};

    use super::*;

    /// The label of a job of 400 seconds.
    pub fn label(kind: &str, n_threads: u16) -> Label {
        Label {
            campaign: "a".into(),
            set: Set::Train,
            kind: kind.into(),
            anomalous: None,
            job: JobId::new("1").unwrap(),
            node: NodeName::new("n1").unwrap(),
            threads: (0..n_threads).map(Cpu).collect(),
            start: Timestamp(0),
            end: Timestamp::from_seconds(400),
            made_by: None,
            disturbance: None,
        }
    }

    #[test]
    fn the_start_of_a_job_is_left_out() {
        let memory = [0.0, 2.9, 3.0].map(|seconds| MemoryReading { seconds, bytes: 1.0 });
        let seconds: Vec<_> = (0..5).map(|second| vec![[second as f32, 0.0, 0.0, 0.0]]).collect();
        let job = JobTrace { label: label("np", 1), seconds, memory: memory.to_vec() };
        assert_eq!(job.settled().iter().map(|threads| threads[0][0]).collect::<Vec<_>>(), [3.0, 4.0]);
        assert_eq!(job.settled_memory().count(), 1);
    }
}
