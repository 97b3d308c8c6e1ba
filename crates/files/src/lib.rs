//! Files on disk: atomic replacement, compressed input, and tables of results as Parquet or CSV.

mod atomic;
#[cfg(feature = "compressed")]
mod compressed;
mod error;
#[cfg(feature = "table")]
pub mod table;

pub use atomic::{AtomicFile, replace_dir, sync_dir, write};
#[cfg(feature = "compressed")]
pub use compressed::open;
pub use error::{Error, Result};
