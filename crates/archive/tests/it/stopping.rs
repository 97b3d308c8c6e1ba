//! Long operations end soon after they are asked to, with a typed error, and lose nothing.

use std::fmt::Write;
use std::time::{Duration, Instant};

use archive::source::{ColumnMap, CsvImport};
use archive::{Error, Replay, Selection};
use workload::{Control, Millis, Stop, Timestamp};

use crate::{START, create, files, intake, load, n_readings, rates};

fn is_stopped<T>(outcome: &archive::Result<T>) -> bool {
    matches!(outcome, Err(Error::Stopped(_)))
}

#[test]
fn an_import_that_is_stopped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "t,n,c,user,idle\n".to_owned();
    for second in 0..5_000 {
        writeln!(text, "{},n1,0,{second},{second}", START + second).unwrap();
    }
    let csv = folder.path().join("x.csv");
    std::fs::write(&csv, text).unwrap();
    let map = "layout = 'long'\ntime = 't'\nnode = 'n'\ncpu = 'c'\nunit = 'ticks'\n\
        [modes]\nuser = 'user'\nidle = 'idle'\n";
    let map = ColumnMap::from_toml("map.toml", map).unwrap();
    let archive = create(&folder.path().join("a"));
    let import = CsvImport::survey(&csv, &map, "a test", None, &intake(), &Stop::default()).unwrap();
    for stop_at in [64, 2_500, 5_000] {
        let stop = Stop::default();
        let tell = |done, _| {
            if done >= stop_at {
                stop.now();
            }
        };
        assert!(is_stopped(&import.load(&archive, &Control::new(&stop, &tell))));
        assert!(files(&folder.path().join("a")).is_empty());
        assert!(archive.verify(&Control::default()).unwrap().leftovers.is_empty());
        assert!(is_stopped(&CsvImport::survey(&csv, &map, "a test", None, &intake(), &stop).map(drop)));
    }
    assert_eq!(import.load(&archive, &Control::default()).unwrap().readings, 5_000);
}

#[test]
fn whatever_reads_or_merges_can_be_stopped_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    for day in 0..3 {
        load(&archive, "n1", day * 86_400..day * 86_400 + 10);
        load(&archive, "n1", day * 86_400 + 10..day * 86_400 + 20);
    }
    let (before, n_before) = (rates(&archive).unwrap(), n_readings(&archive));
    let stop = Stop::default();
    let snapshot = archive.with_stop(&stop).snapshot(Selection::default()).unwrap();
    let now = Timestamp::from_seconds(START);
    let tell = |done, _| {
        if done == 1 {
            stop.now();
        }
    };
    assert!(is_stopped(&archive.compact(now, Millis(0), &Control::new(&stop, &tell))));
    assert_eq!(files(folder.path()).len(), 5, "one day of three is merged");
    assert!(is_stopped(&archive.verify(&Control::new(&stop, &tell))));
    let stopped = archive.with_stop(&stop);
    assert!(is_stopped(&stopped.snapshot(Selection::default()).map(drop)));
    assert!(is_stopped(&stopped.catalog(Selection::default())));
    assert!(is_stopped(&snapshot.traces(&crate::node("n1"), &workload::Derivation::default())));
    assert_eq!(rates(&archive).unwrap(), before);
    assert_eq!(n_readings(&archive), n_before);
}

#[test]
fn a_replay_that_waits_is_stopped_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let archive = create(folder.path());
    load(&archive, "n1", 0..10);
    let stop = Stop::after(Some(Duration::from_millis(200)));
    let snapshot = archive.with_stop(&stop).snapshot(Selection::default()).unwrap();
    let begun = Instant::now();
    let played: Vec<_> = Replay::new(&snapshot, Some(0.001)).unwrap().take(2).collect();
    assert!(played[0].is_ok() && is_stopped(&played[1]));
    assert!(begun.elapsed() < Duration::from_millis(1_200), "{:?}", begun.elapsed());
}
