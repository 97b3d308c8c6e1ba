//! Parquet files of an archive, with right checksums: damage anywhere is reported, and nothing panics. The first byte
//! chooses between the tables, and between versions of the second.
#![no_main]

use std::sync::LazyLock;

use archive::Archive;
use archive::fuzzing::read_file;
use libfuzzer_sys::fuzz_target;

/// The paths of the files that the corpus starts with.
const PATHS: [&str; 3] = [
    "cpu/date=2026-01-02/node=n1/20260102T035930Z-20260102T035949Z-01M7GPA997XE2R8YHQ71S64000-0-d1b559a3.parquet",
    "cgroup/date=2026-11-16/node=vm/20261116T030938Z-20261116T040746Z-01M7H59PDG0GXK52WX4MZ2A000-0-a00b9c8c.parquet",
    "cgroup/date=2026-01-02/node=n1/20260102T035930Z-20260102T035949Z-01M7N8KE6FY7J8F9CGNC5YC000-0-2c3fae81.parquet",
];

static ARCHIVE: LazyLock<Archive> = LazyLock::new(|| {
    let folder = fuzz::scratch("archive");
    for path in PATHS {
        let partition = folder.join(path);
        std::fs::create_dir_all(partition.parent().expect("a directory")).expect("a directory");
    }
    fuzz::archive("archive").expect("an archive")
});

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let archive = &*ARCHIVE;
    let Some((table, bytes)) = bytes.split_first() else { return };
    let path = PATHS[usize::from(*table) % PATHS.len()];
    fuzz::file(&format!("archive/{path}"), bytes);
    fuzz::expect(read_file(archive, path) > 0);
});
