//! A small archive for tests, written second by second.

use archive::{Archive, Settings, Writer, WriterSettings};
use tempfile::TempDir;
use workload::{
    Cpu, JobId, JobReading, Measure, Millis, Mode, ModeSet, NodeName, NodeReading, Owner, Source,
    ThreadReading, Ticks, Timestamp,
};

/// The time at which most tests start: a whole hour.
pub const START: i64 = 1_800_000_000;

fn source() -> Source {
    Source {
        origin: "a test".into(),
        measure: Measure::Counter,
        ticks_per_second: 100,
        modes: ModeSet::ALL,
        period: Millis::SECOND,
    }
}

pub struct TestArchive {
    pub archive: Archive,
    writer: Writer,
    _dir: TempDir,
}

impl TestArchive {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = dir.path().join("archive").display().to_string();
        let archive = Archive::open_or_create(&address, &Settings::default()).unwrap();
        let writer = archive.writer(source(), WriterSettings::default()).unwrap();
        Self { archive, writer, _dir: dir }
    }

    /// The source of its readings.
    pub fn source(&self) -> Source {
        source()
    }

    /// Writes readings of the first CPUs of a node, each of which is in user mode all the time. `owner` is the job of
    /// a CPU at a second, if any.
    pub fn write(
        &mut self,
        node: &str,
        seconds: impl Iterator<Item = i64>,
        n_cpus: u16,
        owner: impl Fn(i64, u16) -> Option<&'static str>,
    ) {
        for second in seconds {
            let mut threads = Vec::new();
            for cpu in 0..n_cpus {
                let mut ticks = Ticks::default();
                ticks[Mode::User] = second as u64 * 100;
                let job = owner(second, cpu).map(|job| JobId::new(job).unwrap());
                threads.push(ThreadReading {
                    cpu: Cpu(cpu),
                    ticks,
                    owner: job.map_or(Owner::Unknown, Owner::Job),
                });
            }
            self.append(node, second, threads, Vec::new());
        }
    }

    /// Writes readings of the memory of a job, whose limit is 32 MiB.
    pub fn write_memory(&mut self, node: &str, seconds: impl Iterator<Item = i64>, job: &str, bytes: u64) {
        for second in seconds {
            let mut reading = JobReading::empty(JobId::new(job).unwrap());
            reading.memory_bytes = Some(bytes);
            reading.memory_limit_bytes = Some(1 << 25);
            self.append(node, second, Vec::new(), vec![reading]);
        }
    }

    /// Writes readings of a job that waits for I/O half of the time.
    pub fn write_pressure(&mut self, node: &str, seconds: impl Iterator<Item = i64>, job: &str) {
        for second in seconds {
            let mut reading = JobReading::empty(JobId::new(job).unwrap());
            reading.io_pressure.some_usec = Some(second as u64 * 500_000);
            self.append(node, second, Vec::new(), vec![reading]);
        }
    }

    fn append(&mut self, node: &str, second: i64, threads: Vec<ThreadReading>, jobs: Vec<JobReading>) {
        let time = Timestamp::from_seconds(second);
        let reading = NodeReading { node: NodeName::new(node).unwrap(), time, threads, jobs };
        self.writer.append(&[reading]).unwrap();
    }
}
