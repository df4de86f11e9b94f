//! What is known of an expression before it is lowered: found by lowering it into a scratch module, so that it can
//! not differ from what is emitted.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Block, Builder, Expr as KirExpr, Function, Scalar, Stmt, Target, Type};

use super::literal::text_of_bytes;
use super::logic::{Connective, operands};
use super::value::unsupported;
use crate::context::{Constant, Context, Lowered, Repr, Unsupported, register_of};
use crate::expr::{Expr, ExprKind};
use crate::expr::{children, with_children};
use crate::lower::lower;
use crate::types::{DataType, Range};

/// Statements up to which an expression is cheap enough to be evaluated although it may not be needed.
const CHEAP_STATEMENTS: usize = 48;
/// Nesting that is compiled: deeper trees go to DataFusion.
const DEPTH_LIMIT: usize = 128;

/// Facts about an expression, given the ranges of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Bounds of the value where it is an integer inside.
    pub range: Option<Range>,
    /// It may report an error: it must only be evaluated for rows that are live.
    pub can_fail: bool,
    /// A few instructions without loops, calls or 128-bit divisions.
    pub cheap: bool,
}

/// Finds the facts, or why the expression cannot be compiled. `ranges` gives a column's bounds (`None`: its type's).
pub fn facts(expr: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> Result<Facts, Unsupported> {
    let mut builder = Builder::new();
    builder.begin_kernel("scratch");
    let range = lower_scratch(&mut builder, expr, ranges)?.range;
    builder.end_kernel();
    let module = match builder.finish() {
        Ok(module) => module,
        Err(error) => return Err(Unsupported::internal(format!("an expression's lowering: {error}"))),
    };
    let mut can_fail = false;
    let mut cheap = true;
    let mut statements = 0;
    for (_, kernel) in module.kernels.iter() {
        scan(kernel, &kernel.body, &mut |found| match found {
            Found::Report => can_fail = true,
            Found::Expensive => cheap = false,
            Found::Statement => statements += 1,
        });
    }
    for (_, function) in module.functions.iter() {
        scan(function, &function.body, &mut |found| can_fail |= matches!(found, Found::Report));
    }
    Ok(Facts { range, can_fail, cheap: cheap && statements <= CHEAP_STATEMENTS })
}

/// Whether evaluating the expression may report an error. True where it cannot be compiled.
pub fn can_fail(expr: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> bool {
    facts(expr, ranges).map_or(true, |facts| facts.can_fail)
}

/// Bounds of the value where it is an integer inside.
pub fn infer_range(expr: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> Option<Range> {
    facts(expr, ranges).ok().and_then(|facts| facts.range)
}

/// Whether the expression is a few instructions without loops, calls or 128-bit divisions.
pub fn is_cheap(expr: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> bool {
    facts(expr, ranges).is_ok_and(|facts| facts.cheap)
}

/// Whether an operand over the current row is to be evaluated only where its value is needed: it can fail, or is expensive,
/// also through projections that are not evaluated yet.
pub(super) fn is_lazy(cx: &Context<'_>, expr: &Expr) -> bool {
    let is_lazy = |facts: Facts| facts.can_fail || !facts.cheap;
    !cx.dry_run
        && cx.wide().is_none()
        && cx.any_computed(expr, &|expr, ranges| facts(expr, ranges).is_ok_and(is_lazy))
}

/// Adds every reason why an expression cannot be compiled, whatever the ranges of its columns.
pub fn check(expr: &Expr, reasons: &mut Vec<String>) {
    if is_too_deep(expr) {
        return reasons.push(format!("expression is nested deeper than {DEPTH_LIMIT}"));
    }
    check_node(expr, reasons);
}

/// The operands that are lowered one below the other: all of a chain of ANDs or ORs, which may be long.
fn parts(expr: &Expr) -> Vec<&Expr> {
    match expr.kind {
        ExprKind::And(..) => operands(Connective::And, expr),
        ExprKind::Or(..) => operands(Connective::Or, expr),
        _ => children(expr),
    }
}

/// Checks the children, then the node over columns in their place.
fn check_node(expr: &Expr, reasons: &mut Vec<String>) {
    if let ExprKind::And(..) | ExprKind::Or(..) = expr.kind {
        return parts(expr).into_iter().for_each(|part| check_node(part, reasons));
    }
    let mut placeholders = Vec::new();
    for (index, child) in children(expr).into_iter().enumerate() {
        if matches!(child.kind, ExprKind::Literal(_)) {
            placeholders.push(child.clone());
        } else {
            check_node(child, reasons);
            placeholders.push(Expr::column(index, child.data_type.clone(), true));
        }
    }
    // Columns are laid out up to the last one that is read, and one that is yet to be made has a number beyond all others.
    let node = match expr.kind {
        ExprKind::Column(_) => Expr::column(0, expr.data_type.clone(), expr.nullable),
        _ => with_children(expr, placeholders),
    };
    if let Err(Unsupported(reason)) = facts(&node, &|_| None)
        && !reasons.contains(&reason)
    {
        reasons.push(reason);
    }
}

fn is_too_deep(expr: &Expr) -> bool {
    let mut open = vec![(expr, 1)];
    while let Some((expr, depth)) = open.pop() {
        if depth > DEPTH_LIMIT {
            return true;
        }
        open.extend(parts(expr).into_iter().map(|part| (part, depth + 1)));
    }
    false
}

fn lower_scratch(
    builder: &mut Builder,
    expr: &Expr,
    ranges: &dyn Fn(usize) -> Option<Range>,
) -> Result<Lowered, Unsupported> {
    let target = Target::cpu(1);
    let mut cx = Context::new(builder, &target);
    cx.dry_run = true;
    let mut columns: Vec<Option<Lowered>> = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        open.extend(children(expr));
        let ExprKind::Column(index) = expr.kind else { continue };
        if columns.len() <= index {
            columns.resize(index + 1, None);
        }
        if columns[index].is_none() {
            columns[index] = Some(placeholder(&mut cx, expr, ranges(index))?);
        }
    }
    let unused = cx.builder.bool(false);
    let unused = Lowered { repr: Repr::Scalar(unused), valid: None, range: None };
    cx.begin_values(columns.into_iter().map(|column| column.unwrap_or(unused.clone())).collect());
    lower(&mut cx, expr)
}

/// A column's value as the context would give it.
fn placeholder(cx: &mut Context<'_>, column: &Expr, range: Option<Range>) -> Result<Lowered, Unsupported> {
    let valid = column.nullable.then(|| cx.constant(Constant::Bool(true)));
    let scalar = |value: V, range| Ok(Lowered { repr: Repr::Scalar(value), valid, range });
    match &column.data_type {
        DataType::Boolean | DataType::Null => scalar(cx.constant(Constant::Bool(true)), None),
        DataType::Float32 => scalar(cx.constant(Constant::F32(0.0)), None),
        DataType::Float64 => scalar(cx.constant(Constant::F64(0.0)), None),
        DataType::Utf8 => Ok(Lowered { repr: Repr::Text(text_of_bytes(cx, &[])), valid, range: None }),
        DataType::Interval => unsupported("a column of intervals"),
        other => {
            let range = range.or_else(|| other.full_range()).unwrap_or(crate::expr::range::UNBOUNDED);
            scalar(cx.constant(Constant::Int(register_of(range), 0)), Some(range))
        }
    }
}

pub(super) enum Found {
    Report,
    Expensive,
    Statement,
}

/// Tells of every statement of a block and the blocks in it what it is.
pub(super) fn scan(function: &Function, block: &Block, found: &mut dyn FnMut(Found)) {
    for stmt in block {
        match stmt {
            Stmt::Report { .. } | Stmt::Trap { .. } => found(Found::Report),
            Stmt::If { accept, reject, .. } => {
                found(Found::Expensive);
                scan(function, accept, found);
                scan(function, reject, found);
            }
            Stmt::Loop(body) => {
                found(Found::Expensive);
                scan(function, body, found);
            }
            Stmt::Call { .. } => found(Found::Expensive),
            Stmt::Let(value) => {
                found(Found::Statement);
                if let Some(value) = function.values.get(*value)
                    && let KirExpr::Binary(BinaryOp::Div | BinaryOp::Rem, ..) = value.expr
                    && value.ty == Type::Scalar(Scalar::I128)
                {
                    found(Found::Expensive);
                }
            }
            _ => {}
        }
    }
}
