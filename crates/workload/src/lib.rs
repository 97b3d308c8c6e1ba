//! The vocabulary of CPU traces and their labels: nodes, threads, readings, rates, traces, windows.
//!
//! No I/O and no learning. Cancellation ([`Stop`]) and metric names live here because every level uses them.

#![warn(missing_docs)]

pub mod codec;
pub mod derive;
pub mod id;
pub mod label;
pub mod metric;
pub mod mode;
pub mod rates;
pub mod reading;
pub mod samples;
pub mod stop;
pub mod time;
pub mod trace;
pub mod units;

pub use derive::{Derivation, Deriver};
pub use id::{Cpu, IdError, JobId, NodeName, ThreadId};
pub use label::{Injection, Label, Set};
pub use mode::{Mode, ModeSet, Ticks};
pub use rates::{Rates, RatesError};
pub use reading::{
    JobReading, Measure, NodeReading, Owner, Pressure, Source, SourceError, ThreadReading, foreign_cpu,
};
pub use stop::{Control, Stop, Stopped};
pub use time::{Millis, Timestamp};
pub use trace::{Coverage, OwnerNumber, Trace, Window};
