//! The type of an expression that its operands have, where nothing else is said: what stands in a text is what differs from it.
//!
//! These rules save text, and nothing follows from them but that: they are DataFusion's where those are simple.

use super::super::{Aggregate, AggregateFunction, RankedValue};
use crate::expr::{ArithmeticOp, DatePart, Expr, ExprKind, Function, Search};
use crate::types::{DataType, Field};

/// What an expression gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gives {
    pub(super) data_type: DataType,
    pub(super) nullable: bool,
}

impl Gives {
    /// What an expression is said to give.
    pub(super) fn of(expr: &Expr) -> Gives {
        Gives { data_type: expr.data_type.clone(), nullable: expr.nullable }
    }

    /// What a column is said to give.
    pub(super) fn of_field(field: &Field) -> Gives {
        Gives { data_type: field.data_type.clone(), nullable: field.nullable }
    }
}

/// What an operator gives by its operands. Of columns, constants and subqueries, which have none, nothing is known; of casts, the
/// type is `target`.
pub(super) fn gives(kind: &ExprKind, target: &DataType) -> Option<Gives> {
    let is_nullable = |expr: &Expr| expr.nullable;
    let (data_type, nullable) = match kind {
        ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Scalar(_) => return None,
        ExprKind::Arithmetic(op, a, b) => (arithmetic(*op, a, b), a.nullable || b.nullable),
        ExprKind::Compare(_, a, b) | ExprKind::And(a, b) | ExprKind::Or(a, b) => {
            (DataType::Boolean, a.nullable || b.nullable)
        }
        ExprKind::Distinct(..) | ExprKind::IsNull(_) | ExprKind::IsNotNull(_) => (DataType::Boolean, false),
        ExprKind::Not(a) | ExprKind::Negate(a) => (a.data_type.clone(), a.nullable),
        ExprKind::Case { branches, otherwise } => {
            let results = || branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
            let data_type = results().next().map_or(DataType::Null, |result| result.data_type.clone());
            (data_type, otherwise.is_none() || results().any(is_nullable))
        }
        ExprKind::Cast { input, safe } => (target.clone(), input.nullable || *safe),
        ExprKind::InList { input, list, .. } => {
            (DataType::Boolean, input.nullable || list.iter().any(is_nullable))
        }
        ExprKind::Like { input, pattern, .. } => (DataType::Boolean, input.nullable || pattern.nullable),
        ExprKind::Regex { input, .. } => (DataType::Boolean, input.nullable),
        ExprKind::Function(function, arguments) => call(*function, arguments),
    };
    Some(Gives { data_type, nullable })
}

fn arithmetic(op: ArithmeticOp, a: &Expr, b: &Expr) -> DataType {
    use DataType::{Date32, Decimal128, Duration, Int64, Interval, Timestamp};
    match (op.plain(), &a.data_type, &b.data_type) {
        (ArithmeticOp::Add, Interval, other) => other.clone(),
        (ArithmeticOp::Subtract, Date32, Date32) => Int64,
        (ArithmeticOp::Subtract, Timestamp { unit, .. }, Timestamp { .. }) => Duration { unit: *unit },
        (ArithmeticOp::Add, Duration { .. }, point @ Timestamp { .. }) => point.clone(),
        (_, Decimal128 { precision: p, scale: s }, Decimal128 { precision: q, scale: t }) => {
            decimal(op, (*p, *s), (*q, *t))
        }
        (_, left, _) => left.clone(),
    }
}

/// Of two decimals, each given by precision and scale; that of quotients and remainders is the left one's.
fn decimal(op: ArithmeticOp, (p, s): (u8, i8), (q, t): (u8, i8)) -> DataType {
    let digits = |precision: i32, scale: i32| DataType::Decimal128 {
        precision: precision.clamp(1, 38) as u8,
        scale: scale.clamp(-38, 38) as i8,
    };
    let (precision, scale, other, places) = (i32::from(p), i32::from(s), i32::from(q), i32::from(t));
    match op.plain() {
        ArithmeticOp::Multiply => digits(precision + other + 1, scale + places),
        ArithmeticOp::Divide | ArithmeticOp::Remainder => digits(precision, scale),
        _ => {
            let most = scale.max(places);
            digits(most + (precision - scale).max(other - places) + 1, most)
        }
    }
}

fn call(function: Function, arguments: &[Expr]) -> (DataType, bool) {
    use Function::*;
    let any = || arguments.iter().any(|argument| argument.nullable);
    let all = || arguments.iter().all(|argument| argument.nullable);
    let first = || arguments.first().map_or(DataType::Null, |argument| argument.data_type.clone());
    match function {
        Part(_) => (DataType::UInt32, false),
        Coalesce | Greatest | Least => (first(), all()),
        NullIf => (first(), true),
        CharacterLength | OctetLength | Search(self::Search::Position) => (DataType::Int32, any()),
        Search(_) => (DataType::Boolean, any()),
        DatePart(self::DatePart::Epoch) => (DataType::Float64, any()),
        DatePart(_) => (DataType::Int32, any()),
        Concat => (DataType::Utf8, false),
        ConcatWithSeparator => (DataType::Utf8, arguments.first().is_some_and(|first| first.nullable)),
        Pair => (first(), any()),
        DateTrunc(_) | DateBin(_) | Abs | OneNan | Round | Floor | Ceil | Trunc | Bits(_) => (first(), any()),
        Substr | Upper | Lower | InitialCapitals | Translate | ConcatOperator | Trim(_) | Left | Right
        | Pad(_) | SplitPart | Replace | Repeat | Reverse => (DataType::Utf8, any()),
    }
}

/// What an aggregate gives.
pub(super) fn aggregated(aggregate: &Aggregate) -> Gives {
    use AggregateFunction::*;
    let argument = aggregate.argument.as_ref().map_or(DataType::Int64, |argument| argument.data_type.clone());
    let data_type = match (aggregate.function, &argument) {
        (Count, _) => DataType::Int64,
        (Min | Max | BitAnd | BitOr | BitXor | LeastBound(_) | GreatestBound(_), argument) => {
            argument.clone()
        }
        (VarSample | VarPopulation | StddevSample | StddevPopulation | OfPairs(_), _) => DataType::Float64,
        (Sum | SumExact, DataType::Decimal128 { precision, scale }) => {
            DataType::Decimal128 { precision: precision.saturating_add(10).min(38), scale: *scale }
        }
        (Avg, DataType::Decimal128 { precision, scale }) => DataType::Decimal128 {
            precision: precision.saturating_add(4).min(38),
            scale: scale.saturating_add(4).min(38),
        },
        (Sum | SumExact, DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64) => {
            DataType::UInt64
        }
        (Sum | SumExact, integer) if integer.is_integer() => DataType::Int64,
        (Sum | Avg, DataType::Duration { unit }) => DataType::Duration { unit: *unit },
        (Sum | SumExact | Avg, _) => DataType::Float64,
    };
    Gives { data_type, nullable: aggregate.function != Count }
}

/// What the value of a rank gives.
pub(super) fn ranked(value: &RankedValue) -> Gives {
    Gives { data_type: value.argument.data_type.clone(), nullable: true }
}
