//! Tables of Nextflow and FlowBench: any text is read or rejected.
#![no_main]

use files::{Limited, Limits};
use libfuzzer_sys::fuzz_target;
use workflows::read::follow::LogParser;
use workflows::read::table;

fuzz_target!(|text: &str| {
    let mut trace = LogParser::default();
    let is_trace = trace.push(text.as_bytes()).is_ok();
    trace.end();
    let trace = trace.recording("run");
    let limited = Limited::new(text.as_bytes(), &Limits::default());
    let mut meter = limited.meter();
    let table = table::read("run", limited, &mut meter).ok();
    fuzz::expect(is_trace && !trace.run.attempts.is_empty() || table.is_some());
    for recording in table.into_iter().chain([trace]) {
        let _ = recording.run.delays();
    }
});
