//! Tables of Nextflow and FlowBench: any text is read or rejected.
#![no_main]

use files::{Limited, Limits};
use libfuzzer_sys::fuzz_target;
use workflows::read::{nextflow, table};

fuzz_target!(|text: &str| {
    let table = Limited::new(text.as_bytes(), &Limits::default());
    let mut meter = table.meter();
    let found = [nextflow::read("run", text).ok(), table::read("run", table, &mut meter).ok()];
    fuzz::expect(found.iter().any(Option::is_some));
    for recording in found.into_iter().flatten() {
        let _ = recording.run.delays();
    }
});
