//! Campaigns: labelled traces from jobs whose behaviour is known in advance. The jobs run on this machine and
//! are recorded through the agent, or they are simulated.

pub mod job_trace;
pub mod jobs;
pub mod kind;
pub mod plan;
pub mod run;
pub mod simulate;
pub mod slurm;

pub use kind::Kind;
pub use plan::{Plan, PlanError, PlanProblem};
