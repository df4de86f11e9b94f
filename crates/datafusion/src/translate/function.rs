//! Scalar functions.

use std::any::{Any, TypeId};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::ScalarValue;
use datafusion::functions::{
    all_default_functions, core, datetime, math, regex as regex_functions, string, unicode,
};
use datafusion::logical_expr::{ScalarUDF, ScalarUDFImpl};
use datafusion::physical_expr::expressions::Literal as LiteralExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use kelpie_compile::context::Unsupported;
use kelpie_compile::expr::{
    ArithmeticOp, Bins, DatePart, Expr, ExprKind, Function, Granularity, Regex, Search, Side, columns_read,
};
use kelpie_compile::types::Literal;

use super::expr::{ExprTranslator, align, is_zoned};
use crate::any_year::AnyYear;
use crate::corrections::exact::{Exact, ExactOp};
use crate::corrections::nan::OneNan;
use crate::corrections::texts::{How, OfText};
use crate::corrections::zeros::OneZero;
use crate::types;
use crate::zones::ticks_of_second;

/// The function that an implementation is, if it is one of DataFusion's own: a session may have another one of the same
/// name, so names tell nothing.
fn simple(implementation: &dyn ScalarUDFImpl) -> Option<Function> {
    macro_rules! known {
        ($($name:ty => $function:expr,)*) => {
            $(if implementation.is::<$name>() {
                return Some($function);
            })*
        };
    }
    known! {
        OneNan => Function::OneNan,
        core::coalesce::CoalesceFunc => Function::Coalesce,
        core::nullif::NullIfFunc => Function::NullIf,
        core::greatest::GreatestFunc => Function::Greatest,
        core::least::LeastFunc => Function::Least,
        unicode::substr::SubstrFunc => Function::Substr,
        unicode::character_length::CharacterLengthFunc => Function::CharacterLength,
        unicode::left::LeftFunc => Function::Left,
        unicode::right::RightFunc => Function::Right,
        unicode::strpos::StrposFunc => Function::Search(Search::Position),
        unicode::lpad::LPadFunc => Function::Pad(Side::Left),
        unicode::rpad::RPadFunc => Function::Pad(Side::Right),
        unicode::reverse::ReverseFunc => Function::Reverse,
        string::octet_length::OctetLengthFunc => Function::OctetLength,
        string::upper::UpperFunc => Function::Upper,
        string::lower::LowerFunc => Function::Lower,
        unicode::initcap::InitcapFunc => Function::InitialCapitals,
        unicode::translate::TranslateFunc => Function::Translate,
        string::btrim::BTrimFunc => Function::Trim(Side::Both),
        string::ltrim::LtrimFunc => Function::Trim(Side::Left),
        string::rtrim::RtrimFunc => Function::Trim(Side::Right),
        string::starts_with::StartsWithFunc => Function::Search(Search::StartsWith),
        string::ends_with::EndsWithFunc => Function::Search(Search::EndsWith),
        string::contains::ContainsFunc => Function::Search(Search::Contains),
        string::split_part::SplitPartFunc => Function::SplitPart,
        string::replace::ReplaceFunc => Function::Replace,
        string::repeat::RepeatFunc => Function::Repeat,
        string::concat::ConcatFunc => Function::Concat,
        string::concat_ws::ConcatWsFunc => Function::ConcatWithSeparator,
        math::abs::AbsFunc => Function::Abs,
        math::round::RoundFunc => Function::Round,
        math::floor::FloorFunc => Function::Floor,
        math::ceil::CeilFunc => Function::Ceil,
        math::trunc::TruncFunc => Function::Trunc,
    }
    None
}

/// The zero without a sign: -0.0 + 0.0 is 0.0, and every other value stays what it is.
fn one_zero(translator: &mut ExprTranslator<'_>, call: &ScalarFunctionExpr) -> Option<ExprKind> {
    let operands = translator.exprs(call.args())?;
    match <[Expr; 1]>::try_from(operands) {
        Ok([value]) if value.data_type.is_float() => {
            let zero = Expr::literal(Literal::Float(0.0), value.data_type.clone());
            Some(ExprKind::Arithmetic(ArithmeticOp::Add, Box::new(value), Box::new(zero)))
        }
        _ => translator.refuse(call, "one float is expected"),
    }
}

