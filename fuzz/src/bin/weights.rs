//! Weights from files of others are read or rejected, and never have more values than the file has bytes.
#![no_main]

use learn::weights::parse;
use libfuzzer_sys::fuzz_target;

/// The mark of an entry in the central directory of a zip file, and the length of its fixed part.
const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_LENGTH: usize = 46;
/// The length of the fixed part of the header before an entry's bytes.
const LOCAL_LENGTH: usize = 30;

fuzz_target!(|bytes: &[u8]| {
    // As a file of either layout of torch.save, or as safetensors, by its first bytes.
    let is_file = check(&with_checksums(bytes));
    // As the pickles of the layout before torch 1.6, behind three that are skipped.
    let is_pickle = check(&[b"\x80\x02N.N.N.".as_slice(), bytes].concat());
    fuzz::expect(is_file || is_pickle);
});

fn check(bytes: &[u8]) -> bool {
    let Ok(tensors) = parse(bytes) else { return false };
    let n_values: usize = tensors.values().map(|tensor| tensor.len()).sum();
    assert!(n_values <= bytes.len(), "{n_values} values from {} bytes", bytes.len());
    true
}

/// The checksums of all files in a zip file made right.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut fixed = bytes.to_vec();
    let number = |entry: &[u8], at: usize| {
        u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
    };
    for at in 0..bytes.len().saturating_sub(ENTRY_LENGTH) {
        let entry = &bytes[at..at + ENTRY_LENGTH];
        if !entry.starts_with(ENTRY) {
            continue;
        }
        let (length, header) = (number(entry, 20) as usize, number(entry, 42) as usize);
        let Some(local) = bytes.get(header..).and_then(|rest| rest.get(..LOCAL_LENGTH)) else { continue };
        let names = usize::from(u16::from_le_bytes([local[26], local[27]]))
            + usize::from(u16::from_le_bytes([local[28], local[29]]));
        let content = bytes.get(header + LOCAL_LENGTH + names..).and_then(|rest| rest.get(..length));
        if let Some(content) = content {
            fixed[at + 16..at + 20].copy_from_slice(&crc32fast::hash(content).to_le_bytes());
        }
    }
    fixed
}
