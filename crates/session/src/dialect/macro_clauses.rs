//! FILTER, OVER, ORDER BY and DISTINCT of a call of a macro: they are those of the aggregates that it is made of.

use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
};

use crate::syntax::name_of;
/// What macros call that takes FILTER and OVER.
const AGGREGATES: [&str; 13] = [
    "array_agg", "stddev_pop", "first_value", "last_value", "count", "bool_and", "var_pop", "var_samp",
    "sum", "avg", "string_agg", "approx_distinct", "approx_percentile_cont",
];

/// An argument without what macros put around it and that is one value for each of the argument: parentheses and `to_json`.
fn plain(arg: &FunctionArg) -> Option<&Expr> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else { return None };
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::Nested(inner) => inner,
            Expr::Function(function) if name_of(function).as_deref() == Some("to_json") => {
                match &function.args {
                    FunctionArguments::List(list) => return list.args.first().and_then(plain),
                    _ => return None,
                }
            }
            expr => return Some(expr),
        };
    }
}

/// FILTER, OVER and the like of a call belong to the function that its macro calls.
pub(super) fn with_clauses(mut body: Expr, has_aggregates: bool, call: &Function) -> Result<Expr> {
    let name = &call.name;
    let (is_distinct, has_clauses) = match &call.args {
        FunctionArguments::List(list) => (list.duplicate_treatment.is_some(), !list.clauses.is_empty()),
        _ => (false, false),
    };
    let is_plain = call.filter.is_none() && call.over.is_none() && call.null_treatment.is_none();
    if is_plain && !is_distinct && !has_clauses && call.within_group.is_empty() {
        return Ok(match body {
            Expr::Function(_) | Expr::Cast { .. } | Expr::Case { .. } => body,
            other => Expr::Nested(Box::new(other)),
        });
    }
    let refused = |what: &str| plan_datafusion_err!("{name} takes no {what}");
    let mut aggregates = Vec::new();
    find_aggregates(&mut body, &mut aggregates);
    if aggregates.is_empty() || !has_aggregates {
        return Err(refused("FILTER, OVER, DISTINCT or ORDER BY"));
    }
    if !call.within_group.is_empty() {
        return Err(refused("WITHIN GROUP"));
    }
    for function in aggregates {
        if let (FunctionArguments::List(own), FunctionArguments::List(given)) =
            (&mut function.args, &call.args)
            && (is_distinct || has_clauses)
        {
            let is_same = given.args.len() <= own.args.len()
                && given.args.iter().zip(&own.args).all(|(given, own)| plain(given) == plain(own));
            if is_distinct && !is_same || !own.clauses.is_empty() {
                return Err(refused("DISTINCT or ORDER BY"));
            }
            own.duplicate_treatment = given.duplicate_treatment;
            own.clauses.clone_from(&given.clauses);
        }
        function.filter = match (function.filter.take(), call.filter.clone()) {
            (Some(own), Some(given)) => Some(Box::new(Expr::BinaryOp {
                left: Box::new(Expr::Nested(own)),
                op: BinaryOperator::And,
                right: Box::new(Expr::Nested(given)),
            })),
            (own, given) => own.or(given),
        };
        if call.over.is_some() {
            function.over.clone_from(&call.over);
        }
        if call.null_treatment.is_some() {
            function.null_treatment = call.null_treatment;
        }
    }
    Ok(match body {
        Expr::Function(_) | Expr::Cast { .. } | Expr::Case { .. } => body,
        other => Expr::Nested(Box::new(other)),
    })
}

/// Whether a macro's expression, before its parameters have values, is made of aggregates.
pub(super) fn has_aggregates(body: &mut Expr) -> bool {
    let mut found = Vec::new();
    find_aggregates(body, &mut found);
    !found.is_empty()
}

/// The aggregates that a macro's expression is made of; what is within them is the caller's.
fn find_aggregates<'a>(expr: &'a mut Expr, found: &mut Vec<&'a mut Function>) {
    match expr {
        Expr::Function(function) => {
            if name_of(function).is_some_and(|name| AGGREGATES.contains(&name.as_str())) {
                return found.push(function);
            }
            let FunctionArguments::List(list) = &mut function.args else { return };
            for arg in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = arg {
                    find_aggregates(value, found);
                }
            }
        }
        Expr::BinaryOp { left, right, .. } => {
            find_aggregates(left, found);
            find_aggregates(right, found);
        }
        Expr::Cast { expr, .. } | Expr::Nested(expr) => find_aggregates(expr, found),
        Expr::Case { conditions, else_result, .. } => {
            for branch in conditions {
                find_aggregates(&mut branch.condition, found);
                find_aggregates(&mut branch.result, found);
            }
            if let Some(rest) = else_result {
                find_aggregates(rest, found);
            }
        }
        _ => {}
    }
}
