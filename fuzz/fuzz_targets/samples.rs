//! Readings on the wire: what is understood can be written again and is understood the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::samples::{Segment, for_each, join};

fuzz_target!(|bytes: &[u8]| {
    let _ = for_each(bytes, |_, _| {});
    let mut again = Segment::with_capacity(0);
    let mut readings = Vec::new();
    let _ = for_each(&join([bytes].into_iter()), |source, reading| {
        again.push(&reading, source);
        readings.push(reading);
    });
    let mut found = Vec::new();
    let read = for_each(&join([again.bytes()].into_iter()), |_, reading| found.push(reading));
    assert!(read.is_ok() && found == readings);
});
