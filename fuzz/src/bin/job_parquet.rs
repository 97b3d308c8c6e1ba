//! Whatever a Parquet file of jobs contains, it is rejected or read to columns of equal length.
#![no_main]

use files::Limits;
use jobs::Preset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let limits = Limits { rows: 1_000_000, ..Limits::default() };
    let table = jobs::source::read(&fuzz::file("jobs.parquet", bytes), Some(Preset::Csv), &limits);
    fuzz::expect(table.is_ok());
    if let Ok(table) = table {
        assert!(table.columns.iter().all(|column| column.len() == table.n_rows()));
    }
});
