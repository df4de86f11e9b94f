//! One zero: -0.0 and 0.0 are equal, wherever values are compared.
//!
//! `=` and `<`, groups and joins take the two for one value in DataFusion. Its sorts, windows, `count(DISTINCT …)`, IN over longer lists,
//! `CASE x WHEN`, NULLIF and comparisons of lists tell them apart, as Arrow's total order does: `ORDER BY f, i` then has all -0.0 before
//! all 0.0 whatever `i` is, and `f IN (0, …)` leaves rows out. There the rule puts [`OneZero`] around what is compared, which kernels
//! compute as `x + 0.0`. What a query shows keeps its sign.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::core::nullif::NullIfFunc;
use datafusion::logical_expr::expr::{ScalarFunction, Sort};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Case, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, binary_expr, lit,
};

use crate::function_methods::name_and_signature;

use super::map_expressions;
use super::nan::{Alike, has_floats, made_one};

/// The function that makes -0.0 the zero without a sign, also within lists and structs.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OneZero {
    signature: Signature,
}

impl OneZero {
    pub(crate) fn new() -> OneZero {
        OneZero { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OneZero {
    name_and_signature!("one_zero");

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(argument.clone()),
            _ => exec_err!("one_zero takes one argument, not {}", arguments.len()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(made_one(array, Alike::Zeros)?)),
            [ColumnarValue::Scalar(value)] => {
                let one = made_one(&value.to_array()?, Alike::Zeros)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
            }
            other => exec_err!("one_zero takes one argument, not {}", other.len()),
        }
    }
}

/// Puts [`OneZero`] around what is compared where DataFusion tells -0.0 from 0.0.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    if !schema.fields().iter().any(|field| has_floats(field.data_type())) && !computes_floats(&plan) {
        return Ok(Transformed::no(plan));
    }
    let is_sort = matches!(plan, LogicalPlan::Sort(_));
    let concerns = |expr: &Expr| Ok(is_sort || expr.exists(|part| Ok(compares(part)))?);
    map_expressions(plan, concerns, |expr| {
        let mended = expr.transform_up(|part| Mender { schema: &schema }.within(part))?;
        match is_sort {
            true => Mender { schema: &schema }.mend(mended.data),
            false => Ok(mended),
        }
    })
}

/// Whether an expression of a node could make a float of what is none.
fn computes_floats(plan: &LogicalPlan) -> bool {
    let makes = |part: &Expr| {
        Ok(match part {
            Expr::Cast(cast) => has_floats(cast.field.data_type()),
            Expr::TryCast(cast) => has_floats(cast.field.data_type()),
            Expr::Literal(value, _) => has_floats(&value.data_type()),
            Expr::ScalarFunction(_) | Expr::AggregateFunction(_) | Expr::WindowFunction(_) => true,
            _ => false,
        })
    };
    plan.expressions().iter().any(|expr| expr.exists(makes).unwrap_or(true))
}

