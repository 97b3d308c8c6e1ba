//! The archive as a whole, on real disks and beside real readers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod compaction;
mod csv;
mod damage;
mod full_disk;
mod golden;
mod hostile;
mod labels;
mod peers;
mod stopping;
mod writing;

use std::path::Path;

use archive::source::{Intake, Limits};
use archive::{Archive, Selection, Settings};
use workload::{
    Cpu, Derivation, JobId, Measure, Millis, ModeSet, NodeName, NodeReading, Owner, Source, ThreadReading,
    Ticks, Timestamp,
};

/// 2026-01-02T03:59:30Z: half a minute before a full hour.
const START: i64 = 1_767_326_370;

/// Accepts files of this year.
fn intake() -> Intake {
    Intake { limits: Limits::default(), now: Timestamp::from_seconds(START + 366 * 86_400) }
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn source() -> Source {
    Source {
        origin: "a test".into(),
        measure: Measure::Counter,
        ticks_per_second: 100,
        modes: ModeSet::ALL,
        period: Millis::SECOND,
    }
}

/// A node with two threads, of which the second belongs to a job, `second` seconds after START.
fn reading(name: &str, second: i64) -> NodeReading {
    let thread = |cpu: u16, owner| {
        let now = (second as u64) * (u64::from(cpu) + 1);
        ThreadReading {
            cpu: Cpu(cpu),
            ticks: Ticks([now * 7, now, 3, second as u64 * 50, 1, 0, now * 2, 0]),
            owner,
        }
    };
    NodeReading {
        node: node(name),
        time: Timestamp::from_seconds(START + second),
        threads: vec![thread(0, Owner::Nobody), thread(1, Owner::Job(JobId::new("17").unwrap()))],
        jobs: Vec::new(),
    }
}

fn create(folder: &Path) -> Archive {
    Archive::open_or_create(folder.to_str().unwrap(), &Settings::default()).unwrap()
}

/// Loads seconds of one node as one file.
fn load(archive: &Archive, name: &str, seconds: impl Iterator<Item = i64>) {
    let mut loader = archive.loader(source()).unwrap();
    for second in seconds {
        let reading = reading(name, second);
        for thread in &reading.threads {
            loader.push(&reading.node, reading.time, thread).unwrap();
        }
    }
    loader.finish().unwrap();
}

/// Every known step of every thread, in order, with its rates as text.
fn rates(archive: &Archive) -> archive::Result<Vec<String>> {
    let snapshot = archive.snapshot(Selection::default())?;
    let mut found = Vec::new();
    for node in snapshot.nodes() {
        for trace in snapshot.traces(&node, &Derivation::default())? {
            let thread = trace.thread().clone();
            found.extend(trace.read_steps().map(|(time, rates, owner)| {
                format!("{} {thread} {:?} {:?}", time.0 / 1_000 - START, rates.as_array(), owner)
            }));
        }
    }
    Ok(found)
}

fn n_readings(archive: &Archive) -> u64 {
    archive.catalog(Selection::default()).unwrap().readings()
}

/// The Parquet files of an archive.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&folder.join("cpu"), &mut found);
    found.sort();
    found
}
