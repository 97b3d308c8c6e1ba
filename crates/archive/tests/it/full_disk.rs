//! A disk without room, for real: a small file system in memory.

use archive::{Error, WriterSettings};
use testbed::small_disk::SmallDisk;

use crate::{create, n_readings, rates, reading, source};

#[test]
fn a_full_disk_stops_accepting_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(2_048) else { return };
    let archive = create(&disk.path().join("archive"));
    let settings = WriterSettings { segment_bytes: 1_000, ..WriterSettings::default() };
    let mut writer = archive.writer(source(), settings).unwrap();
    let mut accepted = Vec::new();
    let mut offer = |writer: &mut archive::Writer, second: i64| match writer.append(&[reading("n1", second)])
    {
        Ok(()) => {
            accepted.push(second);
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::NoSpace { .. }), "{error}");
            false
        }
    };
    (0..30).for_each(|second| assert!(offer(&mut writer, second)));
    let filler = disk.fill(24);
    let n_refused = (30..1_500).filter(|second| !offer(&mut writer, *second)).count();
    assert!(n_refused > 0, "the disk was never full");
    assert!(rates(&archive).is_ok());
    std::fs::remove_file(filler).unwrap();
    (1_500..1_530).for_each(|second| assert!(offer(&mut writer, second)));
    writer.close().unwrap();
    // What could not be flushed while the disk was full is, by the next writer at the latest.
    archive.writer(source(), settings).unwrap().close().unwrap();
    assert_eq!(n_readings(&archive), 2 * accepted.len() as u64);
    let report = archive.verify(&workload::Control::default()).unwrap();
    assert_eq!((report.problems.len(), report.journal_segments), (0, 0));
    assert_eq!(report.readings, 2 * accepted.len() as u64);
}

#[test]
fn an_import_onto_a_full_disk_leaves_nothing_behind() {
    let Some(disk) = SmallDisk::mount(1_024) else { return };
    let archive = create(&disk.path().join("archive"));
    crate::load(&archive, "n1", 0..10);
    let before = rates(&archive).unwrap();
    let filler = disk.fill(8);
    let mut loader = archive.loader(source()).unwrap();
    for second in 0..5_000 {
        let mut reading = reading("n2", second);
        // Numbers that do not compress.
        reading.threads[0]
            .ticks
            .0
            .iter_mut()
            .for_each(|ticks| *ticks = (*ticks + second as u64).pow(3) % 1_000_003);
        reading.threads.iter().for_each(|thread| loader.push(&reading.node, reading.time, thread).unwrap());
    }
    assert!(matches!(loader.finish(), Err(Error::NoSpace { .. })));
    std::fs::remove_file(filler).unwrap();
    assert_eq!(rates(&archive).unwrap(), before);
    assert!(archive.verify(&workload::Control::default()).unwrap().problems.is_empty());
}
