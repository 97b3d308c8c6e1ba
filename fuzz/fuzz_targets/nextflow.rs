//! Tables of Nextflow and FlowBench: any text is read or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workflows::read::{nextflow, table};

fuzz_target!(|text: &str| {
    let found = [nextflow::read("run", text), table::read("run", text.as_bytes())];
    for recording in found.into_iter().flatten() {
        let _ = recording.run.delays();
    }
});
