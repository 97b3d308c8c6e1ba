//! WfFormat: any text is read or rejected, and delays are never negative.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let recording = workflows::read::wfformat::read(text);
    fuzz::expect(recording.is_ok());
    if let Ok(recording) = recording {
        for delays in recording.run.delays() {
            assert!(delays.parts().iter().all(|(_, seconds)| *seconds >= 0.0));
        }
    }
});
