//! Readings on the wire: what can be read can be written again, and is read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::samples::{Segment, join, read, read_segment};

fuzz_target!(|bytes: &[u8]| {
    let n_joined = read(bytes).flatten().count();
    // The bytes as one segment, so that the fuzzer need not keep its length right.
    let mut again = Segment::with_capacity(0);
    let mut readings = Vec::new();
    for (source, reading) in read_segment(bytes).flatten() {
        again.push(&reading, &source);
        readings.push(reading);
    }
    fuzz::expect(n_joined > 0 || !readings.is_empty());
    let found: Result<Vec<_>, _> =
        read(&join([again.bytes()].into_iter())).map(|read| read.map(|(_, reading)| reading)).collect();
    assert_eq!(found, Ok(readings));
});
