//! CASE, COALESCE and NULLIF.
//!
//! Only the branch that is needed is evaluated, in blocks; where all branches are cheap and cannot fail, all are
//! evaluated and the value is selected.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use super::facts::{facts, is_lazy};
use super::logic::lower_condition;
use super::text::heap;
use super::value::{both, unsupported};
use super::{compare, literal};
use crate::context::{Case, Context, Lowered, Repr, Text, Unsupported, register_of};
use crate::expr::Expr;
use crate::types::{DataType, Range};

/// Branches of one CASE that are compiled: each nests a block deeper.
const BRANCH_LIMIT: usize = 64;
/// Branches up to which all are evaluated where that is cheap.
const SELECT_LIMIT: usize = 8;

type Branch = (Expr, Expr);

/// Lowers a searched CASE.
pub(super) fn lower(
    cx: &mut Context<'_>,
    expr: &Expr,
    branches: &[Branch],
    otherwise: Option<&Expr>,
) -> Result<Lowered, Unsupported> {
    if branches.len() > BRANCH_LIMIT {
        return unsupported(format!("CASE with more than {BRANCH_LIMIT} branches"));
    }
    let lazy = branches.len() > SELECT_LIMIT
        || branches.iter().any(|(condition, result)| is_lazy(cx, condition) || is_lazy(cx, result))
        || otherwise.is_some_and(|otherwise| is_lazy(cx, otherwise));
    if lazy && !cx.dry_run {
        let target = Target::new(cx, expr)?;
        lazy_case(cx, &target, branches, otherwise)?;
        return target.read(cx);
    }
    let mut conditions = Vec::new();
    let mut results = Vec::new();
    for (condition, result) in branches {
        conditions.push(lower_condition(cx, condition)?);
        results.push(cx.lower(result)?);
    }
    let mut value = match otherwise {
        Some(otherwise) => cx.lower(otherwise)?,
        None => literal::null(cx, &expr.data_type)?,
    };
    for (condition, result) in conditions.into_iter().zip(results).rev() {
        value = choose(cx, condition, result, value)?;
    }
    Ok(value)
}

fn lazy_case(
    cx: &mut Context<'_>,
    target: &Target,
    branches: &[Branch],
    otherwise: Option<&Expr>,
) -> Result<(), Unsupported> {
    let Some(((condition, result), rest)) = branches.split_first() else {
        return match otherwise {
            Some(otherwise) => target.assign_expr(cx, otherwise),
            None => {
                target.assign_null(cx);
                Ok(())
            }
        };
    };
    let condition = lower_condition(cx, condition)?;
    cx.begin_if(condition);
    let accepted = target.assign_expr(cx, result);
    cx.begin_else();
    let rejected = lazy_case(cx, target, rest, otherwise);
    cx.end();
    accepted.and(rejected)
}

/// Lowers COALESCE.
pub(super) fn coalesce(
    cx: &mut Context<'_>,
    expr: &Expr,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    let Some((first, rest)) = arguments.split_first() else { return unsupported("COALESCE of nothing") };
    let value = cx.lower(first)?;
    let Some(valid) = value.valid else { return Ok(value) };
    if rest.is_empty() {
        return Ok(value);
    }
    if cx.dry_run || !rest.iter().any(|argument| is_lazy(cx, argument)) {
        let rest = coalesce(cx, expr, rest)?;
        return choose(cx, valid, Lowered { valid: None, ..value }, rest);
    }
    let target = Target::new(cx, expr)?;
    target.assign(cx, value)?;
    let null = cx.builder.not(valid);
    cx.begin_if(null);
    let rest = coalesce(cx, expr, rest).and_then(|rest| target.assign(cx, rest));
    cx.end();
    rest?;
    target.read(cx)
}

/// Lowers NULLIF: NULL where both are equal, else the first. DataFusion's comparison operators take -0.0 for 0.0, but
/// its NULLIF compares with Arrow's kernel, to which they differ.
pub(super) fn null_if(cx: &mut Context<'_>, a: &Expr, b: &Expr) -> Result<Lowered, Unsupported> {
    let (left, right) = (cx.lower(a)?, cx.lower(b)?);
    let equal = match (&left.repr, &right.repr) {
        (Repr::Scalar(x), Repr::Scalar(y)) if a.data_type.is_float() => {
            let bits = if a.data_type == DataType::Float32 { Scalar::U32 } else { Scalar::U64 };
            let (x, y) = (cx.builder.bitcast(*x, bits), cx.builder.bitcast(*y, bits));
            cx.builder.eq(x, y)
        }
        _ => compare::equal(cx, &left, &right, &a.data_type)?,
    };
    let equal = match both(cx, left.valid, right.valid) {
        Some(valid) => cx.builder.and(equal, valid),
        None => equal,
    };
    let different = cx.builder.not(equal);
    let valid = both(cx, left.valid, Some(different));
    Ok(Lowered { valid, ..left })
}

