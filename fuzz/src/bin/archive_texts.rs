//! Columns of text in Parquet pages, which the archive decodes itself: a dictionary and a page, separated by a line
//! `---`, are read or rejected. The first bytes are the numbers of rows and of words.
#![no_main]

use archive::fuzzing::read_texts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([rows, more_rows, n_words], bytes)) = bytes.split_first_chunk() else { return };
    let n_rows = usize::from(u16::from_le_bytes([*rows, *more_rows]));
    let (dictionary, page) = match fuzz::split_once(bytes, fuzz::SEPARATOR) {
        Some((words, page)) => (Some((words, u32::from(*n_words))), page),
        None => (None, bytes),
    };
    let n_read = read_texts(dictionary, page, n_rows);
    fuzz::expect(n_read.is_some());
    assert!(n_read.is_none_or(|n_read| n_read == n_rows));
});