/// A call, or a reason why it is not compiled.
pub(super) fn function(translator: &mut ExprTranslator<'_>, call: &ScalarFunctionExpr) -> Option<ExprKind> {
    // Kernels give what DataFusion's function gives, and leave the rest to the other.
    let any_year = call.fun().inner().downcast_ref::<AnyYear>();
    let of_datafusion = any_year.map_or_else(|| call.fun(), AnyYear::inner);
    let implementation = of_datafusion.inner().as_ref();
    if let Some(exact) = implementation.downcast_ref::<Exact>() {
        let op = match exact.op() {
            ExactOp::Add => ArithmeticOp::AddExact,
            ExactOp::Subtract => ArithmeticOp::SubtractExact,
            ExactOp::Multiply => ArithmeticOp::MultiplyExact,
        };
        let operands = translator.exprs(call.args())?;
        return match <[Expr; 2]>::try_from(operands) {
            Ok([left, right]) => Some(ExprKind::Arithmetic(op, Box::new(left), Box::new(right))),
            Err(_) => translator.refuse(call, "two operands are expected"),
        };
    }
    if implementation.is::<OneZero>() {
        return one_zero(translator, call);
    }
    if implementation.downcast_ref::<OfText>().is_some_and(|of_text| of_text.how() == How::Whole)
        && let [text] = call.args()
    {
        // Digits alone are read; what else there is fails, and DataFusion's operators do it.
        return Some(ExprKind::Cast { input: Box::new(translator.expr(text)?), safe: false });
    }
    if let Some(function) = simple(implementation) {
        return simple_call(translator, call, function);
    }
    if implementation.is::<regex_functions::regexplike::RegexpLikeFunc>() {
        return regexp_like(translator, call);
    }
    if implementation.is::<datetime::date_part::DatePartFunc>() {
        return date_function(translator, call, |part| date_part(part).map(Function::DatePart));
    }
    if implementation.is::<datetime::date_trunc::DateTruncFunc>() {
        return date_function(translator, call, |part| {
            granularity(&part.to_lowercase()).map(Function::DateTrunc)
        });
    }
    if any_year.is_some()
        && implementation.is::<datetime::date_bin::DateBinFunc>()
        && let Some(bins) = bins(call)
    {
        let times = translator.expr(call.args().get(1)?)?;
        return Some(ExprKind::Function(Function::DateBin(bins), vec![times]));
    }
    if let Some(kind) = moment(translator, call, of_datafusion) {
        return Some(kind);
    }
    // The arguments' own reasons are wanted too.
    translator.exprs(call.args());
    let name = call.fun().name();
    let is_same = |function: &Arc<ScalarUDF>| implementation_id(function) == implementation_id(of_datafusion);
    let known = all_default_functions();
    let why = match known.iter().any(|function| function.name() == name) && !known.iter().any(is_same) {
        true => format!("{name} is the session's own function, not DataFusion's"),
        false => format!("the function {name} is not compiled"),
    };
    translator.refuse(call, &why)
}

/// The bins of a call of `date_bin` whose width is a constant number of the times' ticks, from a constant origin.
fn bins(call: &ScalarFunctionExpr) -> Option<Bins> {
    let constant =
        |argument: &Arc<dyn PhysicalExpr>| Some(argument.downcast_ref::<LiteralExpr>()?.value().clone());
    let ArrowType::Timestamp(unit, _) = call.return_type() else { return None };
    let tick = 1_000_000_000 / i128::from(ticks_of_second(*unit));
    let ticks = |ns: i128| (ns % tick == 0).then(|| i64::try_from(ns / tick).ok())?;
    let (width, origin) = match call.args() {
        [width, _] => (width, 0),
        [width, _, origin] => (width, timestamp_ns(&constant(origin)?)?),
        _ => return None,
    };
    let ScalarValue::IntervalMonthDayNano(Some(width)) = constant(width)? else { return None };
    let ns = i128::from(width.days) * 86_400_000_000_000 + i128::from(width.nanoseconds);
    let is_even = width.months == 0 && ns > 0;
    is_even.then(|| Some(Bins { width: ticks(ns)?, first: ticks(origin.rem_euclid(ns))? }))?
}

/// Nanoseconds since 1970.
fn timestamp_ns(time: &ScalarValue) -> Option<i128> {
    let (ticks, in_tick) = match time {
        ScalarValue::TimestampSecond(ticks, _) => (ticks, 1_000_000_000),
        ScalarValue::TimestampMillisecond(ticks, _) => (ticks, 1_000_000),
        ScalarValue::TimestampMicrosecond(ticks, _) => (ticks, 1_000),
        ScalarValue::TimestampNanosecond(ticks, _) => (ticks, 1),
        _ => return None,
    };
    ticks.map(|ticks| i128::from(ticks) * in_tick)
}

