//! Comparisons. Floats are compared as Arrow does after DataFusion has made -0.0 a 0.0: in IEEE total order, so that
//! a NaN equals itself and is greater than all numbers.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, Scalar};

use super::literal;
use super::text;
use super::value::{boolean, both, lower_scalar, scalar, unsupported, wider};
use crate::context::{Context, Lowered, Repr, StoredIntegers, Unsupported, register_of};
use crate::expr::range::literal_class;
use crate::expr::{Expr, ExprKind};
use crate::types::{DataType, Literal, Range};

/// Lowers `left op right`.
pub(super) fn lower(
    cx: &mut Context<'_>,
    op: CompareOp,
    left: &Expr,
    right: &Expr,
) -> Result<Lowered, Unsupported> {
    let (value, a_valid, b_valid) = comparison(cx, op, left, right)?;
    let valid = both(cx, a_valid, b_valid);
    Ok(boolean(value, valid))
}

/// Lowers `left IS [NOT] DISTINCT FROM right`.
pub(super) fn distinct(
    cx: &mut Context<'_>,
    negated: bool,
    left: &Expr,
    right: &Expr,
) -> Result<Lowered, Unsupported> {
    let (equal, a_valid, b_valid) = comparison(cx, CompareOp::Eq, left, right)?;
    let same = not_distinct(cx, equal, a_valid, b_valid);
    Ok(boolean(if negated { same } else { cx.builder.not(same) }, None))
}

/// Equal, or both NULL.
fn not_distinct(cx: &mut Context<'_>, equal: V, a_valid: Option<V>, b_valid: Option<V>) -> V {
    let Some(both_valid) = both(cx, a_valid, b_valid) else { return equal };
    let equal = cx.builder.and(equal, both_valid);
    match (a_valid, b_valid) {
        (Some(a), Some(b)) => {
            let any = cx.builder.or(a, b);
            let neither = cx.builder.not(any);
            cx.builder.or(equal, neither)
        }
        _ => equal,
    }
}

type Comparison = (V, Option<V>, Option<V>);

fn comparison(
    cx: &mut Context<'_>,
    op: CompareOp,
    left: &Expr,
    right: &Expr,
) -> Result<Comparison, Unsupported> {
    match &left.data_type {
        DataType::Utf8 => {
            let (a, b) = (cx.lower(left)?, cx.lower(right)?);
            Ok((text::compare(cx, op, &a, &b)?, a.valid, b.valid))
        }
        DataType::Float32 | DataType::Float64 => {
            let ((a, a_valid), (b, b_valid)) = (lower_scalar(cx, left)?, lower_scalar(cx, right)?);
            Ok((floats(cx, op, a, b)?, a_valid, b_valid))
        }
        DataType::Boolean | DataType::Null => {
            let ((a, a_valid), (b, b_valid)) = (lower_scalar(cx, left)?, lower_scalar(cx, right)?);
            Ok((booleans(cx, op, a, b), a_valid, b_valid))
        }
        DataType::Interval => unsupported("comparison of intervals"),
        _ => integers(cx, op, left, right),
    }
}

/// In the wider register; a literal gets the register of the other side where its class fits.
fn integers(
    cx: &mut Context<'_>,
    op: CompareOp,
    left: &Expr,
    right: &Expr,
) -> Result<Comparison, Unsupported> {
    if let Some(compared) = stored(cx, op, left, right) {
        return Ok(compared);
    }
    match (&left.kind, &right.kind) {
        (_, ExprKind::Literal(Literal::Int(literal))) => {
            let (a, a_valid) = lower_scalar(cx, left)?;
            let (a, b) = with_literal(cx, a, *literal);
            Ok((cx.builder.compare(op, a, b), a_valid, None))
        }
        (ExprKind::Literal(Literal::Int(literal)), _) => {
            let (b, b_valid) = lower_scalar(cx, right)?;
            let (b, a) = with_literal(cx, b, *literal);
            Ok((cx.builder.compare(op, a, b), None, b_valid))
        }
        _ => {
            let ((a, a_valid), (b, b_valid)) = (lower_scalar(cx, left)?, lower_scalar(cx, right)?);
            let (a, b) = unify(cx, a, b);
            Ok((cx.builder.compare(op, a, b), a_valid, b_valid))
        }
    }
}

