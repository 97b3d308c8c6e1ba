//! `commit.json` of an archive that somebody else made: recovery moves files of the set to names of an archive, and
//! touches nothing else.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

const ARCHIVE: &str = "commit/archive";
const SET: &str = "commit/archive/.spool/staged/01ARZ3NDEKTSV4RRFFQ69G5FAV";
const PREPARED: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAW.parquet";
const MARKER: &str = "commit/archive/archive.json";
/// A file beside the archive.
const OUTSIDE: &str = "commit/outside.parquet";

static IS_CREATED: LazyLock<()> = LazyLock::new(|| {
    fuzz::archive(ARCHIVE).expect("an archive");
    fuzz::file(OUTSIDE, b"outside");
});

fuzz_target!(init: fuzz::without_threads(), |commit: &[u8]| {
    LazyLock::force(&IS_CREATED);
    fs::create_dir_all(fuzz::scratch(SET)).expect("a set");
    fuzz::file(&format!("{SET}/{PREPARED}"), b"prepared");
    fuzz::file(&format!("{SET}/commit.json"), commit);
    let archive = fuzz::archive(ARCHIVE);
    assert_eq!(fs::read(fuzz::scratch(OUTSIDE)).ok().as_deref(), Some(&b"outside"[..]));
    assert_eq!(entries("commit"), 2, "a file was moved out of the archive");
    let is_marked = fs::read(fuzz::scratch(MARKER)).is_ok_and(|marker| marker == br#"{"format":1}"#);
    let has_published = !is_marked || entries(ARCHIVE) > 2;
    fuzz::expect(has_published);
    if archive.is_err() || has_published {
        fs::remove_dir_all(fuzz::scratch(ARCHIVE)).expect("the archive is removed");
        fuzz::archive(ARCHIVE).expect("an archive");
    }
});

fn entries(folder: &str) -> usize {
    fs::read_dir(fuzz::scratch(folder)).expect("a directory").count()
}
