//! Job traces, as files and through every generator.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod contract;
mod files;
mod golden;
mod hostile;
mod made;
mod mismatch;
mod properties;
