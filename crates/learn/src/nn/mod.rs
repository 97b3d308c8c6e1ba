//! Neural networks: parameters, a tape for automatic differentiation, operations on plain slices, Adam,
//! the training loop and its checkpoints.

pub mod adam;
pub mod checkpoint;
pub mod critic;
pub mod gemm;
/// For the tests of operations, here and in crates that define their own.
#[doc(hidden)]
pub mod gradient_check;
pub mod ops;
pub mod parameters;
pub mod tape;
pub mod train;
