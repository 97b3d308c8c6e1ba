//! Records of kickstart (YAML and XML) and PegasusLite: any text is read or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workflows::read::kickstart;
use workflows::workflow::{Span, TaskAttempt, TaskRole};

fuzz_target!(|text: &str| {
    let mut attempt = TaskAttempt::new("task", TaskRole::Compute, "task", 1);
    attempt.execution = Span::new(100.0, 200.0).ok();
    fuzz::expect(kickstart::add_records(text, &mut attempt).is_ok());
    kickstart::add_transfers(text, &mut attempt);
    let _ = attempt.delays(0.0);
});
