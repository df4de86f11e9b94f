//! Scalar functions.

use std::sync::Arc;

use datafusion::physical_expr::expressions::Literal as LiteralExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use kelpie_compile::context::Unsupported;
use kelpie_compile::expr::{DatePart, ExprKind, Function, Granularity, Regex, Search, Side};
use kelpie_compile::types::Literal;

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
        "btrim" | "trim" => Some(Function::Trim(Side::Both)),
        "ltrim" => Some(Function::Trim(Side::Left)),
        "rtrim" => Some(Function::Trim(Side::Right)),
        "left" => Some(Function::Left),
        "right" => Some(Function::Right),
        "starts_with" => Some(Function::Search(Search::StartsWith)),
        "ends_with" => Some(Function::Search(Search::EndsWith)),
        "contains" => Some(Function::Search(Search::Contains)),
        "strpos" | "instr" | "position" => Some(Function::Search(Search::Position)),
        "lpad" => Some(Function::Pad(Side::Left)),
        "rpad" => Some(Function::Pad(Side::Right)),
        "split_part" => Some(Function::SplitPart),
        "replace" => Some(Function::Replace),
        "repeat" => Some(Function::Repeat),
        "reverse" => Some(Function::Reverse),
        "concat" => Some(Function::Concat),
        "concat_ws" => Some(Function::ConcatWithSeparator),
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
        "regexp_like" => regexp_like(translator, call),
        "date_part" | "date_trunc" => date_function(translator, call),
        _ => {
            // The arguments' own reasons are wanted too.
            translator.exprs(call.args());
            translator.refuse(call, &format!("the function {name} is not compiled"))
        }
    }
}

fn regexp_like(translator: &mut ExprTranslator<'_>, call: &ScalarFunctionExpr) -> Option<ExprKind> {
    match call.args() {
        [input, pattern] => regex(translator, call, input, pattern, "", false),
        [input, pattern, flags] => match constant_text(flags) {
            Some(Some(flags)) => regex(translator, call, input, pattern, flags, false),
            // A pattern that is NULL gives NULL, flags that are NULL are none.
            Some(None) => regex(translator, call, input, pattern, "", false),
            None => {
                translator.expr(input);
                translator.refuse(call, "flags that are not constant are not compiled")
            }
        },
        _ => translator.refuse(call, "two or three arguments are expected"),
    }
}

/// The text of a constant, `Some(None)` where it is NULL; `None` where it is none.
fn constant_text(e: &Arc<dyn PhysicalExpr>) -> Option<Option<&str>> {
    let literal = e.downcast_ref::<LiteralExpr>()?;
    if literal.value().is_null() { Some(None) } else { literal.value().try_as_str() }
}

/// Whether a regular expression matches (`negated`: does not match) anywhere in a text.
pub(super) fn regex(
    translator: &mut ExprTranslator<'_>,
    shown: &dyn std::fmt::Display,
    input: &Arc<dyn PhysicalExpr>,
    pattern: &Arc<dyn PhysicalExpr>,
    flags: &str,
    negated: bool,
) -> Option<ExprKind> {
    let input = translator.expr(input);
    let regex = match constant_text(pattern) {
        Some(Some(pattern)) => Regex::new(pattern, flags),
        Some(None) => return Some(ExprKind::Literal(Literal::Null)),
        None => return translator.refuse(shown, "patterns that are not constant are not compiled"),
    };
    match regex {
        Ok(regex) => Some(ExprKind::Regex { input: Box::new(input?), regex, negated }),
        Err(Unsupported(reason)) => translator.refuse(shown, &reason),
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
