//! Archives with known signals, for tests.

use archive::{Archive, Settings};
use tempfile::TempDir;
use workload::{
    Cpu, JobId, Label, Measure, Millis, Mode, ModeSet, NodeName, NodeReading, Owner, Set, Source,
    ThreadReading, Ticks, Timestamp,
};

/// 2026-01-05 00:00 UTC.
pub const START: Timestamp = Timestamp::from_seconds(1_767_571_200);
const TICKS_PER_SECOND: i64 = 1_000;

/// Counters of one node that are sampled at a fixed period.
pub struct Recording {
    directory: TempDir,
    period: Millis,
    last_step: i64,
    ticks: Vec<Ticks>,
    readings: Vec<NodeReading>,
}

impl Recording {
    pub fn new(period: Millis) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, period, last_step: 0, ticks: Vec::new(), readings: Vec::new() }
    }

    /// Adds the reading of a step: for each thread its owner, and the fraction of the time since the step before
    /// that it spent in user mode; the rest was idle.
    pub fn step(&mut self, step: i64, threads: &[(Option<&str>, f64)]) {
        self.ticks.resize(threads.len(), Ticks::default());
        let elapsed = (step - self.last_step).max(1) * self.period.0;
        self.last_step = step;
        let elapsed_ticks = (elapsed * TICKS_PER_SECOND / 1_000) as f64;
        let mut readings = Vec::new();
        for (cpu, ((owner, user), ticks)) in threads.iter().zip(&mut self.ticks).enumerate() {
            let user = (user.clamp(0.0, 1.0) * elapsed_ticks).round() as u64;
            ticks[Mode::User] += user;
            ticks[Mode::Idle] += elapsed_ticks as u64 - user;
            let owner = owner.map_or(Owner::Nobody, |job| Owner::Job(JobId::new(job).unwrap()));
            readings.push(ThreadReading { cpu: Cpu(cpu as u16), ticks: *ticks, owner });
        }
        self.readings.push(NodeReading {
            node: NodeName::new("n1").unwrap(),
            time: START + Millis(step * self.period.0),
            threads: readings,
            jobs: Vec::new(),
        });
    }

    /// The archive of all steps so far.
    pub fn archive(&self) -> Archive {
        let address = self.directory.path().join("archive");
        let archive = Archive::open_or_create(address.to_str().unwrap(), &Settings::default()).unwrap();
        let source = Source {
            origin: "a test".into(),
            measure: Measure::Counter,
            ticks_per_second: TICKS_PER_SECOND as u32,
            modes: ModeSet::ALL,
            period: self.period,
        };
        let mut loader = archive.loader(source).unwrap();
        for reading in &self.readings {
            loader.push_node(reading).unwrap();
        }
        loader.finish().unwrap();
        archive
    }

    pub fn label(&self, job: &str, kind: &str, set: Set) -> Label {
        Label {
            campaign: set.to_string(),
            set,
            kind: kind.into(),
            anomalous: None,
            job: JobId::new(job).unwrap(),
            node: NodeName::new("n1").unwrap(),
            threads: Vec::new(),
            start: START,
            end: START,
            made_by: None,
            disturbance: None,
        }
    }
}
