//! Worked examples of what can be added to Tracewise, one file each. `docs/extend.md` explains them.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

pub mod collector;
pub mod detector;
pub mod generator;
pub mod job_kind;
pub mod workflow_reader;
