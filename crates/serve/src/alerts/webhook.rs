//! Webhooks: one request per change of an event, with a signature.

use std::time::SystemTime;

use learn::artifact::hexadecimal;
use lifecycle::RecordedChange;
use reqwest::RequestBuilder;
use reqwest::header::CONTENT_TYPE;
use ring::hmac;
use serde_json::json;

/// The number of the change. A receiver that has seen it can ignore the request.
const NUMBER: &str = "tracewise-change";
/// When the request was made, in seconds since 1970: old requests can be refused.
const TIME: &str = "tracewise-timestamp";
/// `sha256=` and the HMAC of the timestamp, a full stop and the body.
const SIGNATURE: &str = "tracewise-signature";

/// The content of a request. It is the same whenever the change is sent.
pub fn body(change: &RecordedChange, cluster: &str) -> String {
    let RecordedChange { number, what, time, event } = change;
    json!({ "number": number, "what": what, "time": time, "cluster": cluster, "event": event }).to_string()
}

/// A request with a body and, if there is a key, its signature.
pub fn signed(request: RequestBuilder, body: String, key: Option<&str>, number: i64) -> RequestBuilder {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut request =
        request.header(CONTENT_TYPE, "application/json").header(NUMBER, number).header(TIME, now);
    if let Some(key) = key {
        request = request.header(SIGNATURE, format!("sha256={}", signature(key, now, &body)));
    }
    request.body(body)
}

fn signature(key: &str, seconds: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    hexadecimal(hmac::sign(&key, format!("{seconds}.{body}").as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_that_other_programs_compute() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key
        let expected = "a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03";
        let found = signature("key", 1_700_000_000, "{\"a\":1}");
        assert_eq!(found, expected);
    }
}
