//! Logs of Pegasus, DAGMan, HTCondor and Nextflow: no bytes make the parser panic, and two pieces give the same run as the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workflows::read::follow::LogParser;

fuzz_target!(|bytes: &[u8]| {
    let (mut whole, mut pieces) = (LogParser::default(), LogParser::default());
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let is_log = whole.push(bytes).is_ok();
    let is_log_in_pieces = pieces.push(first).and_then(|()| pieces.push(second)).is_ok();
    let recording = whole.recording("run");
    fuzz::expect(is_log && !recording.run.attempts.is_empty());
    if is_log && is_log_in_pieces {
        assert_eq!(recording, pieces.recording("run"));
    }
    for delays in recording.run.delays() {
        assert!(delays.parts().iter().all(|(_, seconds)| *seconds >= 0.0));
    }
});
