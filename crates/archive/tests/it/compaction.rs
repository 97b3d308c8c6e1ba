//! Fewer files, the same readings.

use archive::{Archive, CompactReport, Error, Retention, Selection};
use workload::{Control, Derivation, Millis, Source, Timestamp};

use crate::{START, create, files, load, n_readings, node, rates};

fn compact(archive: &Archive) -> archive::Result<CompactReport> {
    archive.compact(Timestamp::from_seconds(START), Millis(0), &Control::default())
}

#[test]
fn compaction_changes_files_and_no_reading() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    for part in 0..6 {
        load(&archive, "n1", part * 15..part * 15 + 20);
    }
    load(&archive, "n2", 0..5);
    let before = rates(&archive).unwrap();
    assert_eq!(files(folder.path()).len(), 7);
    assert_eq!(n_readings(&archive), 2 * 95 + 10);
    let report = compact(&archive).unwrap();
    assert_eq!((report.files_before, report.files_after), (7, 2));
    assert_eq!(files(folder.path()).len(), 2);
    assert_eq!(rates(&archive).unwrap(), before);
    assert_eq!(n_readings(&archive), 2 * 95 + 10);
    assert_eq!(compact(&archive).unwrap().files_after, 2);
}

#[test]
fn a_crash_between_writing_the_new_file_and_removing_the_old_ones_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..10);
    load(&archive, "n1", 10..20);
    let before = rates(&archive).unwrap();
    let old: Vec<_> =
        files(folder.path()).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    compact(&archive).unwrap();
    for (path, bytes) in &old {
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(rates(&archive).unwrap(), before);
    assert_eq!(n_readings(&archive), 40);
    let report = archive.verify(&Control::default()).unwrap();
    assert_eq!((report.problems.len(), report.leftovers.len()), (0, 2));
    compact(&archive).unwrap();
    assert_eq!(files(folder.path()).len(), 1);
    assert_eq!(rates(&archive).unwrap(), before);
}

#[test]
fn a_file_that_was_merged_before_is_replaced_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..10);
    load(&archive, "n1", 10..20);
    compact(&archive).unwrap();
    let merged = files(folder.path()).remove(0);
    let bytes = std::fs::read(&merged).unwrap();
    load(&archive, "n1", 20..30);
    compact(&archive).unwrap();
    std::fs::write(&merged, bytes).unwrap();
    let list = archive.catalog(Selection::default()).unwrap();
    assert_eq!((list.nodes[0].files, list.readings()), (1, 60));
    assert_eq!(archive.verify(&Control::default()).unwrap().leftovers.len(), 1);
}

#[test]
fn merged_files_stay_for_those_who_are_reading_them_if_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..10);
    load(&archive, "n1", 10..20);
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    let (now, grace) = (Timestamp::from(std::time::SystemTime::now()), Millis(600_000));
    archive.compact(now, grace, &Control::default()).unwrap();
    assert_eq!(files(folder.path()).len(), 3);
    assert_eq!(snapshot.traces(&node("n1"), &Derivation::default()).unwrap().len(), 2);
    assert_eq!(n_readings(&archive), 40);
    archive.compact(now, grace, &Control::default()).unwrap();
    assert_eq!(files(folder.path()).len(), 3);
    archive.compact(now + grace + grace, grace, &Control::default()).unwrap();
    assert_eq!(files(folder.path()).len(), 1);
    assert!(matches!(snapshot.traces(&node("n1"), &Derivation::default()), Err(Error::Gone { .. })));
}

#[test]
fn a_damaged_day_does_not_keep_the_others_from_being_merged() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    for name in ["n1", "n2"] {
        load(&archive, name, 0..10);
        load(&archive, name, 10..20);
    }
    std::fs::write(&files(folder.path())[0], "rubbish").unwrap();
    let report = compact(&archive).unwrap();
    assert_eq!((report.problems.len(), report.files_after), (1, 1));
}

