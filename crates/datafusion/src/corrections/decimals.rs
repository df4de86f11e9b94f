//! Decimals at the limits of their types.
//!
//! `ceil` and `floor` of DataFusion give the type of their argument, which need not hold the next whole number: they fail. A comparison
//! makes both sides one decimal of 38 digits, into which a side need not fit: that fails too. Here a whole number has no digits behind the
//! point, and constants and integers that may not fit are compared as decimals of 76 digits, which hold any two of 38. Numbers that are written with a point
//! are compared with decimals as they are written, and floats of rows as floats. A decimal, and a number that is written with a point, that
//! is cast to an integer is rounded, half away from zero, as SQL's other engines do; DataFusion cuts it.

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::math::{ceil::CeilFunc, floor::FloorFunc};
use datafusion::logical_expr::expr::{Between, BinaryExpr, InList, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast};

/// A node whose decimals keep within their types.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let columns = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &columns)?);
    }
    let concerns = |expr: &Expr| expr.exists(|expr| Ok(may_concern(expr)));
    super::map_expressions(plan, concerns, |expr| expr.transform_up(|expr| mended(expr, &schema)))
}

fn may_concern(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => makes_whole(call),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            compares(*op) && (is_cast(left) || is_cast(right))
        }
        Expr::Between(Between { expr, low, high, .. }) => is_cast(expr) || is_cast(low) || is_cast(high),
        Expr::InList(InList { expr, list, .. }) => is_cast(expr) || list.iter().any(is_cast),
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
            field.data_type().is_integer() || field.data_type().is_decimal()
        }
        _ => false,
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether an expression is a cast to a decimal, as those are that are compared with another type.
fn is_cast(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Decimal128(..)))
}

fn makes_whole(call: &ScalarFunction) -> bool {
    let implementation = call.func.inner().as_ref();
    call.args.len() == 1 && (implementation.is::<CeilFunc>() || implementation.is::<FloorFunc>())
}

fn mended(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let changed = match &mut expr {
        Expr::ScalarFunction(call) if makes_whole(call) => return whole(expr, schema),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => {
            widen(&mut [left, right], schema)?
        }
        Expr::Between(Between { expr, low, high, .. }) => widen(&mut [expr, low, high], schema)?,
        Expr::InList(InList { expr, list, .. }) => {
            let mut operands: Vec<&mut Expr> = vec![expr];
            operands.extend(list.iter_mut());
            widen(&mut operands, schema)?
        }
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            rounded(expr, field.data_type(), schema)?
        }
        _ => false,
    };
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

/// Rounds what is cast to an integer, and makes what is written with a point and cast to a decimal one of its digits; whether anything has
/// changed.
fn rounded(expr: &mut Box<Expr>, to: &DataType, schema: &DFSchema) -> Result<bool> {
    if let Expr::Literal(ScalarValue::Float64(Some(value)), _) = expr.as_ref() {
        let Some(Operand::Written(value, ..)) = written(*value)? else { return Ok(false) };
        let value = match to.is_integer() {
            true => value.cast_to(&DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))?,
            false => value,
        };
        **expr = Expr::Literal(value, None);
        return Ok(true);
    }
    if !to.is_integer() {
        return Ok(false);
    }
    let DataType::Decimal128(precision, scale @ 1..) = expr.get_type(schema)? else { return Ok(false) };
    let whole = i16::from(precision) - i16::from(scale) + 1;
    cast(expr, DataType::Decimal128(whole.clamp(1, DECIMAL128_MAX_PRECISION.into()) as u8, 0));
    Ok(true)
}

/// `ceil` or `floor` of a decimal with room for one more digit, and none behind the point.
fn whole(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = &mut expr else { return Ok(Transformed::no(expr)) };
    let Some(argument) = call.args.first_mut() else { return Ok(Transformed::no(expr)) };
    let (wider, result) = match argument.get_type(schema)? {
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale @ 1..) => (
            DataType::Decimal256(DECIMAL128_MAX_PRECISION + 1, scale),
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        ),
        DataType::Decimal128(precision, scale @ 1..) => {
            (DataType::Decimal128(precision + 1, scale), DataType::Decimal128(precision, 0))
        }
        _ => return Ok(Transformed::no(expr)),
    };
    cast(argument, wider);
    cast(&mut expr, result);
    Ok(Transformed::yes(expr))
}

/// An operand of a comparison of decimals, before it was cast to the type that DataFusion has for all of them.
enum Operand {
    /// Digits before and behind the point.
    Digits(i16, i16),
    /// A number that is written with a point or an exponent, where a decimal holds it.
    Written(ScalarValue, i16, i16),
    /// A float of a row, or a number that is beyond all decimals.
    Float,
    /// A constant that is computed.
    Computed,
}

