//! Wide rows: several consecutive rows of a table as one.
//!
//! While the context is wide, a column's value is a vector of its values in [`WIDE_ROWS`] rows (of a Boolean, and of a
//! validity, a mask), loaded at once. Expressions are lowered by the same code as for one row, since the builder's operators
//! take vectors as they take scalars, and a scalar beside a vector as the vector that has it in each element. What has no such
//! form (128 bits, text, a division, a branch, an error that is reported) is found by trying:
//! [`supports_wide_rows`](crate::lower::supports_wide_rows).

use kelpie_kir::builder::V;
use kelpie_kir::{Pointee, Reads, ReduceOp, Scalar, Type};

use super::Context;
use crate::types::Range;

/// Rows of a wide row, whose first has a number that is a multiple of this. Eight validity bits are one byte.
pub(crate) const WIDE_ROWS: u8 = 8;

/// Bytes of the widest load: the buffers of columns begin at multiples of it.
const WIDEST_LOAD: u32 = 16;

/// Integers of a wide row as they lie in memory: narrower than in registers, so that more of them are compared at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredIntegers {
    /// What is stored: a vector.
    pub value: V,
    /// Which are not NULL.
    pub valid: Option<V>,
    /// What is to be added, `i64`, where that is not 0.
    pub base: Option<V>,
    /// Bounds of what is stored under what is not NULL.
    pub bounds: Range,
}

impl Context<'_> {
    /// How many rows the current one stands for, where it is wide.
    pub(crate) fn wide(&self) -> Option<u8> {
        self.loads.wide
    }

    /// The row that is begun next stands for [`WIDE_ROWS`] rows, until [`Context::end_wide`].
    pub(crate) fn begin_wide(&mut self) {
        self.loads.wide = Some(WIDE_ROWS);
        self.loads.of_wide_row.clear();
    }

    /// Rows are single ones again.
    pub(crate) fn end_wide(&mut self) {
        self.loads.wide = None;
        self.loads.of_wide_row.clear();
    }

    /// A part of a column, loaded once for a wide row however it is asked for: as it is stored, or widened. There are no
    /// blocks in the code of a wide row that a value could be out of.
    pub(super) fn once(
        &mut self,
        (scan, column): (usize, usize),
        is_validity: bool,
        load: impl FnOnce(&mut Self) -> V,
    ) -> V {
        let key = (scan, column, is_validity);
        if let Some(prefetched) = self.prefetched_value(key) {
            return prefetched;
        }
        match self.loads.of_wide_row.get(&key) {
            Some(known) if self.loads.wide.is_some() => *known,
            _ => {
                let loaded = load(self);
                self.loads.of_wide_row.insert(key, loaded);
                loaded
            }
        }
    }

    /// A value of the current row with one element a row, where it is wide: a vector or mask also where all are the same.
    pub(crate) fn each_row(&mut self, value: V) -> V {
        match (self.loads.wide, self.builder.ty(value)) {
            (Some(rows), Type::Scalar(_)) => self.builder.splat(value, rows),
            _ => value,
        }
    }

    /// How many rows of a wide row a condition is true for, as a scalar; all, where there is no condition.
    pub(crate) fn count_rows(&mut self, condition: Option<V>, rows: u8, scalar: Scalar) -> V {
        let Some(condition) = condition else { return self.builder.int(scalar, rows) };
        let mask = self.each_row(condition);
        let count = self.builder.reduce(ReduceOp::Count, mask);
        self.builder.convert(count, scalar)
    }

    /// Element `row` of an array, or, where the current row is wide, those from there on.
    pub(super) fn load_elements(&mut self, array: V, row: V) -> V {
        let pointer = self.builder.offset(array, row);
        let Some(rows) = self.loads.wide else { return self.builder.load_read_only(pointer) };
        // A CPU needs no promise; a GPU loads as wide as the address is known to be aligned.
        if self.shape.is_serial() {
            return self.builder.load_vector_read_only(pointer, rows);
        }
        let bytes = match self.builder.ty(array) {
            Type::Ptr(_, Pointee::Scalar(scalar)) => scalar.bytes(),
            _ => 1,
        };
        let align = (bytes * u32::from(rows)).min(WIDEST_LOAD);
        self.builder.load_vector_reading(pointer, rows, (Reads::ReadOnly, align))
    }
}
