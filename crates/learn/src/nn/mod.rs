//! Networks: parameters, a tape that differentiates, and the operations that CPU traces need, on plain
//! slices and products of matrices.

pub mod adam;
pub mod check;
pub mod checkpoint;
pub mod critic;
pub mod gemm;
pub mod ops;
pub mod parameters;
pub mod tape;
pub mod train;
