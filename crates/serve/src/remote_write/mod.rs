//! Prometheus remote write, versions 1.0 and 2.0: decoders that do not allocate, a log of requests, and the assembly of
//! readings.

pub mod assemble;
pub mod decompress;
pub mod meaning;
pub mod receive;
pub mod request_log;
pub mod series;
pub mod v1;
pub mod v2;
pub mod wire;
