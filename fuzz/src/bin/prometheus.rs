//! Answers of a Prometheus, separated by lines `---`: an import reads or refuses them, and nothing panics.
#![no_main]

use std::sync::LazyLock;

use archive::Archive;
use archive::fuzzing::import_answers;
use archive::source::{Intake, Limits};
use libfuzzer_sys::fuzz_target;
use workload::Timestamp;

static ARCHIVE: LazyLock<Archive> = LazyLock::new(|| fuzz::archive("archive").expect("an archive"));

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let intake = Intake { limits: Limits::default(), now: Timestamp::from_seconds(1_800_000_000) };
    let mut answers = Vec::new();
    let mut rest = bytes;
    while let Some((answer, after)) = fuzz::split_once(rest, fuzz::SEPARATOR) {
        answers.push(answer);
        rest = after;
    }
    answers.push(rest);
    fuzz::expect(import_answers(&ARCHIVE, &intake, &answers).is_ok());
});
