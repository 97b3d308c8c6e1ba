//! Labelled jobs: run for real on this machine and recorded through the agent, or simulated.

pub mod jobs;
pub mod kind;
pub mod plan;
pub mod run;

pub use kind::Kind;
pub use plan::{Plan, PlanError};
