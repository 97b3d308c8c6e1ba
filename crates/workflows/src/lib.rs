//! Workflow traces: readers of the logs of Pegasus, HTCondor and others, delays of every task, Gantt charts, and
//! classifiers that find the fault of a run (CPU, disk or network loss) and explain it.

pub mod anomalous_tasks;
pub mod classify;
pub mod compare;
pub mod dataset;
pub mod draw;
mod duplicates;
pub mod error;
pub mod evaluate;
pub mod explain;
pub mod features;
pub mod graph;
pub mod inject;
pub mod local;
pub mod read;
mod tar_members;
pub mod unfinished;
pub mod workflow;

pub use dataset::{Dataset, LabelledRun, Split};
pub use error::{Error, Result, SettingsError};
pub use read::Recording;
