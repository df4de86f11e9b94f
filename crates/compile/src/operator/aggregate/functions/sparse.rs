//! Contributions of nothing, for which no atomic is issued.
//!
//! A contribution of zero bits changes no cell: that of NULL, of a row that an aggregate leaves out (`FILTER`), of a value that is not new
//! among those that count once. Where its atomic was issued all the same, it would be as dear as any other: threads would wait for
//! each other at an address that nobody changes. So what a cell is given is compared with zero, where what it is made of shows that
//! it may often be. A value that seldom is zero is added without: the comparison would cost more than it spares.

use kelpie_kir::Scope;
use kelpie_kir::builder::V;

use super::cell::{Cell, ContributionForm};
use super::cells::{combine_memory, is_used};
use crate::context::Context;
use crate::expr::{ArithmeticOp, Expr, ExprKind, Function};
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::types::{DataType, Literal};

/// Whether rows with these columns often contribute nothing to a cell: their arguments are NULL, values are not new, or the expression
/// has zeros in its text.
pub(crate) fn is_sparse(cell: &Cell, columns: &[ColumnInfo]) -> bool {
    let has_zeros = |argument: &Expr| match cell.contribution.form {
        ContributionForm::Value | ContributionForm::Square | ContributionForm::Bits { complement: false } => {
            is_often_zero(argument)
        }
        // Few values are so far from zero.
        ContributionForm::UpperBits { .. } => true,
        _ => false,
    };
    let is_left_out = |argument: &Expr| argument.nullable && column_of(argument, columns).nullable;
    let arguments = &cell.contribution.arguments;
    cell.distinct.is_some() || arguments.iter().any(|argument| is_left_out(argument) || has_zeros(argument))
}

/// Whether an expression has zero as one of its results, or is a number made of a boolean.
fn is_often_zero(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Case { branches, otherwise } => {
            let results = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
            results.into_iter().any(|result| is_zero(result) || is_often_zero(result))
        }
        ExprKind::Function(Function::Coalesce, arguments) => {
            arguments.iter().any(|argument| is_zero(argument) || is_often_zero(argument))
        }
        ExprKind::Cast { input, .. } => input.data_type == DataType::Boolean || is_often_zero(input),
        ExprKind::Negate(input) => is_often_zero(input),
        ExprKind::Arithmetic(ArithmeticOp::Multiply | ArithmeticOp::MultiplyExact, left, right) => {
            is_often_zero(left) || is_often_zero(right)
        }
        ExprKind::Arithmetic(ArithmeticOp::Divide, left, _) => is_often_zero(left),
        _ => false,
    }
}

fn is_zero(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(value)) => *value == 0,
        ExprKind::Literal(Literal::Float(value)) => *value == 0.0,
        ExprKind::Cast { input, .. } => is_zero(input),
        _ => false,
    }
}

/// Emits what adds a contribution to a cell that all of `scope` add to, which is left out where the cell is sparse and the contribution
/// nothing.
pub(crate) fn unless_nothing(
    cx: &mut Context<'_>,
    (cell, scope): (&Cell, Scope),
    value: &[V],
    add: impl FnOnce(&mut Context<'_>),
) {
    // In a worker's own memory there is no atomic to leave out, and what is under a lock looks for itself.
    let is_own = scope == Scope::Block && cx.shape.block_threads == 1;
    let looks = cell.is_sparse && !is_own && !cell.op.is_locked();
    match if looks { is_used(cx, value) } else { None } {
        None => add(cx),
        Some(used) => {
            cx.begin_if(used);
            add(cx);
            cx.end();
        }
    }
}

/// Adds a contribution to a cell in memory; `pointer` addresses its first word as `u64`.
pub(crate) fn update_cell(cx: &mut Context<'_>, cell: &Cell, pointer: V, value: &[V], scope: Scope) {
    unless_nothing(cx, (cell, scope), value, |cx| combine_memory(cx, cell.op, pointer, value, scope));
}
