//! The SIMT interpreter: the executable specification of KIR.
//!
//! A grid runs as blocks of threads in warps of [`Config::lanes`] lanes. A warp runs in lock step over flat code with a
//! mask of active lanes: both sides of an `if` one after the other, loops until no lane is left in them. The warps of
//! the resident blocks are interleaved in an order that [`Config::seed`] determines, and switch only after statements
//! that others can observe (memory, atomics, barriers), so that every other statement costs no switch.
//!
//! Every access is checked for bounds and alignment. With [`Config::detect_races`] accesses are also checked for data
//! races; the module `races` says what is found.

mod access;
mod compile;
mod launch;
mod memory;
mod program;
mod races;
mod schedule;
mod turn;
mod values;
mod vectors;
mod warp;
mod wide;

#[cfg(test)]
mod tests;

pub use launch::{Argument, Config, Fault, Passages, Report};
pub use memory::{AllocationId, Memory};
pub use program::Program;
