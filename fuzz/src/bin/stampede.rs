//! Pegasus' database: any bytes are read or rejected, and delays are never negative.
#![no_main]

use files::Limits;
use libfuzzer_sys::fuzz_target;
use workflows::read::stampede;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { rows: 100_000, ..Limits::default() };
    let runs = stampede::read(&fuzz::file("stampede.db", bytes), &limits);
    fuzz::expect(runs.is_ok());
    for recording in runs.into_iter().flatten() {
        for delays in recording.run.delays() {
            assert!(delays.parts().iter().all(|(_, seconds)| *seconds >= 0.0));
        }
    }
});
