//! The vocabulary of Tracewise: what a cluster leaves behind, as types.
//!
//! Three kinds of trace: CPU traces ([`reading`], [`trace`]), job traces ([`job`]) and
//! workflow traces ([`workflow`]). No I/O, no clock, no learning.

pub mod codec;
pub mod derive;
pub mod id;
pub mod job;
pub mod label;
pub mod mode;
pub mod rates;
pub mod reading;
pub mod samples;
pub mod time;
pub mod trace;
pub mod units;
pub mod workflow;

pub use derive::{Derivation, Deriver};
pub use id::{Cpu, IdError, JobId, NodeName, ThreadId};
pub use job::{JobRecord, JobStatus};
pub use label::{Injection, Label, Set};
pub use mode::{Mode, ModeSet, Ticks};
pub use rates::{Rates, RatesError};
pub use reading::{JobReading, Measure, NodeReading, Owner, Pressure, Source, ThreadReading};
pub use time::{Millis, Timestamp};
pub use trace::{Coverage, OwnerNumber, Trace, Window};
