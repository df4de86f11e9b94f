//! Hash tables and what they are made of, for groups and joins (design, section 3): keys packed into a word, columns
//! stored a slot or row, stores of rows, and indexes over such a store: by open addressing or directly, with buckets where a
//! key has many rows.

pub mod bounds;
mod buckets;
pub mod hashing;
pub mod index;
pub mod packed;
mod probing;
pub mod rows;
mod slots;
pub mod stored;

use kelpie_kir::Scalar;

use crate::context::register_of;
use crate::types::{DataType, Range};

/// The register type of a value: what lowering gives for this type and range, or something that it converts to
/// without loss.
pub fn register_type(data_type: &DataType, range: Option<Range>) -> Scalar {
    match data_type {
        DataType::Boolean => Scalar::Bool,
        DataType::Float32 => Scalar::F32,
        DataType::Float64 => Scalar::F64,
        _ => range.or_else(|| data_type.full_range()).map_or(Scalar::I64, register_of),
    }
}
