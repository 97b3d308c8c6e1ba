//! Files on disk: atomic replacement, locks, bounded and compressed input, and tables of results as Parquet
//! or CSV.

mod atomic;
#[cfg(feature = "compressed")]
mod compressed;
mod contain;
mod error;
mod limited;
mod lock;
mod pages;
mod spreadsheet;
#[cfg(feature = "table")]
pub mod table;

pub use atomic::{AtomicFile, DIR_MODE, FILE_MODE, create_dirs, create_new, replace_dir, sync_dir, write};
#[cfg(feature = "compressed")]
pub use compressed::open;
pub use contain::contain_panic;
pub use error::{Error, Result};
pub use limited::{LimitExceeded, Limited, Limits, Meter, read};
pub use lock::{open_existing_lock, open_lock};
pub use pages::check_pages;
pub use spreadsheet::{guarded, unguarded};