#[test]
fn what_is_written_again_later_wins_also_after_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..10);
    compact(&archive).unwrap();
    let mut loader = archive.loader(crate::source()).unwrap();
    let mut corrected = crate::reading("n1", 4);
    corrected.threads[0].ticks.0[0] += 2;
    loader.push(&corrected.node, corrected.time, &corrected.threads[0]).unwrap();
    loader.finish().unwrap();
    let after = rates(&archive).unwrap();
    assert_eq!(after.len(), 18);
    compact(&archive).unwrap();
    assert_eq!(rates(&archive).unwrap(), after);
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    let trace = &snapshot.traces(&node("n1"), &Derivation::default()).unwrap()[0];
    // A second is 7 user + 1 nice + 50 idle + 2 softirq, and the correction moved 2 more into it.
    assert_eq!(trace.rates(4).unwrap().user(), 10.0 / 62.0);
}

#[test]
fn retention_removes_the_oldest_and_only_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    const DAY: i64 = 86_400;
    for day in 0..4 {
        load(&archive, "n1", day * DAY..day * DAY + 10);
    }
    let now = Timestamp::from_seconds(START + 3 * DAY + 100);
    assert!(archive.prune(&Retention::default(), now, false).unwrap().removed.is_empty());
    let by_age = Retention { max_age: Some(Millis(2 * DAY * 1_000)), max_bytes: None };
    assert_eq!(archive.prune(&by_age, now, true).unwrap().removed.len(), 2);
    assert_eq!(files(folder.path()).len(), 4);
    assert_eq!(archive.prune(&by_age, now, false).unwrap().removed.len(), 2);
    assert_eq!(files(folder.path()).len(), 2);
    let newest = files(folder.path())[1].clone();
    let most = newest.metadata().unwrap().len();
    let by_size = Retention { max_age: None, max_bytes: Some(most) };
    archive.prune(&by_size, now, false).unwrap();
    assert_eq!(files(folder.path()), [newest]);
    assert_eq!(n_readings(&archive), 20);
}

#[test]
fn one_hour_of_one_node_is_read_without_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..7_200);
    load(&archive, "n2", 0..10);
    // Were it read, this would be an error.
    let other =
        files(folder.path()).into_iter().find(|path| path.to_string_lossy().contains("node=n2")).unwrap();
    std::fs::write(other, "rubbish").unwrap();
    let from = Timestamp::from_seconds(START + 3_600);
    let selection =
        Selection { node: Some(node("n1")), from, to: from + Millis(60_000), ..Selection::default() };
    let snapshot = archive.snapshot(selection).unwrap();
    let traces = snapshot.traces(&node("n1"), &Derivation::default()).unwrap();
    assert_eq!(traces.len(), 2);
    for trace in traces {
        // The first second is known too: the reading before it was looked up.
        assert_eq!((trace.start(), trace.len(), trace.coverage_counts()), (from, 60, [60, 0, 0]));
    }
}

#[test]
fn a_period_that_does_not_divide_an_hour_loses_no_reading() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    let mut loader = archive.loader(Source { period: Millis(7_000), ..crate::source() }).unwrap();
    for second in (0..7_200).step_by(7) {
        let reading = crate::reading("n1", second);
        loader.push(&reading.node, reading.time, &reading.threads[0]).unwrap();
    }
    let n_readings = loader.finish().unwrap().readings;
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    let derivation = Derivation { period: snapshot.period(&node("n1")), ..Derivation::default() };
    let by_hour = snapshot.traces_by_hour(&node("n1"), &derivation).unwrap();
    let n_steps: usize = by_hour.map(|traces| traces.unwrap()[0].read_steps().count()).sum();
    assert_eq!(n_steps as u64, n_readings - 1);
}

#[test]
fn hours_follow_each_other_without_a_seam() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..7_200);
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    let whole = snapshot.traces(&node("n1"), &Derivation::default()).unwrap();
    let mut by_hour = vec![Vec::new(); 2];
    for traces in snapshot.traces_by_hour(&node("n1"), &Derivation::default()).unwrap() {
        for (index, trace) in traces.unwrap().into_iter().enumerate() {
            by_hour[index]
                .extend(trace.read_steps().map(|(time, rates, _)| (time, rates)).collect::<Vec<_>>());
        }
    }
    for (trace, pieces) in whole.iter().zip(by_hour) {
        let steps: Vec<_> = trace.read_steps().map(|(time, rates, _)| (time, rates)).collect();
        assert_eq!(steps, pieces);
        assert_eq!(steps.len(), 7_199);
    }
}
