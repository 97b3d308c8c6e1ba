//! Labelled jobs: run for real on this machine and recorded through the agent, or simulated.

pub mod job_trace;
pub mod jobs;
pub mod kind;
pub mod plan;
pub mod run;
pub mod simulate;

pub use kind::Kind;
pub use plan::{Plan, PlanError};
