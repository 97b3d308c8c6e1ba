//! Names of control groups and titles of processes, which users choose.
#![no_main]

use agent::cgroup::identity::{condor_id_in, slurm_id_in};
use agent::cgroup::layout::{recognise, sluid_submit_millis};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let parts: Vec<&str> = text.split('/').collect();
    let _ = (recognise(&parts), sluid_submit_millis(text), condor_id_in(text));
    if let Some(id) = slurm_id_in(text) {
        assert!(id.bytes().all(|byte| byte.is_ascii_digit()));
    }
});
