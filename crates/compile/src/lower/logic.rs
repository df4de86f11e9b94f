//! AND, OR, NOT and NULL tests in Kleene's three-valued logic.
//!
//! A right operand that can fail or is expensive is evaluated in a block, where the left one does not decide.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::dictionary;
use super::facts::is_lazy;
use super::value::{boolean, both, lower_scalar, scalar, unsupported};
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::{Expr, ExprKind};

/// AND or OR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connective {
    And,
    Or,
}

#[derive(Debug, Clone, Copy)]
struct Bool {
    value: V,
    valid: Option<V>,
}

/// The operands of a chain of one connective, left to right: it may be long, so no recursion to the left.
pub(super) fn operands(connective: Connective, expr: &Expr) -> Vec<&Expr> {
    let mut found = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        match (&expr.kind, connective) {
            (ExprKind::And(a, b), Connective::And) | (ExprKind::Or(a, b), Connective::Or) => {
                open.push(b);
                open.push(a);
            }
            _ => found.push(expr),
        }
    }
    found
}

/// Lowers a chain of ANDs or of ORs.
pub(super) fn lower(
    cx: &mut Context<'_>,
    connective: Connective,
    expr: &Expr,
) -> Result<Lowered, Unsupported> {
    let mut result: Option<Bool> = None;
    for operand in operands(connective, expr) {
        result = Some(match result {
            None => operand_value(cx, operand)?,
            Some(left) if is_lazy(cx, operand) => lazy(cx, connective, left, operand)?,
            Some(left) => {
                let right = operand_value(cx, operand)?;
                combine(cx, connective, left, right)
            }
        });
    }
    match result {
        Some(Bool { value, valid }) => Ok(boolean(value, valid)),
        None => Ok(boolean(cx.builder.bool(connective == Connective::And), None)),
    }
}

fn operand_value(cx: &mut Context<'_>, expr: &Expr) -> Result<Bool, Unsupported> {
    let (value, valid) = lower_scalar(cx, expr)?;
    Ok(Bool { value, valid })
}

/// AND is false where either is (known) false, else NULL where either is NULL; OR likewise with true.
fn combine(cx: &mut Context<'_>, connective: Connective, a: Bool, b: Bool) -> Bool {
    let (left, right) = (neutral_if_null(cx, connective, a), neutral_if_null(cx, connective, b));
    let value = match connective {
        Connective::And => cx.builder.and(left, right),
        Connective::Or => cx.builder.or(left, right),
    };
    let valid = both(cx, a.valid, b.valid).map(|valid| {
        let decided = decides(cx, connective, value);
        cx.builder.or(valid, decided)
    });
    Bool { value, valid }
}

/// The value, or what does not decide the connective where it is NULL.
fn neutral_if_null(cx: &mut Context<'_>, connective: Connective, a: Bool) -> V {
    match (a.valid, connective) {
        (None, _) => a.value,
        (Some(valid), Connective::Or) => cx.builder.and(a.value, valid),
        (Some(valid), Connective::And) => {
            let null = cx.builder.not(valid);
            cx.builder.or(a.value, null)
        }
    }
}

/// Whether a value that is neutral where it is NULL decides the connective.
fn decides(cx: &mut Context<'_>, connective: Connective, value: V) -> V {
    match connective {
        Connective::And => cx.builder.not(value),
        Connective::Or => value,
    }
}

fn lazy(cx: &mut Context<'_>, connective: Connective, left: Bool, right: &Expr) -> Result<Bool, Unsupported> {
    let value = cx.builder.var_of("logic", left.value);
    let valid = cx.builder.var("valid", Scalar::Bool);
    let left_valid = match left.valid {
        Some(valid) => valid,
        None => cx.builder.bool(true),
    };
    cx.builder.assign(valid, left_valid);
    let known = neutral_if_null(cx, connective, left);
    let decided = decides(cx, connective, known);
    let open = cx.builder.not(decided);
    cx.begin_if(open);
    let right = operand_value(cx, right);
    let combined = right.map(|right| {
        let combined = combine(cx, connective, left, right);
        cx.builder.assign(value, combined.value);
        if let Some(combined) = combined.valid {
            cx.builder.assign(valid, combined);
        }
        combined.valid.is_some()
    });
    cx.end();
    let nullable = combined?;
    let value = cx.builder.read(value);
    let valid = nullable.then(|| cx.builder.read(valid));
    Ok(Bool { value, valid })
}

/// Lowers NOT.
pub(super) fn not(cx: &mut Context<'_>, expr: &Expr) -> Result<Lowered, Unsupported> {
    let (value, valid) = lower_scalar(cx, expr)?;
    Ok(boolean(cx.builder.not(value), valid))
}

/// Lowers IS [NOT] NULL.
pub(super) fn is_null(cx: &mut Context<'_>, expr: &Expr, negated: bool) -> Result<Lowered, Unsupported> {
    let valid = match cx.lower(expr)?.valid {
        Some(valid) => valid,
        None => cx.builder.bool(true),
    };
    Ok(boolean(if negated { valid } else { cx.builder.not(valid) }, None))
}

/// Neither FALSE nor NULL.
fn is_true(cx: &mut Context<'_>, condition: &Lowered, expr: &Expr) -> Result<V, Unsupported> {
    let value = scalar(condition)?;
    if cx.builder.scalar(value) != Scalar::Bool {
        return unsupported(format!("a condition of type {}", expr.data_type));
    }
    Ok(match condition.valid {
        Some(valid) => cx.builder.and(value, valid),
        None => value,
    })
}

/// `bool`: the condition is TRUE (neither FALSE nor NULL), as WHERE needs it.
pub fn lower_condition(cx: &mut Context<'_>, expr: &Expr) -> Result<V, Unsupported> {
    if let Some(value) = dictionary::lower(cx, expr)? {
        return is_true(cx, &value, expr);
    }
    let connective = match expr.kind {
        ExprKind::And(..) => Connective::And,
        ExprKind::Or(..) => Connective::Or,
        _ => {
            let value = cx.lower(expr)?;
            return is_true(cx, &value, expr);
        }
    };
    let mut result: Option<V> = None;
    for operand in operands(connective, expr) {
        result = Some(match result {
            None => lower_condition(cx, operand)?,
            Some(left) if is_lazy(cx, operand) => {
                let value = cx.builder.var_of("condition", left);
                let decided = decides(cx, connective, left);
                let open = cx.builder.not(decided);
                cx.begin_if(open);
                let right = lower_condition(cx, operand);
                let right = right.map(|right| cx.builder.assign(value, right));
                cx.end();
                right?;
                cx.builder.read(value)
            }
            Some(left) => {
                let right = lower_condition(cx, operand)?;
                match connective {
                    Connective::And => cx.builder.and(left, right),
                    Connective::Or => cx.builder.or(left, right),
                }
            }
        });
    }
    Ok(match result {
        Some(value) => value,
        None => cx.builder.bool(connective == Connective::And),
    })
}
