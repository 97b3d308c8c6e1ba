//! Workflows from their logs to the name of their trouble, on runs that are made here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod contract;
mod logs;
mod made;
mod networks;
mod protocols;
