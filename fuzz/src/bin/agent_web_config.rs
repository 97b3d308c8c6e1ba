//! The agent's web configuration: any text is accepted or rejected.
#![no_main]

use agent::web::config::WebConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    fuzz::expect(WebConfig::read(Some(&fuzz::file("web.yml", text))).is_ok());
});
