//! SQL values in registers.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use crate::types::{DataType, Range};

/// A lowered SQL value of the current row.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The value; unspecified (but computable without fault) where it is NULL.
    pub repr: Repr,
    /// `bool`: not NULL. `None`: never NULL.
    pub valid: Option<V>,
    /// Bounds of the value where it is an integer inside.
    pub range: Option<Range>,
}

/// Representation of a value in registers. Of a wide row (`context::wide`) a scalar is a vector or mask, or, where all rows have
/// the same value, a scalar.
#[derive(Debug, Clone)]
pub enum Repr {
    /// `bool` of a Boolean; `f32`/`f64` of floats; else `i32`, `i64` or `i128` (also for `UInt64` beyond `i64`),
    /// the narrowest that the range proves safe.
    Scalar(V),
    /// Text.
    Text(Text),
}

/// Text in registers.
#[derive(Debug, Clone)]
pub struct Text {
    /// First byte, `ptr<global, u8>`.
    pub data: V,
    /// Length in bytes, `u32`.
    pub length: V,
    /// Case mapping that is to be applied to each (ASCII) byte when it is read.
    pub case: Case,
    /// The dictionary code where the value is an unchanged dictionary column.
    pub code: Option<DictionaryCode>,
}

/// A value of a dictionary column: its code, and where the dictionary is.
#[derive(Debug, Clone, Copy)]
pub struct DictionaryCode {
    /// Position of the entry, `u32`.
    pub value: V,
    /// Entries of the dictionary.
    pub entries: u32,
    /// The scan of the query that has the column.
    pub scan: usize,
    /// Position of the column in the scan.
    pub column: usize,
}

/// A case mapping on ASCII bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Case {
    /// As stored.
    Keep,
    /// To upper case.
    Upper,
    /// To lower case.
    Lower,
}

/// The register type of an integer with this range: `i32`, `i64` or `i128`.
pub fn register_of(range: Range) -> Scalar {
    let fits = |min: i128, max: i128| range.min >= min && range.max <= max;
    if fits(i32::MIN.into(), i32::MAX.into()) {
        Scalar::I32
    } else if fits(i64::MIN.into(), i64::MAX.into()) {
        Scalar::I64
    } else {
        Scalar::I128
    }
}

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
