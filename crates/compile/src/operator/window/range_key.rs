//! The key whose distances bound frames of units RANGE: an array of it in order, in which bounds are found by binary search.

use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, Scalar, Type};

use crate::context::{Argument, Context, Lowered, Repr, Unsupported};
use crate::expr::{ArithmeticOp, Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::sort::SortOperator;
use crate::plan::SortKey;
use crate::program::States;
use crate::types::{Literal, Range};

/// A key.
#[derive(Debug)]
pub(super) struct RangeKey {
    /// The stored column, and the key over it.
    pub column: usize,
    pub key: SortKey,
    /// What is known of its values.
    info: ColumnInfo,
    /// What it is compared as: `I64`, or `I128` where a distance may lead beyond it.
    scalar: Scalar,
    /// State of one of these a row, in order.
    pub values: usize,
}

impl RangeKey {
    /// Declares the states of a key of which no distance is greater than `farthest`.
    pub fn plan(
        (column, key): (usize, &SortKey),
        farthest: i128,
        sort: &Arc<SortOperator>,
        states: &mut States,
    ) -> Result<RangeKey, Unsupported> {
        let info = sort.infos().get(column).cloned();
        let info = info.ok_or_else(|| Unsupported::internal("a key of a window that is not stored"))?;
        let scalar = match info.data_type.is_float() {
            true => Scalar::I64,
            false => {
                let range = info.range.or_else(|| info.data_type.full_range());
                let range = range.ok_or_else(|| Unsupported(format!("a range of {}", info.data_type)))?;
                let reached = Range {
                    min: range.min.saturating_sub(farthest),
                    max: range.max.saturating_add(farthest),
                };
                if reached.within(Range::new(i64::MIN, i64::MAX)) { Scalar::I64 } else { Scalar::I128 }
            }
        };
        let values = states.state("range_keys", scalar.bytes(), sort.class());
        Ok(RangeKey { column, key: key.clone(), info, scalar, values })
    }

    fn array(&self, cx: &mut Context<'_>) -> V {
        cx.argument("range_keys", Type::global(self.scalar), Argument::State(self.values))
    }

    /// Notes the key of the current row.
    pub fn store(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let value = cx.column(self.column)?;
        let value = self.encoded(cx, &value)?;
        let array = self.array(cx);
        let place = cx.builder.offset(array, row);
        cx.builder.store(place, value);
        Ok(())
    }

    /// A value as it is compared.
    fn encoded(&self, cx: &mut Context<'_>, value: &Lowered) -> Result<V, Unsupported> {
        let Repr::Scalar(value) = value.repr else {
            return Err(Unsupported("a frame over a range of texts".into()));
        };
        if !self.info.data_type.is_float() {
            return Ok(cx.builder.convert(value, self.scalar));
        }
        // The two zeros are one value; of others IEEE 754's total order is that of integers, but for the sign.
        let b = &mut *cx.builder;
        let (wide, zero) = (b.convert(value, Scalar::F64), b.f64(0.0));
        let wide = b.add(wide, zero);
        let bits = b.bitcast(wide, Scalar::I64);
        let (sign, magnitude) = (b.i64(63), b.i64(i64::MAX));
        let sign = b.binary(BinaryOp::Shr, bits, sign);
        let flipped = b.and(sign, magnitude);
        Ok(b.binary(BinaryOp::Xor, bits, flipped))
    }

    /// The key of the current row, moved by a distance against the order (`is_before`) or along it, as it is compared; and whether the
    /// row has a key, `None`: always.
    pub fn moved(
        &self,
        cx: &mut Context<'_>,
        distance: &Expr,
        is_before: bool,
    ) -> Result<(V, Option<V>), Unsupported> {
        let takes = is_before != self.key.descending;
        let value = cx.column(self.column)?;
        let valid = value.valid;
        match (&self.info.data_type, &distance.kind) {
            (data_type, ExprKind::Literal(Literal::Int(distance))) if !data_type.is_float() => {
                let own = self.encoded(cx, &value)?;
                let distance = cx.builder.int(self.scalar, *distance);
                let op = if takes { BinaryOp::Sub } else { BinaryOp::Add };
                Ok((cx.builder.binary(op, own, distance), valid))
            }
            (data_type, _) => {
                let own = Expr::column(self.column, data_type.clone(), self.info.nullable);
                let op = if takes { ArithmeticOp::Subtract } else { ArithmeticOp::Add };
                let kind = ExprKind::Arithmetic(op, Box::new(own), Box::new(distance.clone()));
                let moved = Expr { kind, data_type: data_type.clone(), nullable: self.info.nullable };
                let moved = lower(cx, &moved)?;
                Ok((self.encoded(cx, &moved)?, valid))
            }
        }
    }

    /// The first of the rows `from..to` (`i64`) that is not before a key, or with `behind` the first that is behind it; `to` where there
    /// is none. Their keys are not NULL.
    pub fn search(&self, cx: &mut Context<'_>, (from, to): (V, V), key: V, behind: bool) -> V {
        let array = self.array(cx);
        let low = cx.builder.var_of("low", from);
        let high = cx.builder.var_of("high", to);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (first, end) = (b.read(low), b.read(high));
        let done = b.ge(first, end);
        b.break_if(done);
        let (sum, one) = (b.add(first, end), b.i64(1));
        let middle = b.binary(BinaryOp::Shr, sum, one);
        let value = b.element(array, middle);
        let op = match (self.key.descending, behind) {
            (false, false) => CompareOp::Lt,
            (false, true) => CompareOp::Le,
            (true, false) => CompareOp::Gt,
            (true, true) => CompareOp::Ge,
        };
        let is_before = b.compare(op, value, key);
        let next = b.add(middle, one);
        let first = b.select(is_before, next, first);
        let end = b.select(is_before, end, middle);
        b.assign(low, first);
        b.assign(high, end);
        cx.end();
        cx.builder.read(low)
    }
}

/// The greatest distance that is an integer.
pub(super) fn integer_distance(distance: &Expr) -> i128 {
    match &distance.kind {
        ExprKind::Literal(Literal::Int(distance)) if distance.checked_add(1).is_some() => *distance,
        _ => 0,
    }
}
