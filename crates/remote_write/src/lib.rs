//! Decoders of Prometheus remote write, versions 1.0 and 2.0. They read requests in place and do not allocate, except for
//! the table of symbols of version 2.0.

pub mod decompress;
pub mod series;
pub mod v1;
pub mod v2;
pub mod wire;

pub use decompress::{Encoding, MAX_DECODED};
pub use series::{Label, Sample, TimeSeries};
pub use wire::Damaged;

/// A version of remote write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    One = 1,
    Two = 2,
}

impl Version {
    /// The version of this number.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            _ => None,
        }
    }
}
