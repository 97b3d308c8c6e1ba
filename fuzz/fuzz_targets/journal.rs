//! Segments of a journal: garbled bytes, and garbled records with right checksums, are refused or read, and
//! nothing panics.
#![no_main]

use std::sync::LazyLock;

use archive::{Archive, Selection, Settings};
use libfuzzer_sys::fuzz_target;
use workload::Derivation;

const SEGMENT: &str = ".spool/journal/01ARZ3NDEKTSV4RRFFQ69G5FAV.log";

/// An archive with an empty journal, and its directory.
static ARCHIVE: LazyLock<(Archive, tempfile::TempDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let address = folder.path().to_str().expect("a path in UTF-8");
    let archive = Archive::open_or_create(address, &Settings::default()).expect("an archive");
    std::fs::create_dir_all(folder.path().join(".spool/journal")).expect("a journal");
    (archive, folder)
});

/// Records with their lengths and checksums: each takes as many bytes as the byte before it says.
fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        records.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        records.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        records.extend_from_slice(payload);
        bytes = rest;
    }
    records
}

fuzz_target!(|input: (bool, &[u8])| {
    let (archive, folder) = &*ARCHIVE;
    let (is_framed, bytes) = input;
    let records = if is_framed { framed(bytes) } else { bytes.to_vec() };
    let segment = [b"TWJRNL\0\x02".as_slice(), &records].concat();
    std::fs::write(folder.path().join(SEGMENT), segment).expect("a segment");
    let Ok(snapshot) = archive.snapshot(Selection::default()) else { return };
    for node in snapshot.nodes() {
        let _ = snapshot.job_readings(&node);
        // A trace has a step for every second between its readings, so only short ones are derived.
        if snapshot.bounds(&node).is_some_and(|(first, last)| (last - first).0 < 3_600_000) {
            let _ = snapshot.traces(&node, &Derivation::default());
        }
    }
});
