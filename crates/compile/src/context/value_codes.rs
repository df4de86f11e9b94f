//! Columns of few integers that have codes beside their values: the code of the current row, and the value of a code.

use std::rc::Rc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::{Argument, ColumnPart, Constant, Context};
use crate::layout::{CodedColumn, ValueCodes};

impl Context<'_> {
    /// The code (`u32`) of the current row in column `index`, which is one with codes, and its validity. `None` where only values came
    /// here: from lanes that exchange rows, say.
    pub(crate) fn value_code(&mut self, index: usize, coded: CodedColumn) -> Option<(V, Option<V>)> {
        let (layer, column) = self.memory_layer(self.row.current, index)?;
        let layer = Rc::clone(self.row.layers.get(layer).filter(|_| column == coded.column)?);
        layer.load_value_code(self, (coded.scan, column))
    }

    /// The value (`i64`) of a code (`i64`, below the number of entries).
    pub(crate) fn coded_value(&mut self, code: V, coded: CodedColumn) -> V {
        let entries = self.coded_entries(coded);
        self.builder.element(entries, code)
    }

    pub(super) fn load_value_code(&mut self, (scan, column): (usize, usize), codes: ValueCodes, row: V) -> V {
        let argument = Argument::Column { scan, column, part: ColumnPart::Codes };
        let pointer = self.argument("value_codes", Type::global(codes.code), argument);
        let stored = self.prefetched_code((scan, column)).unwrap_or_else(|| {
            let pointer = self.builder.offset(pointer, row);
            self.builder.load_read_only(pointer)
        });
        self.builder.convert(stored, Scalar::U32)
    }

    fn coded_entries(&mut self, coded: CodedColumn) -> V {
        let CodedColumn { scan, column, .. } = coded;
        let argument = Argument::Column { scan, column, part: ColumnPart::Entries };
        self.argument("values", Type::global(Scalar::I64), argument)
    }

    /// The code (`u32`) of a value (`i64`): the number of entries that are below it, but the last entry's where all are, so that no value
    /// that a row may have on its way into an error leaves the table.
    pub(crate) fn search_values(&mut self, value: V, coded: CodedColumn) -> V {
        let entries = self.coded_entries(coded);
        let last = self.constant(Constant::Int(Scalar::U32, i128::from(coded.entries.max(1) - 1)));
        let (zero, one) = (self.builder.u32(0), self.builder.u32(1));
        let (low, high) = (self.builder.var_of("low", zero), self.builder.var_of("high", last));
        self.begin_loop();
        let b = &mut *self.builder;
        let (first, end) = (b.read(low), b.read(high));
        let done = b.ge(first, end);
        b.break_if(done);
        // There are at most 65,536 entries: the sum does not overflow.
        let sum = b.add(first, end);
        let middle = b.binary(BinaryOp::Shr, sum, one);
        let place = b.convert(middle, Scalar::I64);
        let entry = b.element(entries, place);
        let is_below = b.lt(entry, value);
        let behind = b.add(middle, one);
        let (from, to) = (b.select(is_below, behind, first), b.select(is_below, end, middle));
        b.assign(low, from);
        b.assign(high, to);
        self.end();
        self.builder.read(low)
    }
}
