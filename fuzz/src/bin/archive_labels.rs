//! Files of labels and injected faults in an archive, with right checksums: any text is read or rejected, and labels
//! that are read are in order.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use archive::Archive;
use libfuzzer_sys::fuzz_target;

static ARCHIVE: LazyLock<Archive> = LazyLock::new(|| {
    let archive = fuzz::archive("archive");
    for folder in ["archive/labels", "archive/injections"] {
        fs::create_dir_all(fuzz::scratch(folder)).expect("a directory");
    }
    archive.expect("an archive")
});

fuzz_target!(init: fuzz::without_threads(), |text: &[u8]| {
    let archive = &*ARCHIVE;
    let name = format!("01M7H60ZHHXYXXJAHDFQVT6000-{:08x}.json", crc32fast::hash(text));
    let paths = ["labels", "injections"].map(|folder| fuzz::file(&format!("archive/{folder}/{name}"), text));
    let (labels, injections) = (archive.labels(), archive.injections());
    fuzz::expect(labels.is_ok() || injections.is_ok());
    if let Ok(labels) = &labels {
        assert!(labels.is_sorted_by_key(|label| label.start));
        // Compares labels with each other.
        let report = archive.verify(&workload::Control::default()).expect("a report");
        assert!(report.problems.iter().all(|problem| problem.path.contains("labels") || injections.is_err()));
    }
    paths.iter().for_each(|path| fs::remove_file(path).expect("the file is removed"));
});
