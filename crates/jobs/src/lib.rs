//! Job traces: one row per job, with its submission time, run time and resource request.
//!
//! Traces are read and written in the formats of batch systems and public archives ([`source`], [`sink`]), described by a
//! [`Schema`], modelled by [`generators`], compared with synthetic ones by [`fidelity`], and scheduled by [`replay`].

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
pub use features::FeatureTable;
pub use preset::Preset;
pub use schema::{ColumnKind, Role, Schema};
pub use table::{Column, Table, Values};
pub use trace::Trace;
