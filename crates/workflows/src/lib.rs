//! Workflow traces: runs of Pegasus, HTCondor and others read from their logs, where their time went, drawn as Gantt
//! charts, and the name of the trouble: healthy, CPU, disk or network loss.

pub mod classify;
pub mod compare;
pub mod dataset;
pub mod draw;
pub mod error;
pub mod evaluate;
pub mod features;
pub mod inject;
pub mod local;
pub mod read;
pub mod unfinished;
pub mod why;
pub mod workflow;

pub use dataset::{Dataset, LabelledRun, Split};
pub use error::{Error, Result};
pub use read::Recording;
