//! CPU traces: what each job did on its threads, and what that says of how to look at them.

pub mod analysis;
pub mod detect;
pub mod stretch;

pub use stretch::{Kinds, Stretch, Stretches};
