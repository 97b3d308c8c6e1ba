//! A column map and a CSV file, separated by a line `---`: refused or read, and nothing panics.
#![no_main]

use std::sync::LazyLock;

use archive::source::{ColumnMap, CsvImport};
use libfuzzer_sys::fuzz_target;
use workload::Stop;

static FOLDER: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));

fuzz_target!(|text: &str| {
    let (map, csv) = text.split_once("\n---\n").unwrap_or(("", text));
    let file = FOLDER.path().join("x.csv");
    std::fs::write(&file, csv).expect("a CSV file");
    for map in [ColumnMap::from_toml("map", map).ok(), Some(ColumnMap::exathlon())].iter().flatten() {
        let _ = CsvImport::survey(&file, map, "fuzz", None, &Stop::default());
    }
});
