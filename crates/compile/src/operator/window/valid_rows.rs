//! The rows of an order that have a value in some column, numbered: what functions that ignore NULLs count.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::{number_at, store_number};
use crate::context::{Argument, Context, Unsupported};
use crate::operator::sort::SortOperator;
use crate::program::States;

/// The rows that have a value.
#[derive(Debug)]
pub(super) struct ValidRows {
    /// The stored column.
    pub column: usize,
    /// State of one `u32` a row: first whether the next row has a value, later how many of the rows from the second up to it have one.
    pub counts: usize,
    /// State of one `u64`: whether the first row has a value.
    first: usize,
    /// State of one `u32` for each row with a value: its number in the order.
    rows: usize,
}

impl ValidRows {
    /// Declares the states.
    pub fn plan(column: usize, sort: &SortOperator, states: &mut States) -> ValidRows {
        ValidRows {
            column,
            counts: sort.numbers("valid_counts", states),
            first: states.counter("first_is_valid"),
            rows: sort.numbers("valid_rows", states),
        }
    }

    /// The states by which rows are counted.
    pub fn counted(&self) -> [usize; 2] {
        [self.counts, self.first]
    }

    /// All states.
    pub fn states(&self) -> [usize; 3] {
        [self.counts, self.first, self.rows]
    }

    /// Notes whether the next row, whose value is column `next`, has one, and of the first row whether it has one itself.
    pub fn note_next(
        &self,
        cx: &mut Context<'_>,
        row: V,
        (next, is_last): (usize, V),
    ) -> Result<(), Unsupported> {
        let value = cx.column(next)?;
        let more = cx.builder.not(is_last);
        let valid = value.valid.map_or(more, |valid| cx.builder.and(valid, more));
        let valid = cx.builder.convert(valid, Scalar::I64);
        store_number(cx, ("valid_counts", self.counts), row, valid);
        let zero = cx.builder.i64(0);
        let is_first = cx.builder.eq(row, zero);
        let own = cx.column(self.column)?;
        cx.begin_if(is_first);
        let first = self.first(cx);
        let valid = match own.valid {
            Some(valid) => cx.builder.convert(valid, Scalar::U64),
            None => cx.builder.u64(1),
        };
        cx.builder.store(first, valid);
        cx.end();
        Ok(())
    }

    /// Notes a row that has a value.
    pub fn place(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let value = cx.column(self.column)?;
        if let Some(valid) = value.valid {
            cx.begin_if(valid);
        }
        let number = self.before(cx, row);
        store_number(cx, ("valid_rows", self.rows), number, row);
        if value.valid.is_some() {
            cx.end();
        }
        Ok(())
    }

    /// How many rows before one (`i64`) have a value.
    pub fn before(&self, cx: &mut Context<'_>, row: V) -> V {
        let b = &mut *cx.builder;
        let (zero, one) = (b.i64(0), b.i64(1));
        let has_some = b.lt(zero, row);
        let last = b.sub(row, one);
        let last = b.select(has_some, last, zero);
        let counted = number_at(cx, ("valid_counts", self.counts), last);
        let first = self.first(cx);
        let b = &mut *cx.builder;
        let first = b.load(first);
        let first = b.bitcast(first, Scalar::I64);
        let counted = b.add(counted, first);
        // Garbage is no number of rows.
        let counted = b.binary(BinaryOp::Min, counted, row);
        b.select(has_some, counted, zero)
    }

    /// The row with a value that has a number among these, which is that of a row; the first row where there is none of them (`present`
    /// is false): nobody has noted anything there.
    pub fn row(&self, cx: &mut Context<'_>, number: V, present: V) -> V {
        let row = number_at(cx, ("valid_rows", self.rows), number);
        let first = cx.builder.i64(0);
        cx.builder.select(present, row, first)
    }

    fn first(&self, cx: &mut Context<'_>) -> V {
        cx.argument("first_is_valid", Type::global(Scalar::U64), Argument::State(self.first))
    }
}
