//! Killed, or without power, after each step that a command takes: what was acknowledged is there, and an
//! import is visible completely or not at all.

use std::collections::BTreeSet;
use std::path::Path;

use archive::{Archive, Replay, Selection, Settings, WriterSettings};
use testbed::disk_trace::{Disk, End, Step, record};
use workload::{Measure, Millis, ModeSet, Source, Timestamp};

use crate::{fixture, tracewise};

fn open(dir: &Path) -> Option<Archive> {
    Archive::open(dir.to_str().unwrap(), &Settings::default()).ok()
}

/// When the readings of an archive were taken.
fn times(archive: &Archive) -> BTreeSet<Timestamp> {
    let snapshot = archive.snapshot(Selection::default()).unwrap();
    Replay::new(&snapshot, None).unwrap().map(|replayed| replayed.unwrap().reading.time).collect()
}

/// Lets a writer take over, which completes and flushes what is left.
fn take_over(archive: &Archive) {
    let source = Source {
        origin: "a test".into(),
        measure: Measure::Counter,
        ticks_per_second: 100,
        modes: ModeSet::ALL,
        period: Millis::SECOND,
    };
    archive.writer(source, WriterSettings::default()).unwrap().close().unwrap();
}

/// The times that a line of `record --json` acknowledges.
fn acknowledged_by(step: &Step) -> Vec<Timestamp> {
    let Step::Output(text) = step else { return Vec::new() };
    let lines = std::str::from_utf8(text).unwrap().lines().filter(|line| line.starts_with('{'));
    let time = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        serde_json::from_value(line["time"].take()).unwrap()
    };
    lines.map(time).collect()
}

/// How many acknowledged readings would be lost at the worst moment. Looks after every few steps.
fn worst_loss(steps: &[Step], root: &Path, end: End) -> usize {
    let mut disk = Disk::default();
    let mut acknowledged: BTreeSet<Timestamp> = BTreeSet::new();
    let (mut n_looks, mut worst) = (0, 0);
    for (number, step) in steps.iter().enumerate() {
        disk.apply(step);
        acknowledged.extend(acknowledged_by(step));
        // Names change between states that differ most.
        let is_of_interest = matches!(step, Step::Rename(..) | Step::Remove(..)) || number % 7 == 0;
        if acknowledged.is_empty() || !is_of_interest {
            continue;
        }
        n_looks += 1;
        let left = tempfile::tempdir().unwrap();
        let dir = left.path().join("a");
        disk.restore(root, end, &dir);
        let found = open(&dir).map_or_else(BTreeSet::new, |archive| times(&archive));
        worst = worst.max(acknowledged.difference(&found).count());
        if n_looks % 10 == 0 && worst == 0 {
            let archive = open(&dir).unwrap();
            take_over(&archive);
            assert!(acknowledged.is_subset(&times(&archive)), "{end:?} after step {number}");
            assert!(archive.verify(&workload::Control::default()).unwrap().problems.is_empty());
        }
    }
    assert!(acknowledged.len() > 20, "{} readings were acknowledged", acknowledged.len());
    assert!(n_looks > 50, "{n_looks} looks");
    worst
}

#[test]
fn what_was_acknowledged_survives_a_kill_and_a_power_loss_after_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("a");
    let mut program = tracewise();
    program.args(["record", "--interval", "10ms", "--duration", "600ms", "--node", "n1", "--json", "--into"]);
    program.arg(&root).env("TRACEWISE_RECORD_SEGMENT", "60ms");
    let Some(steps) = record(&program, &root) else {
        return testbed::skip("strace is missing");
    };
    for end in End::ALL {
        assert_eq!(worst_loss(&steps, &root, end), 0, "{end:?}");
    }
    // Without its syncs, the same program would lose readings: the test can fail.
    let unsynced: Vec<Step> = steps.iter().filter(|step| !is_sync_of_journal(step)).cloned().collect();
    assert!(unsynced.len() < steps.len());
    assert!(worst_loss(&unsynced, &root, End::PowerLoss) > 0);
    assert_eq!(worst_loss(&unsynced, &root, End::Killed), 0);
}

fn is_sync_of_journal(step: &Step) -> bool {
    matches!(step, Step::Sync(path) if path.extension().is_some_and(|extension| extension == "log"))
}

#[test]
fn an_import_is_there_as_a_whole_or_not_at_all_after_every_step() {
    const N_ROWS: i64 = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let small = std::fs::read_to_string(fixture("csv/exathlon-small.csv")).unwrap();
    let mut rows = small.lines();
    let mut long = rows.next().unwrap().to_owned() + "\n";
    let row = rows.next().unwrap().split_once(',').unwrap().1.to_owned();
    // Over several days, so that several files become visible together.
    (0..N_ROWS).for_each(|step| long += &format!("{},{row}\n", 1_700_000_000 + step * 120));
    let csv = folder.path().join("long.csv");
    std::fs::write(&csv, long).unwrap();
    let root = folder.path().join("a");
    let mut program = tracewise();
    program.args(["archive", "import", "--preset", "exathlon"]).arg(&csv).arg("--into").arg(&root);
    let Some(steps) = record(&program, &root) else {
        return testbed::skip("strace is missing");
    };
    let n_readings = |archive: &Archive| archive.catalog(Selection::default()).unwrap().readings();
    let whole = n_readings(&open(&root).unwrap());
    assert!(whole >= N_ROWS as u64);
    for end in End::ALL {
        let mut disk = Disk::default();
        let (mut n_none, mut n_whole, mut n_completed) = (0, 0, 0);
        for (number, step) in steps.iter().enumerate() {
            disk.apply(step);
            if matches!(step, Step::Append(..) | Step::Output(_)) {
                continue;
            }
            let left = tempfile::tempdir().unwrap();
            let dir = left.path().join("a");
            disk.restore(&root, end, &dir);
            let Some(archive) = open(&dir) else { continue };
            let visible = n_readings(&archive);
            take_over(&archive);
            let recovered = n_readings(&archive);
            match (visible, recovered) {
                (0, 0) => n_none += 1,
                (0, found) if found == whole => n_completed += 1,
                (found, again) if found == whole && again == whole => n_whole += 1,
                other => panic!("{end:?} after step {number}, {step:?}: {other:?} of {whole} readings"),
            }
            assert!(archive.verify(&workload::Control::default()).unwrap().problems.is_empty());
        }
        assert!(n_none > 0 && n_completed > 0 && n_whole > 0, "{end:?}: {n_none} {n_completed} {n_whole}");
        let dir = folder.path().join(format!("{end:?}"));
        disk.restore(&root, end, &dir);
        assert_eq!(n_readings(&open(&dir).unwrap()), whole, "{end:?} after it was acknowledged");
    }
}
