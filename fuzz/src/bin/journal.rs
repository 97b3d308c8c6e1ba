//! Segments of a journal: garbled bytes, and garbled records with right checksums, are refused or read, and nothing
//! panics. The first byte chooses the version.
#![no_main]

use std::sync::LazyLock;

use archive::{Archive, Selection};
use libfuzzer_sys::fuzz_target;
use workload::Derivation;

/// The first bytes of each version.
const MAGICS: [&[u8; 8]; 4] = [b"TWJRNL\0\x01", b"TWJRNL\0\x02", b"TWJRNL\0\x03", b"TWJRNL\0\x04"];
/// In the first byte: leave checksums as they are.
const DAMAGED: u8 = 0x80;
const BLOCK_MARK: &[u8] = b"\xd7TWBLOCK";
/// Length and checksum of a record.
const HEADER: usize = 8;
/// A trace has a step for every period between its readings, so only short ones are derived.
const LONGEST_TRACE_MS: i64 = 3_600_000;

/// An archive with an empty journal.
static ARCHIVE: LazyLock<Archive> = LazyLock::new(|| {
    let archive = fuzz::archive("archive");
    std::fs::create_dir_all(fuzz::scratch("archive/.spool/journal")).expect("a journal");
    archive.expect("an archive")
});

/// Makes the checksums of all records right, as far as their lengths can be followed.
fn with_checksums(records: &mut [u8]) {
    let mut at = 0;
    while let Some(rest) = records.get_mut(at..) {
        if rest.starts_with(BLOCK_MARK) {
            at += BLOCK_MARK.len();
            continue;
        }
        let Some((header, rest)) = rest.split_at_mut_checked(HEADER) else { return };
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(payload) = rest.get(..length) else { return };
        header[4..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        at += HEADER + length;
    }
}

fuzz_target!(init: fuzz::without_threads(), |bytes: &[u8]| {
    let archive = &*ARCHIVE;
    let Some((choice, records)) = bytes.split_first() else { return };
    let magic = MAGICS[usize::from(*choice & !DAMAGED) % MAGICS.len()];
    let mut segment = [magic.as_slice(), records].concat();
    if choice & DAMAGED == 0 {
        with_checksums(&mut segment[magic.len()..]);
    }
    fuzz::file("archive/.spool/journal/01ARZ3NDEKTSV4RRFFQ69G5FAV.log", &segment);
    let Ok(snapshot) = archive.snapshot(Selection::default()) else { return };
    fuzz::expect(!snapshot.nodes().is_empty());
    for node in snapshot.nodes() {
        let _ = snapshot.job_readings(&node);
        if snapshot.bounds(&node).is_some_and(|(first, last)| (last - first).0 < LONGEST_TRACE_MS) {
            let _ = snapshot.traces(&node, &Derivation::default());
        }
    }
});