/// Of a wide row: a column as it is stored with a literal, which is made a stored value instead. `None` where that is not
/// possible.
fn stored(cx: &mut Context<'_>, op: CompareOp, left: &Expr, right: &Expr) -> Option<Comparison> {
    let (column, op, literal) = match (&left.kind, &right.kind) {
        (ExprKind::Column(column), ExprKind::Literal(Literal::Int(literal))) => (*column, op, *literal),
        (ExprKind::Literal(Literal::Int(literal)), ExprKind::Column(column)) => {
            (*column, op.mirrored(), *literal)
        }
        _ => return None,
    };
    // Differences of such numbers fit 64 bits.
    let small = Range { min: -(1 << 62), max: 1 << 62 };
    let range = cx.column_range(column)?;
    if cx.wide().is_none() || !literal_class(literal).union(range).within(small) {
        return None;
    }
    let StoredIntegers { value, valid, base, bounds } = cx.stored_integers(column)?;
    let scalar = cx.builder.scalar(value);
    let most = scalar_range(scalar).max;
    // The greatest number of the stored type stands for what no row has.
    if bounds.max >= most {
        return None;
    }
    let limit = literal::in_register(cx, literal, Scalar::I64);
    let b = &mut *cx.builder;
    let mut limit = base.map_or(limit, |base| b.sub(limit, base));
    let (op, is_next) = match op {
        CompareOp::Le => (CompareOp::Lt, true),
        CompareOp::Gt => (CompareOp::Ge, true),
        op => (op, false),
    };
    if is_next {
        limit = b.add_int(limit, 1);
    }
    let (least, most) = (b.int(Scalar::I64, scalar_range(scalar).min), b.int(Scalar::I64, most));
    let limit = match op {
        CompareOp::Eq | CompareOp::Ne => {
            let (above, below) = (b.ge(limit, least), b.lt(limit, most));
            let is_stored = b.and(above, below);
            b.select(is_stored, limit, most)
        }
        _ => {
            let limit = b.binary(BinaryOp::Max, limit, least);
            b.binary(BinaryOp::Min, limit, most)
        }
    };
    let limit = b.convert(limit, scalar);
    Some((b.compare(op, value, limit), valid, None))
}

/// The numbers of an integer type of up to 32 bits.
fn scalar_range(scalar: Scalar) -> Range {
    let bits = scalar.bits();
    match scalar.is_signed() {
        true => Range { min: -(1i128 << (bits - 1)), max: (1i128 << (bits - 1)) - 1 },
        false => Range { min: 0, max: (1i128 << bits) - 1 },
    }
}

/// A value and a literal in one register type.
pub(super) fn with_literal(cx: &mut Context<'_>, value: V, literal: i128) -> (V, V) {
    let register = wider(cx.builder.scalar(value), register_of(literal_class(literal)));
    (cx.builder.convert(value, register), literal::in_register(cx, literal, register))
}

/// Two integers in the wider register of both.
pub(super) fn unify(cx: &mut Context<'_>, a: V, b: V) -> (V, V) {
    let register = wider(cx.builder.scalar(a), cx.builder.scalar(b));
    (cx.builder.convert(a, register), cx.builder.convert(b, register))
}

/// false < true
pub(super) fn booleans(cx: &mut Context<'_>, op: CompareOp, a: V, b: V) -> V {
    if matches!(op, CompareOp::Eq | CompareOp::Ne) {
        return cx.builder.compare(op, a, b);
    }
    let (a, b) = (cx.builder.convert(a, Scalar::I32), cx.builder.convert(b, Scalar::I32));
    cx.builder.compare(op, a, b)
}

/// Total order with -0.0 = 0.0.
pub(super) fn floats(cx: &mut Context<'_>, op: CompareOp, a: V, b: V) -> Result<V, Unsupported> {
    let (a, b) = (float_order(cx, a)?, float_order(cx, b)?);
    Ok(cx.builder.compare(op, a, b))
}

/// An integer whose order is the float's: the bits of positive floats, the negated magnitude of negative ones.
pub(super) fn float_order(cx: &mut Context<'_>, a: V) -> Result<V, Unsupported> {
    let (register, lowest) = match cx.builder.scalar(a) {
        Scalar::F32 => (Scalar::I32, i128::from(i32::MIN)),
        Scalar::F64 => (Scalar::I64, i128::from(i64::MIN)),
        other => return unsupported(format!("float comparison of {}", other.name())),
    };
    let b = &mut *cx.builder;
    let bits = b.bitcast(a, register);
    let (zero, lowest) = (b.zero(register), b.int(register, lowest));
    let negative = b.lt(bits, zero);
    let negated = b.sub(lowest, bits);
    Ok(b.select(negative, negated, bits))
}

/// An integer whose order is IEEE's total order of floats, in which -0.0 is below 0.0.
pub(super) fn total_order(cx: &mut Context<'_>, a: V) -> Result<V, Unsupported> {
    let (register, most, shift) = match cx.builder.scalar(a) {
        Scalar::F32 => (Scalar::I32, i128::from(i32::MAX), 31),
        Scalar::F64 => (Scalar::I64, i128::from(i64::MAX), 63),
        other => return unsupported(format!("float comparison of {}", other.name())),
    };
    let b = &mut *cx.builder;
    let bits = b.bitcast(a, register);
    let (most, shift) = (b.int(register, most), b.int(register, shift));
    let negative = b.binary(BinaryOp::Shr, bits, shift);
    let flipped = b.and(negative, most);
    Ok(b.binary(BinaryOp::Xor, bits, flipped))
}

/// Whether two lowered values of one type, neither of them NULL, are equal.
pub(super) fn equal(
    cx: &mut Context<'_>,
    a: &Lowered,
    b: &Lowered,
    data_type: &DataType,
) -> Result<V, Unsupported> {
    if let (Repr::Text(_), Repr::Text(_)) = (&a.repr, &b.repr) {
        return text::compare(cx, CompareOp::Eq, a, b);
    }
    let (left, right) = (scalar(a)?, scalar(b)?);
    match data_type {
        DataType::Float32 | DataType::Float64 => floats(cx, CompareOp::Eq, left, right),
        DataType::Boolean | DataType::Null => Ok(booleans(cx, CompareOp::Eq, left, right)),
        _ => {
            let (left, right) = unify(cx, left, right);
            Ok(cx.builder.eq(left, right))
        }
    }
}