/// Makes operands ones of a type that holds all of them, where the one that DataFusion has for them may not: of numbers that are written
/// as floats it takes the float, of 15 digits, and makes floats of rows decimals.
fn widen(operands: &mut [&mut Expr], schema: &DFSchema) -> Result<bool> {
    let mut kinds = Vec::with_capacity(operands.len());
    let mut common = (0, 0);
    for operand in operands.iter() {
        let DataType::Decimal128(precision, scale) = operand.get_type(schema)? else { return Ok(false) };
        common = (i16::from(precision) - i16::from(scale), i16::from(scale));
        kinds.push(kind(operand, schema)?);
    }
    // Casts of decimals of rows stay: their types have more room than most of their values need, and what does not fit is an error.
    let is_beyond = kinds.iter().zip(operands.iter()).any(|(kind, operand)| match kind {
        Operand::Digits(whole, _) => *whole > common.0 && !is_decimal_of_row(operand, schema),
        Operand::Written(_, before, behind) => *before > common.0 || *behind > common.1,
        Operand::Float => true,
        Operand::Computed => false,
    });
    let is_written = kinds.iter().any(|kind| matches!(kind, Operand::Written(..)));
    // Unless they fit one of as many digits: other operands, as those of the IN that a comparison was one of, have made it wider.
    let is_tight = kinds.iter().any(|kind| matches!(kind, Operand::Digits(whole, _) if *whole > common.0));
    if !(is_beyond || is_written || is_tight) || kinds.iter().any(|kind| matches!(kind, Operand::Computed)) {
        return Ok(false);
    }
    let as_floats = kinds.iter().any(|kind| matches!(kind, Operand::Float));
    let (mut whole, mut fraction) = (0, 0);
    for kind in &kinds {
        if let Operand::Digits(before, behind) | Operand::Written(_, before, behind) = kind {
            (whole, fraction) = (whole.max(*before), fraction.max(*behind));
        }
    }
    let digits = (whole + fraction).max(1) as u8;
    if digits > DECIMAL128_MAX_PRECISION && !(is_beyond || is_written) {
        return Ok(false);
    }
    let data_type = match digits {
        _ if as_floats => DataType::Float64,
        ..=DECIMAL128_MAX_PRECISION => DataType::Decimal128(digits, fraction as i8),
        _ => DataType::Decimal256(DECIMAL256_MAX_PRECISION, fraction as i8),
    };
    for (operand, kind) in operands.iter_mut().zip(kinds) {
        match kind {
            Operand::Written(value, ..) if !as_floats => {
                **operand = Expr::Literal(value.cast_to(&data_type)?, None);
            }
            _ => {
                if let Some(inner) = coerced(operand, schema)? {
                    **operand = inner.clone();
                }
                if operand.get_type(schema)? != data_type {
                    cast(operand, data_type.clone());
                }
            }
        }
    }
    Ok(true)
}

/// Whether an operand is a decimal that is not the same in all rows.
fn is_decimal_of_row(operand: &Expr, schema: &DFSchema) -> bool {
    let inner = coerced(operand, schema).ok().flatten().unwrap_or(operand);
    let is_decimal = inner.get_type(schema).is_ok_and(|data_type| data_type.is_decimal());
    is_decimal && !matches!(inner, Expr::Literal(..))
}

/// What an operand was before it was made a decimal to be compared; nothing where a statement says that it is one.
fn coerced<'a>(operand: &'a Expr, schema: &DFSchema) -> Result<Option<&'a Expr>> {
    let Expr::Cast(Cast { expr, field, .. }) = operand else { return Ok(None) };
    let DataType::Decimal128(_, scale) = *field.data_type() else { return Ok(None) };
    let keeps_all = match expr.get_type(schema)? {
        DataType::Decimal32(_, own) | DataType::Decimal64(_, own) | DataType::Decimal128(_, own) => {
            own <= scale
        }
        // The digits behind the point that a float gets there.
        DataType::Float64 => scale >= 15,
        DataType::Float32 | DataType::Float16 => scale >= 3,
        DataType::Null => true,
        other => other.is_integer(),
    };
    Ok(keeps_all.then_some(expr.as_ref()))
}

fn kind(operand: &Expr, schema: &DFSchema) -> Result<Operand> {
    let inner = coerced(operand, schema)?.unwrap_or(operand);
    if let Expr::Literal(ScalarValue::Float64(Some(value)), _) = inner {
        return Ok(written(*value)?.unwrap_or(Operand::Float));
    }
    // What was written, in its own digits.
    if let Expr::Literal(value @ ScalarValue::Decimal128(Some(_), precision, scale @ 0..), _) = inner {
        let before = i16::from(*precision) - i16::from(*scale);
        return Ok(Operand::Written(value.clone(), before, i16::from(*scale)));
    }
    if let Expr::Literal(ScalarValue::Int64(Some(value)), _) = inner {
        return Ok(Operand::Digits(value.unsigned_abs().to_string().len() as i16, 0));
    }
    Ok(match inner.get_type(schema)? {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            Operand::Digits(i16::from(precision) - i16::from(scale), i16::from(scale).max(0))
        }
        DataType::Int64 => Operand::Digits(19, 0),
        DataType::UInt64 => Operand::Digits(20, 0),
        DataType::Int32 | DataType::UInt32 => Operand::Digits(10, 0),
        DataType::Int16 | DataType::UInt16 => Operand::Digits(5, 0),
        DataType::Int8 | DataType::UInt8 => Operand::Digits(3, 0),
        DataType::Float64 | DataType::Float32 | DataType::Float16
            if !inner.column_refs().is_empty() || inner.contains_outer() =>
        {
            Operand::Float
        }
        DataType::Null => Operand::Digits(1, 0),
        _ => Operand::Computed,
    })
}

/// A number by the fewest digits that are read as it, where a decimal holds these.
fn written(value: f64) -> Result<Option<Operand>> {
    // Shown without exponent.
    let text = value.to_string();
    let digits = text.trim_start_matches('-');
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = whole.len() + fraction.len();
    if !value.is_finite() || all > usize::from(DECIMAL128_MAX_PRECISION) {
        return Ok(None);
    }
    let (before, behind) = (whole.len() as i16, fraction.len() as i16);
    let data_type = DataType::Decimal128(all as u8, behind as i8);
    let value = ScalarValue::Utf8(Some(text)).cast_to(&data_type)?;
    Ok(Some(Operand::Written(value, before, behind)))
}

fn cast(expr: &mut Expr, data_type: DataType) {
    *expr = Expr::Cast(Cast::new(Box::new(std::mem::take(expr)), data_type));
}
