//! The live way in, and what is left of it after a crash.

use archive::{Archive, Error, Selection, Settings, WriterSettings};
use workload::{Control, JobId, JobReading, NodeReading, Timestamp};

use crate::{START, create, files, n_readings, node, rates, reading, source};

#[test]
fn what_was_acknowledged_can_be_read_at_once_and_after_closing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    for second in 0..20 {
        writer.append(&[reading("n1", second), reading("n2", second)]).unwrap();
    }
    let in_journal = rates(&archive).unwrap();
    assert_eq!(in_journal.len(), 2 * 2 * 19);
    assert!(files(folder.path()).is_empty());
    writer.close().unwrap();
    assert_eq!(rates(&archive).unwrap(), in_journal);
    assert_eq!(files(folder.path()).len(), 2);
    assert_eq!(n_readings(&archive), 2 * 2 * 20);
}

#[test]
fn a_writer_that_is_gone_loses_nothing_and_the_next_one_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    for start in [0, 5, 10] {
        let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
        for second in start..start + 5 {
            writer.append(&[reading("n1", second)]).unwrap();
        }
        drop(writer);
    }
    assert_eq!(n_readings(&archive), 30);
    assert_eq!(rates(&archive).unwrap().len(), 2 * 14);
}

#[test]
fn segments_become_parquet_while_the_writer_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let settings = WriterSettings { segment_bytes: 400, ..WriterSettings::default() };
    let mut writer = archive.writer(source(), settings).unwrap();
    for second in 0..60 {
        writer.append(&[reading("n1", second)]).unwrap();
    }
    testbed::eventually("a flush in the background", || (files(folder.path()).len() >= 5).then_some(()));
    writer.close().unwrap();
    assert_eq!(n_readings(&archive), 120);
    assert_eq!(rates(&archive).unwrap().len(), 2 * 59);
}

#[test]
fn one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let _first = archive.writer(source(), WriterSettings::default()).unwrap();
    let second = archive.writer(source(), WriterSettings::default());
    assert!(matches!(second, Err(Error::Busy { .. })));
}

#[test]
fn repeated_and_unordered_readings_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    for second in [3, 1, 2, 2, 0, 3, 4] {
        writer.append(&[reading("n1", second)]).unwrap();
    }
    writer.close().unwrap();
    assert_eq!(n_readings(&archive), 10);
    assert_eq!(rates(&archive).unwrap().len(), 8);
}

#[test]
fn a_journal_cut_off_at_any_byte_keeps_every_whole_record_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let journal = folder.path().join(".spool/journal");
    let segment = || {
        let entries = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "log"))
    };
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    let mut lengths = Vec::new();
    for second in 0..8 {
        writer.append(&[reading("n1", second)]).unwrap();
        lengths.push(segment().unwrap().metadata().unwrap().len());
    }
    drop(writer);
    let path = segment().unwrap();
    let whole = std::fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let n_whole = lengths.iter().filter(|length| **length <= cut as u64).count() as u64;
        assert_eq!(n_readings(&archive), 2 * n_whole, "cut at {cut}");
    }
    // The same with rubbish where the disk had not got to yet.
    let cut = lengths[4] as usize + 3;
    std::fs::write(&path, [&whole[..cut], &[0; 4_096]].concat()).unwrap();
    assert_eq!(n_readings(&archive), 10);
    archive.writer(source(), WriterSettings::default()).unwrap().close().unwrap();
    assert_eq!((segment(), n_readings(&archive)), (None, 10));
}

#[test]
fn the_end_of_a_segment_that_cannot_be_read_is_kept_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let journal = folder.path().join(".spool/journal");
    let find = |extension: &str| {
        let entries = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| path.extension().is_some_and(|found| found == extension))
    };
    for (damage, kept) in [("the last bit is flipped", "damaged"), ("the end is missing", "tail")] {
        let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
        for second in 0..8 {
            writer.append(&[reading("n1", second)]).unwrap();
        }
        drop(writer);
        let path = find("log").unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        if kept == "damaged" {
            *bytes.last_mut().unwrap() ^= 1
        } else {
            bytes.truncate(bytes.len() - 1)
        };
        std::fs::write(&path, bytes).unwrap();
        archive.writer(source(), WriterSettings::default()).unwrap().close().unwrap();
        let aside = find(kept).unwrap_or_else(|| panic!("{damage}: nothing was kept"));
        let problems = archive.verify(&Control::default()).unwrap().problems;
        assert!(problems.iter().any(|problem| problem.path == aside.to_str().unwrap()), "{damage}");
        assert_eq!(n_readings(&archive), 14, "{damage}");
        std::fs::remove_file(aside).unwrap();
    }
}

