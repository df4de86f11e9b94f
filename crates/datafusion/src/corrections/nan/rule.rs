//! The rule that puts [`OneNan`] around expressions that may make another NaN.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, TableReference};
use datafusion::error::Result;
use datafusion::functions::{core, math};
use datafusion::functions_aggregate::{average, min_max, stddev, sum, variance};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, ScalarFunction};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, Projection, ScalarUDF};

use super::{OneNan, canonical_scalar};
use crate::aggregates::End;
use crate::corrections::map_expressions;
use crate::corrections::zeros::OneZero;

/// Puts [`OneNan`] around what may make another NaN, where somebody could tell: not within arithmetic, nor below sums. What aggregates and
/// window functions give is [`Results`]' to mend.
pub(in crate::corrections) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let mend = |expr| Rewriter { schema: &schema }.rewrite(expr, Around::Anything);
    map_expressions(plan, may_make_a_nan, mend)
}

/// Whether a part of an expression could be one that makes a NaN, whatever its type. Most expressions are columns and comparisons.
fn may_make_a_nan(expr: &Expr) -> Result<bool> {
    expr.exists(|part| {
        Ok(match part {
            Expr::BinaryExpr(binary) => is_arithmetic(binary.op),
            Expr::Literal(value, _) => canonical_scalar(value).is_some(),
            Expr::Negative(_) | Expr::ScalarFunction(_) | Expr::HigherOrderFunction(_) => true,
            Expr::Cast(cast) => cast.field.data_type().is_floating(),
            Expr::TryCast(cast) => cast.field.data_type().is_floating(),
            _ => false,
        })
    })
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo)
}

/// What a part of an expression stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    /// Something that could tell NaNs apart.
    Anything,
    /// Arithmetic of floats, or a sum of them: every NaN is as good as another.
    Floats,
    /// Arithmetic of something else.
    Others,
}

struct Rewriter<'a> {
    schema: &'a DFSchema,
}

impl Rewriter<'_> {
    fn is_float(&self, expr: &Expr) -> bool {
        expr.get_type(self.schema).is_ok_and(|data_type| data_type.is_floating())
    }

    fn rewrite(&self, expr: Expr, around: Around) -> Result<Transformed<Expr>> {
        if let Expr::Literal(value, metadata) = &expr {
            return Ok(match canonical_scalar(value) {
                Some(value) => Transformed::yes(Expr::Literal(value, metadata.clone())),
                None => Transformed::no(expr),
            });
        }
        let inside = self.inside(&expr, around);
        let makes = match &expr {
            Expr::BinaryExpr(_) | Expr::Negative(_) => around == Around::Anything && inside == Around::Floats,
            Expr::ScalarFunction(call) => !hands_on(call) && around != Around::Floats && self.is_float(&expr),
            Expr::HigherOrderFunction(_) => around != Around::Floats && self.is_float(&expr),
            Expr::Cast(cast) => {
                around != Around::Floats && self.gives_others(&cast.expr, cast.field.data_type())
            }
            Expr::TryCast(cast) => {
                around != Around::Floats && self.gives_others(&cast.expr, cast.field.data_type())
            }
            _ => false,
        };
        let made = expr.map_children(|child| self.rewrite(child, inside))?;
        Ok(match makes {
            true => Transformed::yes(one_nan(made.data)),
            false => made,
        })
    }

    /// What the parts of an expression stand in.
    fn inside(&self, expr: &Expr, around: Around) -> Around {
        match expr {
            Expr::BinaryExpr(binary) if !is_arithmetic(binary.op) => Around::Anything,
            Expr::BinaryExpr(_) | Expr::Negative(_) => match around {
                // The parts of arithmetic have its type: it is asked for once.
                Around::Anything if self.is_float(expr) => Around::Floats,
                Around::Anything => Around::Others,
                around => around,
            },
            Expr::AggregateFunction(call) if adds_up(call) => Around::Floats,
            Expr::IsNull(_) | Expr::IsNotNull(_) => Around::Floats,
            _ => Around::Anything,
        }
    }

    /// Whether a cast to a type may give another NaN: of texts, which may have a sign.
    fn gives_others(&self, from: &Expr, to: &DataType) -> bool {
        let from = || from.get_type(self.schema);
        to.is_floating() && from().is_ok_and(|from| !from.is_floating() && !from.is_numeric())
    }
}