/// Lowers a pair: the first value, NULL where one of both is.
pub(super) fn pair(cx: &mut Context<'_>, a: &Expr, b: &Expr) -> Result<Lowered, Unsupported> {
    let (first, second) = (cx.lower(a)?, cx.lower(b)?);
    let valid = both(cx, first.valid, second.valid);
    Ok(Lowered { valid, ..first })
}

/// `condition ? a : b`
pub(super) fn choose(
    cx: &mut Context<'_>,
    condition: V,
    a: Lowered,
    b: Lowered,
) -> Result<Lowered, Unsupported> {
    let range = union(a.range, b.range);
    let (a_valid, b_valid) = (a.valid, b.valid);
    let valid = match (a_valid, b_valid) {
        (None, None) => None,
        (a, b) => {
            let [a, b] = [a, b].map(|valid| match valid {
                Some(valid) => valid,
                None => cx.builder.bool(true),
            });
            Some(cx.builder.select(condition, a, b))
        }
    };
    let repr = match (a.repr, b.repr) {
        (Repr::Scalar(a), Repr::Scalar(b)) => {
            let register = cx.builder.scalar(a);
            let (a, b) = match range {
                Some(range) if register != Scalar::Bool => {
                    let register = register_of(range);
                    (cx.builder.convert(a, register), cx.builder.convert(b, register))
                }
                _ => (a, b),
            };
            Repr::Scalar(cx.builder.select(condition, a, b))
        }
        (Repr::Text(a), Repr::Text(b)) => {
            let (a, b) = match a.case == b.case {
                true => (a, b),
                false => (heap::plain(cx, a, a_valid), heap::plain(cx, b, b_valid)),
            };
            Repr::Text(Text {
                case: a.case,
                data: cx.builder.select(condition, a.data, b.data),
                length: cx.builder.select(condition, a.length, b.length),
                code: None,
            })
        }
        _ => return unsupported("branches of different types"),
    };
    Ok(Lowered { repr, valid, range })
}

fn union(a: Option<Range>, b: Option<Range>) -> Option<Range> {
    Some(a?.union(b?))
}

/// Variables that receive the value of a branch.
struct Target {
    repr: TargetRepr,
    valid: Var,
    range: Option<Range>,
}

enum TargetRepr {
    Scalar(Var, Scalar),
    /// Without a case mapping.
    Text {
        data: Var,
        length: Var,
    },
}

impl Target {
    /// Variables for the value of `expr`, whose range is found beforehand.
    fn new(cx: &mut Context<'_>, expr: &Expr) -> Result<Target, Unsupported> {
        let range = facts(expr, &|column| cx.column_range(column))?.range;
        let register = match &expr.data_type {
            DataType::Boolean | DataType::Null => Scalar::Bool,
            DataType::Float32 => Scalar::F32,
            DataType::Float64 => Scalar::F64,
            DataType::Interval => return unsupported("an interval that is computed"),
            _ => range.map_or(Scalar::I128, register_of),
        };
        let repr = match &expr.data_type {
            DataType::Utf8 => TargetRepr::Text {
                data: cx.builder.var("text", Type::global(Scalar::U8)),
                length: cx.builder.var("length", Scalar::U32),
            },
            _ => TargetRepr::Scalar(cx.builder.var("case", register), register),
        };
        let valid = cx.builder.var("valid", Scalar::Bool);
        Ok(Target { repr, valid, range })
    }

    fn assign_expr(&self, cx: &mut Context<'_>, expr: &Expr) -> Result<(), Unsupported> {
        let value = cx.lower(expr)?;
        self.assign(cx, value)
    }

    fn assign_null(&self, cx: &mut Context<'_>) {
        let valid = cx.builder.bool(false);
        cx.builder.assign(self.valid, valid);
    }

    fn assign(&self, cx: &mut Context<'_>, value: Lowered) -> Result<(), Unsupported> {
        match (&self.repr, &value.repr) {
            (TargetRepr::Scalar(var, register), Repr::Scalar(scalar)) => {
                let scalar = match register {
                    Scalar::Bool => *scalar,
                    register => cx.builder.convert(*scalar, *register),
                };
                cx.builder.assign(*var, scalar);
            }
            (TargetRepr::Text { data, length }, Repr::Text(text)) => {
                let text = heap::plain(cx, text.clone(), value.valid);
                cx.builder.assign(*data, text.data);
                cx.builder.assign(*length, text.length);
            }
            _ => return unsupported("branches of different types"),
        }
        let valid = match value.valid {
            Some(valid) => valid,
            None => cx.builder.bool(true),
        };
        cx.builder.assign(self.valid, valid);
        Ok(())
    }

    fn read(self, cx: &mut Context<'_>) -> Result<Lowered, Unsupported> {
        let valid = Some(cx.builder.read(self.valid));
        let repr = match self.repr {
            TargetRepr::Scalar(var, _) => Repr::Scalar(cx.builder.read(var)),
            TargetRepr::Text { data, length } => Repr::Text(Text {
                data: cx.builder.read(data),
                length: cx.builder.read(length),
                case: Case::Keep,
                code: None,
            }),
        };
        Ok(Lowered { repr, valid, range: self.range })
    }
}
