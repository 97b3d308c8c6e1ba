//! The receiver of remote write: a log of requests, what their series mean, and the assembly of readings.

pub mod assemble;
pub mod meaning;
pub mod receive;
pub mod request_log;
