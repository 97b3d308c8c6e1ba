//! Properties of all readers: no prefix and no flipped bytes of a valid file make them panic, and a log that is read in
//! pieces gives the same run as a log that is read at once.

use std::fs;
use std::path::PathBuf;

use files::{Limited, Limits};
use proptest::prelude::*;
use workflows::read::follow::LogParser;
use workflows::read::{dag, kickstart, read, table, wfformat};
use workflows::workflow::{TaskAttempt, TaskRole};

const FILES: [&str; 9] = [
    "submit/jobstate.log",
    "submit/blackdiamond-0.dag.dagman.out",
    "events.log",
    "instance-1.5.json",
    "cyclic.json",
    "trace.txt",
    "submit/blackdiamond-0.stampede.db",
    "submit/blackdiamond-0.dag",
    "submit/00/00/findrange_ID0000002.out.000",
];

fn fixture(name: &str) -> PathBuf {
    testbed::workspace().join("fixtures/workflows").join(name)
}

/// The bytes of a fixture; the last one is a FlowBench table.
fn bytes(file: usize) -> Vec<u8> {
    match FILES.get(file) {
        Some(name) => fs::read(fixture(name)).unwrap(),
        None => {
            fs::read(testbed::workspace().join("fixtures/artifact/workflows-v1-runs/loss_3.csv")).unwrap()
        }
    }
}

/// Gives bytes to every reader. What they return does not matter here.
fn read_with_all(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parser = LogParser::default();
    let _ = parser.push(bytes);
    parser.end();
    let _ = parser.recording("run").run.delays();
    let mut meter = Limited::new(bytes, &Limits::default()).meter();
    let _ = table::read("run", bytes, &mut meter);
    let _ = wfformat::read(&text);
    let _ = dag::parse(&text);
    let mut attempt = TaskAttempt::new("a", TaskRole::Compute, "a", 1);
    let _ = kickstart::add_records(&text, &mut attempt);
    kickstart::add_transfers(&text, &mut attempt);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    for recording in read(file.path(), &Limits::default()).unwrap_or_default() {
        let run = recording.run;
        let _ = workflows::draw::Gantt::new(&run);
        for delays in run.delays() {
            assert!(delays.parts().iter().all(|(_, seconds)| *seconds >= 0.0), "{delays:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_prefix_of_a_file_is_read_or_rejected(file in 0..=FILES.len(), fraction in 0.0f64..1.0) {
        let bytes = bytes(file);
        read_with_all(&bytes[..(bytes.len() as f64 * fraction) as usize]);
    }

    #[test]
    fn any_flipped_bytes_are_read_or_rejected(
        file in 0..=FILES.len(),
        flips in proptest::collection::vec((0.0f64..1.0, any::<u8>()), 1..8),
    ) {
        let mut bytes = bytes(file);
        for (place, value) in flips {
            let place = (bytes.len() as f64 * place) as usize;
            bytes[place] = value;
        }
        read_with_all(&bytes);
    }

    #[test]
    fn a_log_in_pieces_gives_the_same_run_as_the_whole_log(
        file in 0..3usize,
        cuts in proptest::collection::vec(0.0f64..1.0, 0..12),
    ) {
        let bytes = bytes(file);
        let mut places: Vec<usize> = cuts.iter().map(|cut| (bytes.len() as f64 * cut) as usize).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let (mut whole, mut pieces) = (LogParser::default(), LogParser::default());
        whole.push(&bytes).unwrap();
        for pair in places.windows(2) {
            pieces.push(&bytes[pair[0]..pair[1]]).unwrap();
        }
        prop_assert_eq!(pieces.recording("run"), whole.recording("run"));
    }
}
