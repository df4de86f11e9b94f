//! Aggregates.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal as LiteralExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan};
use kelpie_compile::types::{DataType, Literal};

use super::{Translator, pass_through};
use crate::types;

/// An aggregate: in one step, or the final step with its partial step below.
pub(super) fn aggregate(translator: &mut Translator, node: &AggregateExec) -> Option<Plan> {
    use AggregateMode::*;
    let first = match node.mode() {
        Single | SinglePartitioned => node,
        Final | FinalPartitioned => match partial(node) {
            Some(partial) => partial,
            None => {
                translator.plan(node.input());
                return translator.refuse("AggregateExec: a final step without its partial step");
            }
        },
        Partial | PartialReduce => {
            translator.plan(node.input());
            return translator.refuse("AggregateExec: a partial step alone is not compiled");
        }
    };
    let input = translator.plan(first.input());
    let group = first.group_expr();
    if group.has_grouping_set() || group.groups().len() > 1 {
        translator.refuse::<()>("AggregateExec: grouping sets are not compiled");
        return None;
    }
    let schema = first.input().schema();
    let keys = translator.exprs(&schema, "AggregateExec").exprs(group.expr().iter().map(|(key, _)| key));
    let output = node.schema();
    let mut aggregates = Vec::new();
    for (i, function) in first.aggr_expr().iter().enumerate() {
        let filter = first.filter_expr().get(i).and_then(Option::as_ref);
        let field = output.fields().get(group.expr().len() + i).map(|field| types::field(field));
        let translated = one(translator, &schema, function, filter);
        match (translated, field.flatten()) {
            (Some((name, argument)), Some(field)) => {
                let distinct = function.is_distinct();
                aggregates.push(Some(Aggregate { function: name, argument, distinct, field }));
            }
            (Some(_), None) => {
                let reason = format!("AggregateExec: {}: the result's type is not compiled", function.name());
                aggregates.push(translator.refuse(&reason));
            }
            (None, _) => aggregates.push(None),
        }
    }
    let names = output.fields().iter().map(|field| field.name().clone()).collect();
    let aggregates = aggregates.into_iter().collect::<Option<Vec<_>>>();
    Some(Plan::Aggregate { input: Box::new(input?), keys: keys?, aggregates: aggregates?, names })
}

/// The partial step below a final one; rows may be repartitioned in between.
fn partial(node: &AggregateExec) -> Option<&AggregateExec> {
    let mut below = node.input();
    loop {
        if let Some(aggregate) = below.downcast_ref::<AggregateExec>() {
            return (*aggregate.mode() == AggregateMode::Partial).then_some(aggregate);
        }
        below = pass_through(below)?;
    }
}

fn one(
    translator: &mut Translator,
    schema: &Schema,
    call: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
) -> Option<(AggregateFunction, Option<Expr>)> {
    let refuse = |translator: &mut Translator, why: &str| {
        translator.refuse(&format!("AggregateExec: {}: {why}", call.name()))
    };
    let Some(function) = function(call.fun().name()) else {
        return refuse(translator, &format!("the aggregate function {} is not compiled", call.fun().name()));
    };
    if !call.order_bys().is_empty() {
        return refuse(translator, "ORDER BY inside an aggregate is not compiled");
    }
    let expressions = call.expressions();
    let [argument] = expressions.as_slice() else {
        return refuse(translator, "one argument is expected");
    };
    // `count(*)` arrives as the count of a constant.
    let counts_rows = function == AggregateFunction::Count
        && argument.downcast_ref::<LiteralExpr>().is_some_and(|literal| !literal.value().is_null());
    if counts_rows && filter.is_none() {
        return Some((function, None));
    }
    let mut exprs = translator.exprs(schema, "AggregateExec");
    let argument = match counts_rows {
        true => Some(Expr::literal(Literal::Boolean(true), DataType::Boolean)),
        false => exprs.expr(argument),
    };
    let argument = match filter {
        Some(filter) => filtered(exprs.expr(filter), argument)?,
        None => argument?,
    };
    Some((function, Some(argument)))
}

/// The function of a name.
fn function(name: &str) -> Option<AggregateFunction> {
    use AggregateFunction::*;
    Some(match name {
        "count" => Count,
        "sum" => Sum,
        // false < true
        "min" | "bool_and" => Min,
        "max" | "bool_or" => Max,
        "avg" | "mean" => Avg,
        "bit_and" => BitAnd,
        "bit_or" => BitOr,
        "bit_xor" => BitXor,
        "var" => VarSample,
        "var_pop" => VarPopulation,
        "stddev" => StddevSample,
        "stddev_pop" => StddevPopulation,
        _ => return None,
    })
}

/// `f(x) FILTER (WHERE p)` is `f(CASE WHEN p THEN x END)`, as every aggregate skips NULL.
fn filtered(filter: Option<Expr>, argument: Option<Expr>) -> Option<Expr> {
    let (filter, argument) = (filter?, argument?);
    Some(Expr {
        data_type: argument.data_type.clone(),
        nullable: true,
        kind: ExprKind::Case { branches: vec![(filter, argument)], otherwise: None },
    })
}
