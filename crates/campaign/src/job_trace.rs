//! The trace of a labelled job: the rates of all its threads, second by second.

use archive::{Archive, Selection, Snapshot};
use workload::{Control, Derivation, JobReading, Label, Millis, Owner, Timestamp, foreign_cpu};

/// One labelled job of an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTrace {
    pub label: Label,
    /// By second and thread: user, system, iowait, other.
    pub seconds: Vec<Vec<[f32; 4]>>,
    /// The same at the interval of the archive, if that is shorter than a second.
    pub steps: Vec<Vec<[f32; 4]>>,
    pub step_seconds: f64,
    pub memory: Vec<MemoryReading>,
    /// The CPU time that others used on its threads, in threads; absent if it was not recorded.
    pub foreign_cpu: Option<f64>,
}

/// The memory of a job at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryReading {
    /// Since the start of the job.
    pub seconds: f64,
    pub bytes: f64,
}

/// CPU times are compared over at least this many seconds.
const MIN_CPU_SECONDS: f64 = 20.0;
/// Seconds after the start that are left out: the job only sets itself up.
const START_SECONDS: usize = 3;

impl JobTrace {
    /// A job of which only the rates are known.
    pub fn of(label: Label, seconds: Vec<Vec<[f32; 4]>>) -> Self {
        let (steps, memory) = (Vec::new(), Vec::new());
        Self { label, seconds, steps, step_seconds: 1.0, memory, foreign_cpu: None }
    }

    /// Its steps without the start, at the shortest interval at which it was recorded.
    pub fn settled_steps(&self) -> (&[Vec<[f32; 4]>], f64) {
        if self.steps.is_empty() {
            return (self.settled(), 1.0);
        }
        let n_left_out = (START_SECONDS as f64 / self.step_seconds) as usize;
        (&self.steps[n_left_out.min(self.steps.len())..], self.step_seconds)
    }

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

/// The rates of all threads of a job, at each step at which all are known.
fn rates_of(snapshot: &Snapshot, label: &Label, period: Millis) -> archive::Result<Vec<Vec<[f32; 4]>>> {
    let traces = snapshot.traces(&label.node, &Derivation { period, ..Derivation::default() })?;
    let owner = Owner::Job(label.job.clone());
    let threads: Vec<_> = label
        .threads
        .iter()
        .filter_map(|cpu| traces.iter().find(|trace| trace.thread().cpu == *cpu))
        .collect();
    if threads.len() < label.threads.len() {
        return Ok(Vec::new());
    }
    let n_steps = threads.iter().map(|trace| trace.len()).min().unwrap_or(0);
    let step = |step: usize| -> Option<Vec<[f32; 4]>> {
        let rates = threads.iter().map(|trace| {
            let rates = trace.rates(step).filter(|_| *trace.owner(step) == owner)?;
            Some(*rates.as_array())
        });
        rates.collect()
    };
    Ok((0..n_steps).filter_map(step).collect())
}

/// The busy time of threads that their job did not use, in threads, from the first to the last of its readings.
fn foreign_threads(readings: &[(Timestamp, JobReading)], seconds: &[Vec<[f32; 4]>]) -> Option<f64> {
    let (first, last) = (readings.first()?, readings.last()?);
    let length = (last.0 - first.0).as_seconds();
    if length < MIN_CPU_SECONDS || seconds.is_empty() {
        return None;
    }
    let of_job = last.1.cpu_seconds_since(&first.1)?.map(|seconds| seconds / length);
    let mean = |mode: usize| {
        seconds.iter().flatten().map(|rates| f64::from(rates[mode])).sum::<f64>() / seconds.len() as f64
    };
    Some(foreign_cpu([mean(0), mean(1)], of_job))
}

fn read_one(archive: &Archive, label: &Label) -> archive::Result<JobTrace> {
    let selection = Selection {
        node: Some(label.node.clone()),
        from: label.start,
        to: label.end + Millis::SECOND,
        ..Selection::default()
    };
    let snapshot = archive.snapshot(selection)?;
    let seconds = rates_of(&snapshot, label, Millis::SECOND)?;
    let period = snapshot.period(&label.node);
    let steps = if period < Millis::SECOND { rates_of(&snapshot, label, period)? } else { Vec::new() };
    let readings: Vec<(Timestamp, JobReading)> = snapshot
        .job_readings(&label.node)?
        .into_iter()
        .filter(|(_, reading)| reading.job == label.job)
        .collect();
    let memory = readings.iter().filter_map(|(time, reading)| {
        let bytes = reading.memory_bytes? as f64;
        Some(MemoryReading { seconds: (*time - label.start).as_seconds(), bytes })
    });
    Ok(JobTrace {
        label: label.clone(),
        memory: memory.collect(),
        foreign_cpu: foreign_threads(&readings, &seconds),
        seconds,
        steps,
        step_seconds: period.as_seconds(),
    })
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
        let job = JobTrace { memory: memory.to_vec(), ..JobTrace::of(label("np", 1), seconds) };
        assert_eq!(job.settled().iter().map(|threads| threads[0][0]).collect::<Vec<_>>(), [3.0, 4.0]);
        assert_eq!(job.settled_memory().count(), 1);
    }
}
