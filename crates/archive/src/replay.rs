//! Replays an archive: its readings in order of time, at any speed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use workload::derive::Scale;
use workload::{
    Cpu, JobReading, Measure, Millis, NodeName, NodeReading, Stop, Stopped, ThreadReading, Timestamp,
};

use crate::error::{Error, Result};
use crate::rows::ThreadRows;
use crate::snapshot::Snapshot;

/// The readings of a snapshot in order of time, all nodes together, with one hour in memory.
pub struct Replay<'a> {
    snapshot: &'a Snapshot,
    nodes: Vec<NodeName>,
    /// The hours that are still to come, first one last.
    hours: Vec<Timestamp>,
    ready: std::vec::IntoIter<Replayed>,
    pace: Option<Pace>,
}

/// A reading, and what its ticks mean.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The reading.
    pub reading: NodeReading,
    /// What its ticks mean.
    pub scale: Scale,
}

/// The readings of a node at one time, while they are put together.
#[derive(Default)]
struct Collected {
    threads: Vec<ThreadReading>,
    jobs: Vec<JobReading>,
    scale: Option<Scale>,
}

/// Recorded time against real time.
struct Pace {
    speed: f64,
    begun: Option<(Instant, Timestamp)>,
}

impl<'a> Replay<'a> {
    /// `speed` is the number of recorded seconds per real second; without it, the replay does not wait.
    pub fn new(snapshot: &'a Snapshot, speed: Option<f64>) -> Result<Self> {
        let nodes = snapshot.nodes();
        let mut hours: Vec<Timestamp> = Vec::new();
        for node in &nodes {
            hours.extend(snapshot.hours(node, Millis(0))?.starts());
        }
        hours.sort();
        hours.dedup();
        hours.reverse();
        let pace = speed.map(|speed| Pace { speed, begun: None });
        Ok(Self { snapshot, nodes, hours, ready: Vec::new().into_iter(), pace })
    }

    fn load(&mut self, hour: Timestamp) -> Result<()> {
        let mut collected: BTreeMap<(Timestamp, &NodeName), Collected> = BTreeMap::new();
        for node in &self.nodes {
            let rows: ThreadRows = self.snapshot.hours(node, Millis(0))?.only(hour)?;
            for row in 0..rows.len() {
                let thread = ThreadReading {
                    cpu: Cpu(rows.cpus[row]),
                    ticks: rows.row_ticks(row),
                    owner: rows.owner(row).clone(),
                };
                let at = collected.entry((Timestamp(rows.times[row]), node)).or_default();
                at.threads.push(thread);
                at.scale = Some(rows.scale(row));
            }
            for (time, job) in self.snapshot.job_readings_between(node, hour, hour + Millis::HOUR)? {
                collected.entry((time, node)).or_default().jobs.push(job);
            }
        }
        let mut ready = Vec::with_capacity(collected.len());
        for ((time, node), Collected { threads, jobs, scale }) in collected {
            // A reading of jobs alone has no ticks.
            let scale = scale.unwrap_or_else(|| Scale {
                measure: Measure::Counter,
                ticks_per_second: 100,
                period: self.snapshot.period(node),
            });
            ready.push(Replayed { reading: NodeReading { node: node.clone(), time, threads, jobs }, scale });
        }
        self.ready = ready.into_iter();
        Ok(())
    }
}

impl Pace {
    fn wait_for(&mut self, time: Timestamp, stop: &Stop) -> Result<(), Stopped> {
        let (begun, first) = *self.begun.get_or_insert_with(|| (Instant::now(), time));
        let due = (time - first).0.max(0) as f64 / 1e3 / self.speed;
        let due = Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX);
        if let Some(rest) = due.checked_sub(begun.elapsed()) {
            stop.wait(rest);
        }
        stop.check()
    }
}

impl Iterator for Replay<'_> {
    type Item = Result<Replayed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(replayed) = self.ready.next() {
                let stop = self.snapshot.stop();
                let waited = match &mut self.pace {
                    Some(pace) => pace.wait_for(replayed.reading.time, stop),
                    None => stop.check(),
                };
                return Some(waited.map(|()| replayed).map_err(Error::from));
            }
            let hour = self.hours.pop()?;
            if let Err(error) = self.load(hour) {
                return Some(Err(error));
            }
        }
    }
}
