//! Scalar functions.

use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::Literal as LiteralExpr;
use kelpie_compile::expr::{DatePart, ExprKind, Function, Granularity};

use super::expr::{ExprTranslator, is_zoned};

/// A call, or a reason why it is not compiled.
pub(super) fn function(translator: &mut ExprTranslator<'_>, call: &ScalarFunctionExpr) -> Option<ExprKind> {
    let name = call.fun().name();
    let simple = match name {
        "coalesce" => Some(Function::Coalesce),
        "nullif" => Some(Function::NullIf),
        "substr" | "substring" => Some(Function::Substr),
        "character_length" | "char_length" | "length" => Some(Function::CharacterLength),
        "octet_length" => Some(Function::OctetLength),
        "upper" => Some(Function::Upper),
        "lower" => Some(Function::Lower),
        "abs" => Some(Function::Abs),
        "round" => Some(Function::Round),
        "floor" => Some(Function::Floor),
        "ceil" => Some(Function::Ceil),
        _ => None,
    };
    if let Some(function) = simple {
        return Some(ExprKind::Function(function, translator.exprs(call.args())?));
    }
    match name {
        "date_part" | "date_trunc" => date_function(translator, call),
        _ => {
            // The arguments' own reasons are wanted too.
            translator.exprs(call.args());
            translator.refuse(call, &format!("the function {name} is not compiled"))
        }
    }
}

fn date_function(translator: &mut ExprTranslator<'_>, call: &ScalarFunctionExpr) -> Option<ExprKind> {
    let [part, value] = call.args() else {
        return translator.refuse(call, "two arguments are expected");
    };
    let value = translator.expr(value)?;
    if is_zoned(&value.data_type) {
        return translator.refuse(call, "the calendar of a time zone is not compiled");
    }
    let part = part.downcast_ref::<LiteralExpr>().and_then(|part| part.value().try_as_str().flatten());
    let Some(part) = part.map(|part| part.trim_matches(['\'', '"']).to_ascii_lowercase()) else {
        return translator.refuse(call, "the part must be a constant");
    };
    let function = match call.fun().name() {
        "date_part" => date_part(&part).map(Function::DatePart),
        _ => granularity(&part).map(Function::DateTrunc),
    };
    match function {
        Some(function) => Some(ExprKind::Function(function, vec![value])),
        None => translator.refuse(call, &format!("the part '{part}' is not compiled")),
    }
}

fn date_part(part: &str) -> Option<DatePart> {
    Some(match part {
        "year" | "years" => DatePart::Year,
        "quarter" | "quarters" => DatePart::Quarter,
        "month" | "months" => DatePart::Month,
        "week" | "weeks" => DatePart::Week,
        "day" | "days" => DatePart::Day,
        "dow" => DatePart::DayOfWeek,
        "doy" => DatePart::DayOfYear,
        "hour" | "hours" => DatePart::Hour,
        "minute" | "minutes" => DatePart::Minute,
        "second" | "seconds" => DatePart::Second,
        "millisecond" | "milliseconds" => DatePart::Millisecond,
        "microsecond" | "microseconds" => DatePart::Microsecond,
        "nanosecond" | "nanoseconds" => DatePart::Nanosecond,
        "epoch" => DatePart::Epoch,
        _ => return None,
    })
}

fn granularity(part: &str) -> Option<Granularity> {
    Some(match part {
        "year" => Granularity::Year,
        "quarter" => Granularity::Quarter,
        "month" => Granularity::Month,
        "week" => Granularity::Week,
        "day" => Granularity::Day,
        "hour" => Granularity::Hour,
        "minute" => Granularity::Minute,
        "second" => Granularity::Second,
        "millisecond" => Granularity::Millisecond,
        "microsecond" => Granularity::Microsecond,
        _ => return None,
    })
}
