//! Inputs: where readings come from.

pub mod poll;
pub mod pull;
pub mod simulated;
pub mod targets;
