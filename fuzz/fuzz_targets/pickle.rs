//! Weights from files of others are read or rejected, and never have more values than the file has bytes.
#![no_main]

use learn::weights::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As a file of either layout of torch.save, or as safetensors, by its first bytes.
    check(bytes);
    // As the pickles of the layout before torch 1.6, behind three that are skipped.
    check(&[b"\x80\x02N.N.N.".as_slice(), bytes].concat());
});

fn check(bytes: &[u8]) {
    if let Ok(tensors) = parse(bytes) {
        let n_values: usize = tensors.values().map(|tensor| tensor.len()).sum();
        assert!(n_values <= bytes.len(), "{n_values} values from {} bytes", bytes.len());
    }
}
