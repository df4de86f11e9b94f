//! `substr(s, n, l)` as DuckDB has it: a beginning below zero counts from the end of the text, and a length below zero goes towards its beginning.
//! Where both are written as numbers from zero on, the call stays DataFusion's own.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
    Value,
};

use crate::syntax::{call, number};

/// What a call of `substr` or `substring` is in other words.
pub(super) fn of_call(name: &str, function: &Function) -> Option<Expr> {
    if name != "substr" && name != "substring" {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let value = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    let values = list.args.iter().map(value).collect::<Option<Vec<_>>>()?;
    match <[Expr; 2]>::try_from(values) {
        Ok([text, start]) => written_out(text, start, None),
        Err(values) => {
            let [text, start, length] = <[Expr; 3]>::try_from(values).ok()?;
            written_out(text, start, Some(length))
        }
    }
}

/// What `substring(s FROM n FOR l)` is in other words.
pub(super) fn of_expr(expr: &Expr) -> Option<Expr> {
    let Expr::Substring { expr: text, substring_from: Some(start), substring_for, .. } = expr else {
        return None;
    };
    written_out(text.as_ref().clone(), start.as_ref().clone(), substring_for.as_deref().cloned())
}

fn written_out(text: Expr, start: Expr, length: Option<Expr>) -> Option<Expr> {
    let is_plain = |number: &Expr| matches!(sign(number), Some(Sign::NotNegative));
    // What is no number at all gets the message that it gets otherwise.
    if is_text(&start) || length.as_ref().is_some_and(is_text) {
        return None;
    }
    if is_plain(&start) && length.as_ref().is_none_or(is_plain) {
        return None;
    }
    let zero = || number("0");
    let letters = || call("character_length", vec![text.clone()]);
    // The first letter, counted from 1.
    let from_end = || {
        let behind = number("1");
        both(both(letters(), BinaryOperator::Plus, behind), BinaryOperator::Plus, start.clone())
    };
    let first = match sign(&start) {
        Some(Sign::NotNegative) => start.clone(),
        Some(Sign::Negative) => from_end(),
        None => below_zero(start.clone(), from_end(), start.clone()),
    };
    let Some(length) = length else { return Some(call("substr", vec![text, first])) };
    let earlier = || both(first.clone(), BinaryOperator::Plus, length.clone());
    let (first, letters) = match sign(&length) {
        Some(Sign::NotNegative) => (first, length),
        Some(Sign::Negative) => (earlier(), call("abs", vec![length])),
        None => {
            let turned = both(zero(), BinaryOperator::Minus, length.clone());
            (below_zero(length.clone(), earlier(), first.clone()), below_zero(length.clone(), turned, length))
        }
    };
    Some(call("substr", vec![text, first, letters]))
}

/// What is known of a number before the statement runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Negative,
    NotNegative,
}

/// Of a number that is written out.
fn sign(number: &Expr) -> Option<Sign> {
    match number {
        Expr::Value(value) => matches!(value.value, Value::Number(..)).then_some(Sign::NotNegative),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            (sign(expr) == Some(Sign::NotNegative)).then_some(Sign::Negative)
        }
        Expr::Nested(inner) => sign(inner),
        _ => None,
    }
}

fn is_text(value: &Expr) -> bool {
    matches!(value, Expr::Value(value) if value.value.clone().into_string().is_some())
}

fn both(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let (left, right) = (Expr::Nested(Box::new(left)), Expr::Nested(Box::new(right)));
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }))
}

fn below_zero(count: Expr, then: Expr, otherwise: Expr) -> Expr {
    let zero = number("0");
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition: both(count, BinaryOperator::Lt, zero), result: then }],
        else_result: Some(Box::new(otherwise)),
    }
}
