//! Killed at random points, many times: nothing acknowledged is missing, nothing is doubled. `power_loss`
//! kills after every single step.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::{json_of, stdout_of, tracewise};

/// A random number from a small generator of our own, so that a failure can be repeated.
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The time of a line of `record --json` or `archive replay`.
fn millis(line: &serde_json::Value) -> i64 {
    (line["time"].as_f64().unwrap() * 1e3).round() as i64
}

#[test]
fn a_writer_killed_at_random_points_loses_and_doubles_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("a");
    let mut acknowledged: BTreeSet<i64> = BTreeSet::new();
    let mut random = 0x5eed_u64;
    let mut n_readings = 0;
    for round in 0..40 {
        // Short segments, so that kills hit flushing and publishing as well as appending.
        let mut writer = tracewise()
            .args(["record", "--interval", "10ms", "--node", "n1", "--json", "--into"])
            .arg(&archive)
            .env("TRACEWISE_RECORD_SEGMENT", "30ms")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut compactor = (round % 3 == 2).then(|| {
            tracewise()
                .args(["archive", "compact", "--data"])
                .arg(&archive)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        std::thread::sleep(Duration::from_millis(40 + next(&mut random) % 160));
        writer.kill().unwrap();
        if let Some(compactor) = &mut compactor {
            compactor.kill().unwrap();
            compactor.wait().unwrap();
        }
        for line in BufReader::new(writer.stdout.take().unwrap()).lines() {
            // The last line may have been cut short by the kill.
            let Ok(line) = serde_json::from_str::<serde_json::Value>(&line.unwrap()) else { continue };
            acknowledged.insert(millis(&line));
            n_readings = line["threads"].as_array().unwrap().len() as u64;
        }
        writer.wait().unwrap();
    }
    assert!(acknowledged.len() > 50, "only {} readings were acknowledged", acknowledged.len());
    // What is in the journal counts, before and after it becomes Parquet.
    for round in 0..2 {
        let played = stdout_of(tracewise().args(["archive", "replay", "--data"]).arg(&archive));
        let moments: Vec<serde_json::Value> =
            played.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let times: BTreeSet<i64> = moments.iter().map(millis).collect();
        for time in &acknowledged {
            assert!(times.contains(time), "{time} was acknowledged and is gone");
        }
        let list = json_of(tracewise().args(["archive", "list", "--json", "--data"]).arg(&archive));
        assert_eq!(list["readings"], times.len() as u64 * n_readings);
        if round == 0 {
            stdout_of(
                tracewise()
                    .args(["record", "--duration", "10ms", "--interval", "1h", "--into"])
                    .arg(&archive),
            );
            stdout_of(tracewise().args(["archive", "compact", "--data"]).arg(&archive));
            let verified = json_of(tracewise().args(["archive", "verify", "--json", "--data"]).arg(&archive));
            assert_eq!(verified["journal_segments"], 0);
            // Rows of files, of which readers would show only one of two.
            assert_eq!(verified["readings"], times.len() as u64 * n_readings, "a reading is there twice");
            assert_eq!(verified["leftovers"].as_array().unwrap().len(), 0);
        }
    }
}
