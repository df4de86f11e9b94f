//! Integers and their sums that leave their type: an error, where DataFusion's wrap around without a word.
//!
//! `+`, `-`, `*` and negation become [`Exact`] where the types of the operands do not exclude that the result is beyond its own, and
//! `sum` becomes [`ExactSum`]. Both are compiled, and checked there only where what is known of the columns' values does not exclude it
//! either: mostly nothing is checked.

mod arithmetic;
mod bounds;
mod distinct;
mod sums;

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::{Sum, sum_udaf};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{AggregateUDF, BinaryExpr, Expr, ExprSchemable, LogicalPlan};

pub(crate) use arithmetic::{Exact, ExactOp};
pub(crate) use sums::ExactSum;

/// A node whose integers stay within their types.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // How many rows are kept is a constant, which is looked at as it is written.
    if let LogicalPlan::Limit(_) = plan {
        return Ok(Transformed::no(plan));
    }
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let columns = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &columns)?);
    }
    let concerns = |expr: &Expr| Ok(expr.exists(|expr| Ok(may_concern(expr)))? && !is_large(expr)?);
    super::map_expressions(plan, concerns, |expr| expr.transform_up(|expr| mended(expr, &schema)))
}

/// Whether an expression has so many operations that planning with functions in their place would take long: DataFusion asks each for
/// its type again and again. These wrap.
fn is_large(expr: &Expr) -> Result<bool> {
    const MOST: usize = 64;
    let mut operations = 0;
    expr.apply(|expr| {
        operations += usize::from(may_concern(expr));
        Ok(if operations > MOST { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(operations > MOST)
}

fn may_concern(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => ExactOp::of(*op).is_some(),
        Expr::Negative(_) => true,
        Expr::AggregateFunction(call) => is_sum(&call.func),
        Expr::WindowFunction(call) => summed_window(call),
        _ => false,
    }
}

fn is_sum(function: &AggregateUDF) -> bool {
    function.inner().as_ref().is::<Sum>()
}

fn summed_window(call: &WindowFunction) -> bool {
    matches!(&call.fun, WindowFunctionDefinition::AggregateUDF(function) if is_sum(function))
}

fn mended(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let made = match ExactOp::of(op) {
                Some(exact) if may_leave_type(exact, &left, &right, schema) => exact.call(*left, *right),
                _ => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))),
            };
            Ok(Transformed::yes(made))
        }
        Expr::Negative(of) => match zero_for(&of, schema) {
            Some(zero) => Ok(Transformed::yes(ExactOp::Subtract.call(Expr::Literal(zero, None), *of))),
            None => Ok(Transformed::no(Expr::Negative(of))),
        },
        Expr::AggregateFunction(call) if is_sum(&call.func) => {
            if !may_sum_leave_type(&call.params.args, schema) {
                return Ok(Transformed::no(Expr::AggregateFunction(call)));
            }
            let AggregateFunction { params, .. } = call;
            Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction { func: exact_sum(), params })))
        }
        Expr::WindowFunction(mut call)
            if summed_window(&call) && may_sum_leave_type(&call.params.args, schema) =>
        {
            call.fun = WindowFunctionDefinition::AggregateUDF(exact_sum());
            Ok(Transformed::yes(Expr::WindowFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// One for all: plans that are kept are found by the functions that they call.
fn exact_sum() -> Arc<AggregateUDF> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::new_from_impl(ExactSum::new(sum_udaf()))));
    Arc::clone(&FUNCTION)
}

/// Whether the result of an operation on integers may be beyond their type, by what the types of its parts tell.
fn may_leave_type(op: ExactOp, left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
    let (Ok(own), Ok(other)) = (left.get_type(schema), right.get_type(schema)) else { return false };
    if own != other || !own.is_integer() {
        return false;
    }
    let (Some(limits), Some(a), Some(b)) =
        (bounds::of_type(&own), bounds::of(left, schema), bounds::of(right, schema))
    else {
        return true;
    };
    op.bounds(a, b).is_none_or(|result| result.0 < limits.0 || result.1 > limits.1)
}

/// The zero that an integer is subtracted from to negate it, where its type may not hold the result.
fn zero_for(of: &Expr, schema: &DFSchema) -> Option<ScalarValue> {
    let data_type = of.get_type(schema).ok().filter(DataType::is_signed_integer)?;
    let lowest = bounds::of_type(&data_type)?.0;
    let (least, _) = bounds::of(of, schema)?;
    (least <= lowest).then(|| ScalarValue::new_zero(&data_type).ok()).flatten()
}

/// Whether a sum may be beyond its type: one of up to 2^31 rows, where the types of its parts tell bounds.
fn may_sum_leave_type(arguments: &[Expr], schema: &DFSchema) -> bool {
    /// The digits that the type of a sum of decimals has more than its argument's.
    const MORE_DIGITS: u8 = 10;
    let [argument] = arguments else { return false };
    match argument.get_type(schema) {
        Ok(DataType::Decimal128(precision, _)) => precision > 38 - MORE_DIGITS,
        Ok(DataType::Int64 | DataType::UInt64) => {
            const ROWS: i128 = 1 << 31;
            let within = |(least, most): (i128, i128)| {
                least.saturating_mul(ROWS) >= i64::MIN.into() && most.saturating_mul(ROWS) <= i64::MAX.into()
            };
            !bounds::of(argument, schema).is_some_and(within)
        }
        _ => false,
    }
}