/// A number of seconds, milliseconds, microseconds or nanoseconds as a timestamp of that unit.
fn moment(
    translator: &mut ExprTranslator<'_>,
    call: &ScalarFunctionExpr,
    of_datafusion: &ScalarUDF,
) -> Option<ExprKind> {
    use datetime::to_timestamp::{
        ToTimestampMicrosFunc, ToTimestampMillisFunc, ToTimestampNanosFunc, ToTimestampSecondsFunc,
    };
    let implementation = of_datafusion.inner().as_ref();
    let is_known = implementation.is::<ToTimestampSecondsFunc>()
        || implementation.is::<ToTimestampMillisFunc>()
        || implementation.is::<ToTimestampMicrosFunc>()
        || implementation.is::<ToTimestampNanosFunc>();
    let ([number], true) = (call.args(), is_known) else { return None };
    let in_a_zone = matches!(call.return_type(), ArrowType::Timestamp(_, Some(_)));
    if in_a_zone || !number.data_type(translator.schema).is_ok_and(|number| number.is_integer()) {
        return None;
    }
    Some(ExprKind::Cast { input: Box::new(translator.expr(number)?), safe: false })
}

/// What tells implementations apart.
fn implementation_id(function: &ScalarUDF) -> TypeId {
    let implementation: &dyn Any = function.inner().as_ref();
    implementation.type_id()
}

fn simple_call(
    translator: &mut ExprTranslator<'_>,
    call: &ScalarFunctionExpr,
    function: Function,
) -> Option<ExprKind> {
    let mut arguments = translator.exprs(call.args())?;
    match function {
        // DataFusion's planner can leave decimals of several scales here.
        Function::Coalesce | Function::NullIf | Function::Greatest | Function::Least => {
            let result = types::data_type(call.return_type())?;
            for argument in &mut arguments {
                align(translator, call, argument, &result)?;
            }
        }
        // The one value of all rows is truncated by another rule there, which keeps the sign of zeros.
        Function::Trunc if columns_read(arguments.first()?).is_empty() => {
            return translator.refuse(call, "trunc of a constant is not compiled");
        }
        _ => {}
    }
    Some(ExprKind::Function(function, arguments))
}

fn regexp_like(translator: &mut ExprTranslator<'_>, call: &ScalarFunctionExpr) -> Option<ExprKind> {
    match call.args() {
        [input, pattern] => regex(translator, call, (input, pattern), RegexMatch::default()),
        [input, pattern, flags] => match constant_text(flags) {
            Some(Some(flags)) => {
                regex(translator, call, (input, pattern), RegexMatch { flags, negated: false })
            }
            // A pattern that is NULL gives NULL, flags that are NULL are none.
            Some(None) => regex(translator, call, (input, pattern), RegexMatch::default()),
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

/// How a regular expression is matched.
#[derive(Clone, Copy, Default)]
pub(super) struct RegexMatch<'a> {
    pub flags: &'a str,
    /// Whether it does not match is asked.
    pub negated: bool,
}

/// Whether a regular expression matches anywhere in a text.
pub(super) fn regex(
    translator: &mut ExprTranslator<'_>,
    shown: &dyn std::fmt::Display,
    (input, pattern): (&Arc<dyn PhysicalExpr>, &Arc<dyn PhysicalExpr>),
    RegexMatch { flags, negated }: RegexMatch<'_>,
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

fn date_function(
    translator: &mut ExprTranslator<'_>,
    call: &ScalarFunctionExpr,
    function: impl FnOnce(&str) -> Option<Function>,
) -> Option<ExprKind> {
    let [part, value] = call.args() else {
        return translator.refuse(call, "two arguments are expected");
    };
    let value = translator.expr(value)?;
    if is_zoned(&value.data_type) {
        return translator.refuse(call, "the calendar of a time zone is not compiled");
    }
    let Some(part) = part.downcast_ref::<LiteralExpr>().and_then(|part| part.value().try_as_str().flatten())
    else {
        return translator.refuse(call, "the part must be a constant");
    };
    match function(part) {
        Some(function) => Some(ExprKind::Function(function, vec![value])),
        None => translator.refuse(call, &format!("the part '{part}' is not compiled")),
    }
}

/// The part of a name as DataFusion reads it: in one pair of quotes or none, of any case, with Arrow's synonyms.
fn date_part(name: &str) -> Option<DatePart> {
    let quotes = ['\'', '"'];
    let name = name.strip_prefix(quotes).and_then(|name| name.strip_suffix(quotes)).unwrap_or(name);
    Some(match name.to_lowercase().as_str() {
        "y" | "yr" | "yrs" | "year" | "years" => DatePart::Year,
        "isoyear" => DatePart::IsoYear,
        "qtr" | "quarter" => DatePart::Quarter,
        "mon" | "mons" | "month" | "months" => DatePart::Month,
        "w" | "week" | "weeks" => DatePart::Week,
        "d" | "day" | "days" => DatePart::Day,
        "dow" => DatePart::DayOfWeek,
        "isodow" => DatePart::IsoDayOfWeek,
        "doy" => DatePart::DayOfYear,
        "h" | "hr" | "hrs" | "hour" | "hours" => DatePart::Hour,
        "m" | "min" | "mins" | "minute" | "minutes" => DatePart::Minute,
        "s" | "sec" | "secs" | "second" | "seconds" => DatePart::Second,
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
