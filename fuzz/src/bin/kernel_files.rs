//! The files of the kernel, garbled and cut short: no panic, and nothing read that was not written.
#![no_main]

use agent::cgroup::usage::{blkio, io_stat};
use agent::cpuset::CpuSet;
use agent::{cpu, load, memory, pressure};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let threads = cpu::parse(text);
    // A file that is cut short has the same threads, or fewer.
    if let Some(part) = text.get(..text.len() / 2) {
        let found = cpu::parse(part);
        assert_eq!(found, threads[..found.len()]);
    }
    if let Some(set) = CpuSet::parse(text) {
        assert_eq!(CpuSet::parse(&set.to_string()), Some(set));
    }
    for line in memory::parse(text) {
        assert!(
            line.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        );
    }
    assert!(load::parse(text).is_none_or(|loads| loads.iter().all(|load| load.is_finite())));
    let _ = (pressure::parse(text), io_stat(text), blkio(text));
});
