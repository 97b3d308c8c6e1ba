//! Detectors: they learn what windows of normal jobs look like, and score those that look otherwise.

pub mod net;
pub mod window;
