//! Workflow runs from their logs to a verdict, mostly on generated runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod contract;
mod evidence;
mod golden;
mod growing;
mod hierarchical;
mod hostile;
mod logs;
mod made;
mod networks;
mod properties;
mod protocols;
mod scale;
mod states;
mod stopwatch;
