//! Variances and deviations of integers and decimals by exact sums: of the values, and of their squares.
//!
//! DataFusion has them of floats, by Welford's recurrence, whose state is four words that change together: a lock on a GPU, for which all
//! threads of a group wait. Sums of integers are atomics, fit the tables of blocks, and come to the same whatever the order; that
//! `n Σx² − (Σx)²` is exact makes the result so but for the last division and root.

use kelpie_kir::Scalar;

use super::aggregate_cells::{CellPlan, Cells, moment_form};
use super::cell::{Contribution, ContributionForm, total_range};
use super::cells::CellOp;
use super::results::{MomentForm, Reading, ResultForm};
use crate::context::register_of;
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
pub(crate) struct ExactMoments {
    form: MomentForm,
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
    pub(crate) fn plan_exact_moments(&mut self, plan: &CellPlan<'_>, exact: ExactMoments) -> Reading {
        let ExactMoments { form, argument, nullable, bounds, scale } = exact;
        let most = bounds.min.abs().max(bounds.max.abs());
        let mut sum = |contribution, bounds: Range| {
            let total = total_range(bounds, plan.row_bound);
            let is_narrow = total.is_some_and(|total| register_of(total) != Scalar::I128);
            let op = if is_narrow { CellOp::Add } else { CellOp::AddWide };
            self.cell(op, contribution, plan.distinct, Some(bounds))
        };
        let value = sum(Contribution::of(ContributionForm::Value, &argument), bounds);
        let squares =
            sum(Contribution::of(ContributionForm::Square, &argument), Range { min: 0, max: most * most });
        let count = match (nullable, plan.distinct) {
            (false, None) => self.row_count(),
            _ => {
                let valid = Contribution::of(ContributionForm::Valid, &argument);
                self.cell(CellOp::Add, valid, plan.distinct, Some(Range::new(0, 1)))
            }
        };
        let form = ResultForm::ExactMoments { form, squares, scale };
        Reading { field: plan.aggregate.field.clone(), value, count, can_be_empty: true, form, range: None }
    }
}
