//! Variances and deviations of integers and decimals by exact sums: of the values, and of their squares.
//!
//! DataFusion has them of floats, by Welford's recurrence, whose state is four words that change together: a lock on a GPU, for which all
//! threads of a group wait. Sums of integers are atomics, fit the tables of blocks, and come to the same whatever the order; that
//! `n Σx² − (Σx)²` is exact makes the result so but for the last division and root.

use kelpie_kir::builder::V;
use kelpie_kir::{CompareOp, Scalar, UnaryOp};

use super::cells::CellOp;
use super::functions::{Cell, CellPlan, Cells, Contribution, addend, moment_form, total_range};
use super::reading::{Reading, ResultForm};
use crate::context::{Context, Lowered, Repr, register_of};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::plan::AggregateFunction;
use crate::types::{DataType, Range};

/// Values at most. Up to these a float has each integer, and a decimal's rounding to a float, which DataFusion begins with, is far below
/// its last digit.
const MOST: i128 = 1 << 40;
/// Bits of `n Σx²` at most.
const MOST_BITS: u32 = 126;

/// A variance or deviation that exact sums give.
pub(super) struct ExactMoments {
    /// (square root, sample).
    form: (bool, bool),
    /// What is turned into a float.
    argument: Expr,
    nullable: bool,
    bounds: Range,
    scale: u32,
}

impl ExactMoments {
    /// Of a function of an argument that is a float by a cast alone, where the bounds of what is cast, and of the rows, are such that all sums
    /// are exact.
    pub fn of(
        function: AggregateFunction,
        argument: &Expr,
        columns: &[ColumnInfo],
        row_bound: u64,
    ) -> Option<ExactMoments> {
        let form = moment_form(function)?;
        let ExprKind::Cast { input, .. } = &argument.kind else { return None };
        let scale = match &input.data_type {
            DataType::Decimal128 { scale, .. } => u32::try_from(*scale).ok()?,
            integer if integer.is_integer() => 0,
            _ => return None,
        };
        let info = column_of(input, columns);
        let bounds = info.range.or_else(|| info.data_type.full_range())?;
        let most = bounds.min.checked_abs()?.max(bounds.max.checked_abs()?);
        let bits = |value: u128| u128::BITS - value.leading_zeros();
        let needed = 2 * bits(row_bound.into()) + 2 * bits(most.unsigned_abs());
        let is_exact = argument.data_type == DataType::Float64 && most <= MOST && needed <= MOST_BITS;
        is_exact.then(|| ExactMoments {
            form,
            argument: (**input).clone(),
            nullable: argument.nullable || info.nullable,
            bounds,
            scale,
        })
    }
}

impl Cells {
    /// The cells of the sums, and of the number of rows that took part.
    pub(super) fn plan_exact_moments(&mut self, plan: &CellPlan<'_>, exact: ExactMoments) -> Reading {
        let ExactMoments { form, argument, nullable, bounds, scale } = exact;
        let most = bounds.min.abs().max(bounds.max.abs());
        let mut sum = |contribution, bounds: Range| {
            let total = total_range(bounds, plan.row_bound);
            let is_narrow = total.is_some_and(|total| register_of(total) != Scalar::I128);
            let op = if is_narrow { CellOp::Add } else { CellOp::AddWide };
            self.cell(op, contribution, plan.distinct, Some(bounds))
        };
        let value = sum(Contribution::Value(argument.clone()), bounds);
        let squares = sum(Contribution::Square(argument.clone()), Range { min: 0, max: most * most });
        let count = match (nullable, plan.distinct) {
            (false, None) => self.row_count(),
            _ => {
                let valid = Contribution::Valid(argument);
                self.cell(CellOp::Add, valid, plan.distinct, Some(Range::new(0, 1)))
            }
        };
        let form = ResultForm::ExactMoments { form, squares, scale };
        Reading::new(plan.aggregate, value, count, true, form, None)
    }
}

/// A value times itself, as the cell adds it.
pub(super) fn square(cx: &mut Context<'_>, cell: &Cell, value: V) -> V {
    let fits = cell.bounds.is_some_and(|bounds| bounds.max <= i64::MAX.into());
    let value = cx.builder.convert(value, if fits { Scalar::I64 } else { Scalar::I128 });
    let square = cx.builder.mul(value, value);
    addend(cx, cell.op, square)
}

/// The result from the number of rows (`u64`), the sum and the sum of squares (both `i128`): NULL where the divisor is not positive.
pub(super) fn result(
    cx: &mut Context<'_>,
    (count, sum, squares): (V, V, V),
    (root, sample): (bool, bool),
    scale: u32,
) -> Lowered {
    let b = &mut *cx.builder;
    let rows = b.convert(count, Scalar::I128);
    let (all, own) = (b.mul(rows, squares), b.mul(sum, sum));
    let distance = b.sub(all, own);
    let distance = b.convert(distance, Scalar::F64);
    let rows = b.convert(count, Scalar::F64);
    let (zero, one) = (b.f64(0.0), b.f64(1.0));
    let divisor = if sample { b.sub(rows, one) } else { rows };
    let valid = b.compare(CompareOp::Gt, divisor, zero);
    let distance = b.div(distance, rows);
    let unit = b.f64(10f64.powi(2 * scale as i32));
    let distance = b.div(distance, unit);
    let mut value = b.div(distance, divisor);
    if root {
        value = b.unary(UnaryOp::Sqrt, value);
    }
    Lowered { repr: Repr::Scalar(value), valid: Some(valid), range: None }
}
