//! What a selection asks of a row.

use kelpie_kir::builder::V;
use kelpie_kir::{Builder, CompareOp, Scalar, Type};

use super::group::param;

/// A condition of a row. NULLs are none of its business: the rows that have values are told by a bitmap beside it.
pub trait Predicate {
    /// Adds its parameters to a kernel; their values.
    fn begin(&self, b: &mut Builder) -> Vec<V>;

    /// Whether a row (`u32`, less than the number of rows) fulfils it (`bool`). May be computed for rows whose values are NULL.
    fn holds(&self, b: &mut Builder, params: &[V], row: V) -> V;
}

/// A column compared with a number: parameters `data` and `bound`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comparison {
    /// The column's type; not `bool`.
    pub scalar: Scalar,
    /// How it is compared.
    pub op: CompareOp,
}

impl Predicate for Comparison {
    fn begin(&self, b: &mut Builder) -> Vec<V> {
        vec![param(b, "data", Type::global(self.scalar)), param(b, "bound", self.scalar)]
    }

    fn holds(&self, b: &mut Builder, params: &[V], row: V) -> V {
        let [data, bound] = params else { return b.bool(false) };
        let value = b.element(*data, row);
        b.compare(self.op, value, *bound)
    }
}
