//! Compressed files: any bytes are decompressed or refused, within the limits.
#![no_main]

use std::io::Read;

use files::Limits;
use libfuzzer_sys::fuzz_target;

const MOST_BYTES: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { file_bytes: MOST_BYTES, record_bytes: MOST_BYTES, ..Limits::default() };
    let Ok(mut file) = files::open(&fuzz::file("x", bytes), &limits) else { return };
    let mut buffer = vec![0; 1 << 16];
    let mut n_bytes = 0;
    while let Ok(n_read @ 1..) = file.read(&mut buffer) {
        n_bytes += n_read as u64;
    }
    fuzz::expect(n_bytes > bytes.len() as u64);
    assert!(n_bytes <= MOST_BYTES);
});
