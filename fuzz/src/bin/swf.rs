//! Whatever an SWF file contains, it is rejected or read to columns of equal length.
#![no_main]

use std::path::Path;

use files::{Limited, Limits};
use jobs::trace::ReadOptions;
use jobs::{Preset, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: fuzz::without_threads(), |text: &[u8]| {
    let text = Limited::new(text, &Limits::default());
    let Ok(table) = jobs::source::parse_swf(text, Path::new("log.swf")) else { return fuzz::expect(false) };
    let n_rows = table.n_rows();
    assert!(table.columns.iter().all(|column| column.len() == n_rows));
    let trace = Trace::from_table(table, &ReadOptions::preset(Preset::Swf));
    fuzz::expect(trace.is_ok());
    let Ok(trace) = trace else { return };
    if let Ok(features) = trace.features() {
        assert_eq!(features.n_jobs(), n_rows);
        assert!(features.intervals().iter().all(|interval| *interval >= 0.0));
    }
});
