//! Whatever a CSV file contains, under the preset that the first byte chooses, it is rejected or read to columns of
//! equal length.
#![no_main]

use std::path::Path;

use files::{Limited, Limits};
use jobs::trace::ReadOptions;
use jobs::{Preset, Role, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let Some((choice, text)) = bytes.split_first() else { return };
    let preset = Preset::ALL[usize::from(*choice) % Preset::ALL.len()];
    let mut options = ReadOptions::preset(preset);
    // The others know which of their columns is the time of submission.
    if preset == Preset::Csv {
        options.roles.insert("submit".into(), Role::Submit);
    }
    let text = Limited::new(text, &Limits::default());
    let Ok(table) = jobs::source::parse_csv(text, Path::new("trace.csv")) else { return fuzz::expect(false) };
    assert!(table.columns.iter().all(|column| column.len() == table.n_rows()));
    let trace = Trace::from_table(table, &options);
    fuzz::expect(trace.is_ok());
    let Ok(trace) = trace else { return };
    if let Ok(features) = trace.features() {
        assert!(features.columns().iter().all(|column| column.len() == features.n_jobs()));
    }
});
