//! Relational plans of Kelpie compiled into pipelines of kernel IR.

pub mod context;
pub mod expr;
pub mod layout;
pub mod operator;
pub mod pipeline;
pub mod plan;
pub mod primitives;
pub mod table;
pub mod types;

/// `kelpie.micro_model`: how reductions are carried out inside a pipeline (HorseQC, Table 4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MicroModel {
    /// One atomic a row (A2, B2, C2).
    Pipelined,
    /// Local resolution, global propagation (A3, B3, C3).
    #[default]
    Resolution,
}
