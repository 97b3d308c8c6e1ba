//! Workflows from their logs to the name of their trouble, on runs that are made here.

mod contract;
mod logs;
mod made;
mod networks;
mod protocols;
