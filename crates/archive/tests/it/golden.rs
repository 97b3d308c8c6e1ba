//! Every format ever written can still be read: a golden copy of each version.

use std::path::Path;

use archive::{Archive, Selection, Settings, WriterSettings};
use workload::{JobId, JobReading, NodeName, NodeReading, Timestamp};

use crate::{START, create, files, load, n_readings, rates, reading, source};

/// Writes what the golden copies hold: 20 s in Parquet, 10 s more in the journal.
fn write(folder: &Path) {
    let archive = create(folder);
    load(&archive, "n1", 0..20);
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    (20..30).for_each(|second| writer.append(&[reading("n1", second)]).unwrap());
    drop(writer);
}

#[test]
fn the_first_format_is_read_as_on_the_day_it_was_written() {
    check("format-1");
}

#[test]
fn a_journal_with_blocks_is_read_as_on_the_day_it_was_written() {
    check("journal-3");
}

/// A reading of a job at every second, with CPU time.
fn job_reading(second: i64) -> NodeReading {
    let job = JobReading {
        memory_bytes: Some(1_000 + second as u64),
        cpu_user_usec: Some(900_000 * second as u64),
        cpu_system_usec: (second % 3 > 0).then_some(100_000 * second as u64),
        node_memory_bytes: Some(1 << 34),
        ..JobReading::empty(JobId::new("42").unwrap())
    };
    NodeReading { threads: Vec::new(), jobs: vec![job], ..reading("n1", second) }
}

#[test]
fn the_second_format_has_the_cpu_time_of_jobs() {
    let golden = testbed::workspace().join("fixtures/archive/format-2");
    if std::env::var_os("TRACEWISE_WRITE_GOLDEN").is_some() && !golden.exists() {
        let archive = create(&golden);
        let mut loader = archive.loader(source()).unwrap();
        for second in 0..20 {
            loader.push_node(&reading("n1", second)).unwrap();
            loader.push_node(&job_reading(second)).unwrap();
        }
        loader.finish().unwrap();
        let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
        (20..30).for_each(|second| writer.append(&[job_reading(second)]).unwrap());
        drop(writer);
    }
    let folder = tempfile::tempdir().unwrap();
    copy(&golden, folder.path());
    let found = Archive::open(folder.path().to_str().unwrap(), &Settings::default()).unwrap();
    let readings =
        found.snapshot(Selection::default()).unwrap().job_readings(&NodeName::new("n1").unwrap()).unwrap();
    let expected: Vec<(Timestamp, JobReading)> =
        (0..30).map(job_reading).map(|reading| (reading.time, reading.jobs[0].clone())).collect();
    assert_eq!(readings, expected);
}

fn check(name: &str) {
    let golden = testbed::workspace().join("fixtures/archive").join(name);
    if std::env::var_os("TRACEWISE_WRITE_GOLDEN").is_some() && !golden.exists() {
        write(&golden);
    }
    let folder = tempfile::tempdir().unwrap();
    copy(&golden, folder.path());
    let found = Archive::open(folder.path().to_str().unwrap(), &Settings::default()).unwrap();
    let fresh = tempfile::tempdir().unwrap();
    write(fresh.path());
    assert_eq!(rates(&found).unwrap(), rates(&create(fresh.path())).unwrap());
    assert_eq!(n_readings(&found), 60);
    // Times in footers are milliseconds, then and now.
    for folder in [golden.as_path(), fresh.path()] {
        let file = std::fs::read(&files(folder)[0]).unwrap();
        let stored = format!("\"first\":{}", START * 1_000);
        assert!(file.windows(stored.len()).any(|bytes| bytes == stored.as_bytes()), "{}", folder.display());
    }
    assert!(found.verify(&workload::Control::default()).unwrap().problems.is_empty());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)
        } else {
            drop(std::fs::copy(entry.path(), target))
        }
    }
}
