//! DAGMan's graph files: any text is read, and a graph is no larger than its text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workflows::read::dag;

fuzz_target!(|bytes: &[u8]| {
    let dag = dag::parse(&String::from_utf8_lossy(bytes));
    fuzz::expect(!dag.jobs.is_empty());
    assert!(dag.jobs.len() + dag.subworkflows.len() + dag.graph.dependencies().len() <= bytes.len());
});
