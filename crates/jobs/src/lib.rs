//! Job traces: one row a job, when it came, how long it ran, what it asked for. Read and written in the formats that
//! batch systems and archives use, learnt by generators, and held against what generators make of them.

mod assemble;
pub mod error;
pub mod features;
pub mod fidelity;
pub mod format;
pub mod generators;
pub mod preset;
pub mod replay;
pub mod schema;
pub mod sink;
pub mod source;
mod status;
pub mod table;
pub mod trace;

pub use error::{Error, Result};
pub use preset::Preset;
pub use schema::{Kind, Role, Schema};
pub use table::{Column, Table, Values};
pub use trace::Trace;
