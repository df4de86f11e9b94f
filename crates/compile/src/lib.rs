//! Relational plans of Kelpie compiled into pipelines of kernel IR.

pub mod context;
pub mod expr;
pub mod layout;
pub mod plan;
pub mod types;
