//! A column map and a CSV file, separated by a line `---`: rejected or read, and nothing panics.
#![no_main]

use std::sync::LazyLock;

use archive::source::{ColumnMap, CsvImport, Intake, Limits};
use libfuzzer_sys::fuzz_target;
use workload::{Stop, Timestamp};

static EXATHLON: LazyLock<ColumnMap> = LazyLock::new(ColumnMap::exathlon);

fuzz_target!(|bytes: &[u8]| {
    let (map, csv) = fuzz::split_once(bytes, fuzz::SEPARATOR).unwrap_or((b"", bytes));
    let map = std::str::from_utf8(map).ok().and_then(|map| ColumnMap::from_toml("map", map).ok());
    let intake = Intake { limits: Limits::default(), now: Timestamp::from_seconds(2_000_000_000) };
    let file = fuzz::file("x.csv", csv);
    let map = map.as_ref().unwrap_or(&EXATHLON);
    fuzz::expect(CsvImport::survey(&file, map, "fuzz", None, &intake, &Stop::default()).is_ok());
});