#[test]
fn a_stray_file_in_the_journal_is_named_and_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    writer.append(&[reading("n1", 0)]).unwrap();
    let stray = folder.path().join(".spool/journal/notes.log");
    std::fs::write(&stray, "hi").unwrap();
    assert_eq!(n_readings(&archive), 2);
    assert!(archive.left_out().iter().any(|problem| problem.contains("notes.log")));
    writer.close().unwrap();
    assert_eq!((n_readings(&archive), stray.exists()), (2, true));
    assert!(archive.verify(&Control::default()).unwrap().problems.is_empty());
}

#[test]
fn damage_in_the_middle_of_a_journal_is_told_from_a_torn_end_and_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    for second in 0..8 {
        writer.append(&[reading("n1", second)]).unwrap();
    }
    drop(writer);
    let journal = folder.path().join(".spool/journal");
    let find = |extension: &str| {
        let entries = std::fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path());
        entries.into_iter().find(|path| path.extension().is_some_and(|found| found == extension))
    };
    let path = find("log").unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // In one of the later records.
    let position = bytes.len() * 9 / 10;
    bytes[position] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(archive.verify(&Control::default()).unwrap().problems.len(), 1);
    archive.writer(source(), WriterSettings::default()).unwrap().close().unwrap();
    assert!(find("damaged").is_some());
    assert!(n_readings(&archive) >= 2);
    assert_eq!(archive.verify(&Control::default()).unwrap().problems.len(), 1, "what was lost is still said");
}

#[test]
fn memory_and_pressure_of_jobs_come_back_as_they_were_given() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut expected = Vec::new();
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    for second in 0..5 {
        let mut job = JobReading::empty(JobId::new("17").unwrap());
        job.memory_bytes = Some(1 << (20 + second));
        job.memory_limit_bytes = (second > 2).then_some(1 << 40);
        job.io_pressure.full_usec = Some(second as u64);
        expected.push((Timestamp::from_seconds(START + second), job.clone()));
        let mut reading = reading("n1", second);
        reading.jobs.push(job);
        writer.append(&[reading]).unwrap();
    }
    let read = |archive: &Archive| {
        archive.snapshot(Selection::default()).unwrap().job_readings(&node("n1")).unwrap()
    };
    assert_eq!(read(&archive), expected);
    writer.close().unwrap();
    assert_eq!(read(&archive), expected);
}

#[test]
fn a_reading_from_an_impossible_clock_is_refused_and_the_writer_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut writer = archive.writer(source(), WriterSettings::default()).unwrap();
    let impossible = NodeReading { time: Timestamp::MAX, ..reading("n1", 0) };
    let mut loader = archive.loader(source()).unwrap();
    assert!(matches!(loader.push_node(&impossible), Err(Error::Time { .. })));
    assert!(matches!(writer.append(&[impossible]), Err(Error::Time { .. })));
    writer.append(&[reading("n1", 1)]).unwrap();
    writer.close().unwrap();
    assert_eq!(n_readings(&archive), 2);
}

#[test]
fn a_folder_that_is_no_archive_is_not_taken_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let opened = Archive::open(folder.path().to_str().unwrap(), &Settings::default());
    assert!(matches!(opened, Err(Error::NotAnArchive { .. })));
    std::fs::write(folder.path().join("archive.json"), r#"{"format": 99}"#).unwrap();
    let opened = Archive::open_or_create(folder.path().to_str().unwrap(), &Settings::default());
    assert!(matches!(opened, Err(Error::NewerFormat { found: 99, .. })));
}
