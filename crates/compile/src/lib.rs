//! Relational plans of Kelpie compiled into pipelines of kernel IR.
//!
//! The modules are layers, each of which uses only those below it: `tests/layers.rs` holds them to it, and says which they
//! are.

pub mod algebra;
pub mod calibration;
mod check;
mod choices;
pub mod context;
pub mod expr;
pub mod layout;
pub mod lower;
mod models;
pub mod operator;
pub mod pipeline;
pub mod plan;
pub mod primitives;
mod program;
pub mod shape;
pub mod spaces;
pub mod table;
pub mod types;
mod unsupported;
pub mod variant;

pub use models::{MicroModel, Resolution};