fn one_nan(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(OneNan::new())));
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr]))
}

/// Whether a function gives one of its arguments, or one without its sign.
fn hands_on(call: &ScalarFunction) -> bool {
    let implementation = call.func.inner().as_ref();
    implementation.is::<OneNan>()
        || implementation.is::<OneZero>()
        || implementation.is::<core::coalesce::CoalesceFunc>()
        || implementation.is::<core::nullif::NullIfFunc>()
        || implementation.is::<core::greatest::GreatestFunc>()
        || implementation.is::<core::least::LeastFunc>()
        || implementation.is::<core::nvl::NVLFunc>()
        || implementation.is::<core::nvl2::NVL2Func>()
        || implementation.is::<math::abs::AbsFunc>()
}

/// Whether an aggregate is one of numbers that are added up, to which every NaN is as good as another.
fn adds_up(call: &AggregateFunction) -> bool {
    let AggregateFunctionParams { distinct, filter, order_by, .. } = &call.params;
    let implementation = call.func.inner().as_ref();
    !distinct
        && filter.is_none()
        && order_by.is_empty()
        && (implementation.is::<sum::Sum>()
            || implementation.is::<average::Avg>()
            || implementation.is::<variance::VarianceSample>()
            || implementation.is::<variance::VariancePopulation>()
            || implementation.is::<stddev::Stddev>()
            || implementation.is::<stddev::StddevPop>())
}

/// Which columns of a node are results of aggregates and window functions that may be another NaN. They are made the one above the node, so
/// that has to come after all other corrections, which look at the node itself; and they are told by functions that these replace.
pub(in crate::corrections) struct Results {
    /// Whether a column is one, of the last columns.
    makes: Vec<bool>,
}

impl Results {
    /// Those of a node before it is mended.
    pub fn of(plan: &LogicalPlan) -> Results {
        let computed = match plan {
            LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.as_slice(),
            LogicalPlan::Window(window) => window.window_expr.as_slice(),
            _ => &[],
        };
        Results { makes: computed.iter().map(computes).collect() }
    }

    /// The node with the one NaN in its results.
    pub fn mended(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let schema = Arc::clone(plan.schema());
        let first = schema.fields().len().saturating_sub(self.makes.len());
        let makes = |column: usize| {
            let makes = column.checked_sub(first).and_then(|place| self.makes.get(place)).copied();
            schema.field(column).data_type().is_floating() && makes.unwrap_or(false)
        };
        let makes: Vec<bool> = (0..schema.fields().len()).map(makes).collect();
        if !makes.contains(&true) {
            return Ok(Transformed::no(plan));
        }
        let columns = schema.iter().zip(makes).map(|((qualifier, field), makes)| {
            let column = Expr::from((qualifier, field));
            match makes {
                true => one_nan(column)
                    .alias_qualified(qualifier.cloned() as Option<TableReference>, field.name()),
                false => column,
            }
        });
        let projection = Projection::try_new(columns.collect(), Arc::new(plan))?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    }
}

/// Whether what an aggregate or a window function gives is computed, and not one of the values that it was given.
fn computes(expr: &Expr) -> bool {
    let of_aggregate = |implementation: &dyn datafusion::logical_expr::AggregateUDFImpl| {
        !(implementation.is::<min_max::Min>()
            || implementation.is::<min_max::Max>()
            || matches!(End::of(implementation), Some(End::First | End::Last)))
    };
    match expr {
        Expr::Alias(alias) => computes(&alias.expr),
        Expr::AggregateFunction(call) => of_aggregate(call.func.inner().as_ref()),
        Expr::WindowFunction(call) => {
            let WindowFunction { fun, .. } = call.as_ref();
            match fun {
                WindowFunctionDefinition::AggregateUDF(function) => of_aggregate(function.inner().as_ref()),
                // LAG and the like give values that they were given, ranks none that is NaN.
                WindowFunctionDefinition::WindowUDF(_) => false,
            }
        }
        _ => false,
    }
}