/// Whether a part of an expression compares values in a way that tells zeros apart, if they are floats.
fn compares(part: &Expr) -> bool {
    match part {
        Expr::InList(_) | Expr::WindowFunction(_) => true,
        Expr::Case(case) => case.expr.is_some(),
        Expr::AggregateFunction(call) => call.params.distinct || !call.params.order_by.is_empty(),
        Expr::ScalarFunction(call) => is_null_if(call),
        Expr::BinaryExpr(binary) => is_comparison(binary.op),
        _ => false,
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_null_if(call: &ScalarFunction) -> bool {
    call.func.inner().as_ref().is::<NullIfFunc>()
}

struct Mender<'a> {
    schema: &'a DFSchema,
}

impl Mender<'_> {
    /// Whether the values of an expression have zeros that may be told apart.
    fn has_zeros(&self, expr: &Expr) -> bool {
        let is_one = match expr {
            Expr::ScalarFunction(call) => call.func.inner().as_ref().is::<OneZero>(),
            Expr::Literal(ScalarValue::Float64(value), _) => {
                value.is_none_or(|value| value != 0.0 || value.is_sign_positive())
            }
            Expr::Literal(ScalarValue::Float32(value), _) => {
                value.is_none_or(|value| value != 0.0 || value.is_sign_positive())
            }
            _ => false,
        };
        !is_one && expr.get_type(self.schema).is_ok_and(|data_type| has_floats(&data_type))
    }

    /// The expression with one zero.
    fn mend(&self, expr: Expr) -> Result<Transformed<Expr>> {
        Ok(match self.has_zeros(&expr) {
            true => Transformed::yes(one_zero(expr)),
            false => Transformed::no(expr),
        })
    }

    fn mend_all(&self, exprs: &mut [Expr]) -> bool {
        let mut mended = false;
        for expr in exprs.iter_mut().filter(|expr| self.has_zeros(expr)) {
            *expr = one_zero(std::mem::take(expr));
            mended = true;
        }
        mended
    }

    fn mend_order(&self, keys: &mut [Sort]) -> bool {
        keys.iter_mut().fold(false, |mended, key| self.mend_all(std::slice::from_mut(&mut key.expr)) | mended)
    }

    /// A part of an expression whose own parts are mended.
    fn within(&self, part: Expr) -> Result<Transformed<Expr>> {
        let (mended, part) = match part {
            Expr::InList(mut list) => {
                let mended =
                    self.mend_all(std::slice::from_mut(&mut list.expr)) | self.mend_all(&mut list.list);
                (mended, Expr::InList(list))
            }
            Expr::Case(mut case) => (self.mend_case(&mut case), Expr::Case(case)),
            Expr::WindowFunction(mut call) => {
                let params = &mut call.params;
                let keys = self.mend_all(&mut params.partition_by) | self.mend_order(&mut params.order_by);
                (keys | (params.distinct && self.mend_all(&mut params.args)), Expr::WindowFunction(call))
            }
            Expr::AggregateFunction(mut call) => {
                let params = &mut call.params;
                let keys = self.mend_order(&mut params.order_by);
                (keys | (params.distinct && self.mend_all(&mut params.args)), Expr::AggregateFunction(call))
            }
            Expr::ScalarFunction(call) if is_null_if(&call) => return self.null_if(call),
            Expr::BinaryExpr(mut binary) if is_comparison(binary.op) => {
                // Numbers are compared as they should be.
                let is_nested = |expr: &Expr| {
                    let data_type = expr.get_type(self.schema);
                    data_type.is_ok_and(|data_type| data_type.is_nested() && has_floats(&data_type))
                };
                let sides = [&mut binary.left, &mut binary.right];
                let mended = sides.into_iter().fold(false, |mended, side| {
                    (is_nested(side) && self.mend_all(std::slice::from_mut(side))) | mended
                });
                (mended, Expr::BinaryExpr(binary))
            }
            part => (false, part),
        };
        Ok(if mended { Transformed::yes(part) } else { Transformed::no(part) })
    }

    /// `CASE x WHEN y`, whose operands are compared.
    fn mend_case(&self, case: &mut Case) -> bool {
        let Some(base) = &mut case.expr else { return false };
        let mended = self.mend_all(std::slice::from_mut(base));
        case.when_then_expr
            .iter_mut()
            .fold(mended, |mended, (when, _)| self.mend_all(std::slice::from_mut(when)) | mended)
    }

    /// `nullif(a, b)` as `CASE WHEN a = b THEN NULL ELSE a END`, as its first argument is what it gives.
    fn null_if(&self, call: ScalarFunction) -> Result<Transformed<Expr>> {
        let [first, second] = call.args.as_slice() else {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        };
        let data_type = first.get_type(self.schema)?;
        if !data_type.is_floating() || first.is_volatile() {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        }
        let equal = binary_expr(first.clone(), Operator::Eq, second.clone());
        let null = lit(ScalarValue::try_new_null(&data_type)?);
        let when = vec![(Box::new(equal), Box::new(null))];
        Ok(Transformed::yes(Expr::Case(Case::new(None, when, Some(Box::new(first.clone()))))))
    }
}

fn one_zero(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(OneZero::new())));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr]))
}
