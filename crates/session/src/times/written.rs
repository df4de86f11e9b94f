//! Times as people write them: `'2024-01-31 10:00'`, `'2024-1-5'`, `'2024/01/05 9:30'`, `' 2024-01-05 '`.
//!
//! DataFusion reads a time only with its seconds, and dates of two digits a part. PostgreSQL and DuckDB read these, too, so texts that are
//! read as times are completed before: constants in the statement, and texts of rows where they are cast to a timestamp or a time of day.
//! A text of digits alone is no time of day, though Arrow takes it for nanoseconds; and as an interval it is seconds, and no months.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, LargeStringArray, StringArray, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_datafusion_err, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::expr::{Between, BinaryExpr, InList, ScalarFunction};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, TryCast, Volatility,
};

use super::OF_TIMES;
use super::operands::{is_text_of_row, text};
use super::written_intervals::in_known_units;

/// Whether an expression, apart from those in it, may read a text as a time.
pub(super) fn may_read(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
            is_time(field.data_type()) || is_interval(field.data_type())
        }
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => is_written(left) || is_written(right),
        Expr::Between(Between { low, high, .. }) => is_written(low) || is_written(high),
        Expr::InList(InList { list, .. }) => list.iter().any(is_written),
        Expr::ScalarFunction(call) => OF_TIMES.contains(&call.func.name()) || is_cast_to_timestamp(call),
        _ => false,
    }
}

/// The expression with the texts completed that it reads as times.
pub(super) fn completed_expr(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_tried = matches!(expr, Expr::TryCast(_));
    let changed = match &mut expr {
        Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })
            if is_time(field.data_type()) =>
        {
            let reads = match field.data_type() {
                DataType::Time32(_) | DataType::Time64(_) => Reads::TimeOfDay { is_tried },
                _ => Reads::Time,
            };
            if matches!(reads, Reads::TimeOfDay { .. }) && text(inner).is_some_and(is_number) {
                reads.wrap(inner);
                true
            } else {
                complete_constant(inner)
                    || (reads_rows(field.data_type()) && complete_rows(inner, schema, reads))
            }
        }
        Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })
            if is_interval(field.data_type()) =>
        {
            match text(inner).map(written_interval) {
                Some(Some(written)) => {
                    **inner = Expr::Literal(ScalarValue::Utf8(Some(written)), None);
                    true
                }
                Some(None) => false,
                None => complete_rows(inner, schema, Reads::Interval),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => complete_beside(&mut [left, right], schema),
        Expr::Between(Between { expr, low, high, .. }) => complete_beside(&mut [expr, low, high], schema),
        Expr::InList(InList { expr, list, .. }) => {
            let mut operands = vec![expr.as_mut()];
            operands.extend(list.iter_mut());
            complete_beside(&mut operands, schema)
        }
        Expr::ScalarFunction(call) if is_cast_to_timestamp(call) => match call.args.first_mut() {
            Some(time) => complete_constant(time) || complete_rows(time, schema, Reads::Time),
            None => false,
        },
        Expr::ScalarFunction(call) if OF_TIMES.contains(&call.func.name()) => {
            call.args.iter_mut().skip(1).fold(false, |changed, time| complete_constant(time) | changed)
        }
        _ => false,
    };
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
        || matches!(data_type, DataType::Time32(_) | DataType::Time64(_))
}

/// Whether a call is one that `::timestamp_ns` is written as.
fn is_cast_to_timestamp(call: &ScalarFunction) -> bool {
    let to = call.args.get(1).and_then(text);
    call.func.name() == "arrow_cast" && to.is_some_and(|to| to.starts_with("Timestamp("))
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_))
}

/// Dates of rows are read by compiled code, which knows what DataFusion reads.
fn reads_rows(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Date32 | DataType::Date64)
}

fn is_written(expr: &Expr) -> bool {
    text(expr).is_some()
}

/// Completes the constants among operands of which one is a time.
fn complete_beside(operands: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let is_constant = |expr: &&mut Expr| is_written(expr);
    let of_time = |expr: &&mut Expr| expr.get_type(schema).is_ok_and(|data_type| is_time(&data_type));
    if !operands.iter().any(is_constant) || !operands.iter().any(of_time) {
        return false;
    }
    operands.iter_mut().fold(false, |changed, operand| complete_constant(operand) | changed)
}

fn complete_constant(expr: &mut Expr) -> bool {
    let Some(complete) = text(expr).and_then(complete) else { return false };
    let Expr::Literal(value, _) = expr else { return false };
    *value = match value {
        ScalarValue::LargeUtf8(_) => ScalarValue::LargeUtf8(Some(complete)),
        ScalarValue::Utf8View(_) => ScalarValue::Utf8View(Some(complete)),
        _ => ScalarValue::Utf8(Some(complete)),
    };
    true
}

fn complete_rows(expr: &mut Expr, schema: &DFSchema, reads: Reads) -> bool {
    let is_complete = |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if call.func.inner().as_ref().is::<Complete>());
    if is_complete(expr) || !is_text_of_row(expr, schema) {
        return false;
    }
    reads.wrap(expr);
    true
}

/// What texts of rows are read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reads {
    /// A timestamp.
    Time,
    /// A time of day; another text is NULL where that is tried.
    TimeOfDay {
        is_tried: bool,
    },
    Interval,
}

impl Reads {
    const ALL: [Reads; 4] = [
        Reads::Time,
        Reads::TimeOfDay { is_tried: false },
        Reads::TimeOfDay { is_tried: true },
        Reads::Interval,
    ];

    /// Puts the function around a text that makes one of it that Arrow reads so.
    fn wrap(self, text: &mut Expr) {
        static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 4]> = LazyLock::new(|| {
            let signature = || Signature::any(1, Volatility::Immutable);
            Reads::ALL.map(|reads| Arc::new(ScalarUDF::from(Complete { reads, signature: signature() })))
        });
        let [time, of_day, of_day_or_null, interval] = &*FUNCTIONS;
        let function = match self {
            Reads::Time => time,
            Reads::TimeOfDay { is_tried: false } => of_day,
            Reads::TimeOfDay { is_tried: true } => of_day_or_null,
            Reads::Interval => interval,
        };
        let function = ScalarFunction::new_udf(Arc::clone(function), vec![std::mem::take(text)]);
        *text = Expr::ScalarFunction(function);
    }

    /// The text that Arrow reads, NULL where it is to read none.
    fn made_of(self, text: &str) -> Result<Option<String>> {
        let made = match self {
            Reads::TimeOfDay { is_tried: true } if is_number(text) => return Ok(None),
            Reads::TimeOfDay { is_tried: false } if is_number(text) => {
                // The error is that of other texts.
                let what = format!("Cannot cast string '{text}' to value of Time64(ns) type");
                return Err(DataFusionError::ArrowError(Box::new(ArrowError::CastError(what)), None));
            }
            Reads::Interval => written_interval(text),
            Reads::Time | Reads::TimeOfDay { .. } => complete(text),
        };
        Ok(Some(made.unwrap_or_else(|| text.into())))
    }

    /// Whether a text is surely read as it is.
    fn is_usual(self, text: &str) -> bool {
        match self {
            Reads::Time => is_usual(text),
            Reads::TimeOfDay { .. } => !is_number(text) && is_usual(text),
            Reads::Interval => false,
        }
    }
}

/// Whether a text is a whole number, which Arrow takes for ticks of a time of day.
fn is_number(text: &str) -> bool {
    text.trim().parse::<i128>().is_ok()
}

/// An interval as Arrow reads it: a number without a unit is seconds, and a time of day is one of `10:11:12`. `None` for what is so already.
fn written_interval(text: &str) -> Option<String> {
    let number = text.trim();
    let has_digits = number.bytes().any(|byte| byte.is_ascii_digit());
    if has_digits && number.bytes().all(|byte| byte.is_ascii_digit() || b"+-.".contains(&byte)) {
        return Some(format!("{} seconds", number.trim_start_matches('+')));
    }
    // What has an unknown unit is no interval to Arrow either.
    in_known_units(text).ok().flatten()
}

/// The function that completes texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Complete {
    reads: Reads,
    signature: Signature,
}

impl ScalarUDFImpl for Complete {
    fn name(&self) -> &str {
        match self.reads {
            Reads::Time => "kelpie_complete_time",
            Reads::TimeOfDay { is_tried: false } => "kelpie_complete_time_of_day",
            Reads::TimeOfDay { is_tried: true } => "kelpie_complete_time_of_day_or_null",
            Reads::Interval => "kelpie_complete_interval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(argument.clone()),
            _ => exec_err!("a text is missing"),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = arguments.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let may_be_null = self.reads == Reads::TimeOfDay { is_tried: true };
        let nullable = may_be_null || arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Array(texts)) => {
                Ok(ColumnarValue::Array(completed_texts(texts, self.reads)?))
            }
            Some(ColumnarValue::Scalar(value)) => {
                let texts = completed_texts(&value.to_array()?, self.reads)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?))
            }
            None => Err(exec_datafusion_err!("a text is missing")),
        }
    }
}

/// The texts with those completed that need it; the same array where none does.
fn completed_texts(texts: &ArrayRef, reads: Reads) -> Result<ArrayRef> {
    macro_rules! completed {
        ($of_type:expr, $kind:ty) => {{
            let of_type = $of_type;
            if of_type.iter().flatten().all(|text| reads.is_usual(text)) {
                return Ok(Arc::clone(texts));
            }
            let made = of_type.iter().map(|text| text.map_or(Ok(None), |text| reads.made_of(text)));
            Arc::new(made.collect::<Result<$kind>>()?) as ArrayRef
        }};
    }
    Ok(match texts.data_type() {
        DataType::Utf8 => completed!(texts.as_string::<i32>(), StringArray),
        DataType::LargeUtf8 => completed!(texts.as_string::<i64>(), LargeStringArray),
        DataType::Utf8View => completed!(texts.as_string_view(), StringViewArray),
        _ => Arc::clone(texts),
    })
}

/// Whether a text is surely one that needs no completion: a date with two digits a part, and seconds behind minutes.
fn is_usual(text: &str) -> bool {
    let bytes = text.as_bytes();
    let at = |place: usize, sign: u8| bytes.get(place) == Some(&sign);
    at(4, b'-') && at(7, b'-') && (bytes.len() == 10 || (at(13, b':') && at(16, b':')))
}

/// A time with what is left out: zeros before single digits, seconds, `-` for `/`. `None` for what is complete, or no time.
fn complete(text: &str) -> Option<String> {
    let mut rest = text.trim();
    let mut made = String::with_capacity(20);
    if let Some((year, behind)) = digits(rest, 4..=4)
        && let Some(sign) = behind.chars().next().filter(|sign| ['-', '/'].contains(sign))
    {
        let (month, behind) = digits(&behind[1..], 1..=2)?;
        let (day, behind) = digits(behind.strip_prefix(sign)?, 1..=2)?;
        write!(made, "{year}-{month:0>2}-{day:0>2}").ok()?;
        rest = behind;
        if !rest.is_empty() {
            rest = rest.strip_prefix(['T', 't', ' '])?.trim_start();
            made.push(' ');
        }
    }
    if !rest.is_empty() {
        let (hour, behind) = digits(rest, 1..=2)?;
        let (minute, behind) = digits(behind.strip_prefix(':')?, 1..=2)?;
        let (second, behind) = match behind.strip_prefix(':') {
            Some(behind) => digits(behind, 1..=2)?,
            None => ("0", behind),
        };
        // What comes then is a fraction, an offset or a zone.
        if !behind.is_empty() && !behind.starts_with(['.', '+', '-', 'Z', 'z', ' ']) {
            return None;
        }
        write!(made, "{hour:0>2}:{minute:0>2}:{second:0>2}{behind}").ok()?;
    }
    (made != text && !made.is_empty()).then_some(made)
}

/// The digits that a text begins with, as many as are allowed, and what is behind them.
fn digits(text: &str, allowed: std::ops::RangeInclusive<usize>) -> Option<(&str, &str)> {
    let count = text.bytes().take_while(u8::is_ascii_digit).count();
    allowed.contains(&count).then(|| text.split_at(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_completed() {
        let cases = [
            ("2024-01-31 10:00", "2024-01-31 10:00:00"),
            ("2024-1-5", "2024-01-05"),
            ("2024/01/05 9:30", "2024-01-05 09:30:00"),
            (" 2024-01-05 ", "2024-01-05"),
            ("2024-01-05T1:2:3.5+02", "2024-01-05 01:02:03.5+02"),
            ("2024-01-05 10:00Z", "2024-01-05 10:00:00Z"),
            ("2024-01-05 10:00 Europe/Berlin", "2024-01-05 10:00:00 Europe/Berlin"),
            ("10:00", "10:00:00"),
            ("1:2:3", "01:02:03"),
        ];
        for (text, made) in cases {
            assert_eq!(complete(text).as_deref(), Some(made), "{text}");
        }
    }

    #[test]
    fn other_texts_stay() {
        let texts =
            ["2024-01-31", "2024-01-31 10:00:00", "10:00:00", "", "x", "2024", "24-1-5", "2024-1/5", "1-2-3"];
        for text in
            texts.into_iter().chain(["2024-01-31 10", "2024-01-31x", "10:00x", "2024-123-1", "+10:00", "ä"])
        {
            assert_eq!(complete(text), None, "{text}");
        }
    }

    #[test]
    fn intervals_without_a_unit_are_seconds() {
        let cases = [
            ("1", Some("1 seconds")),
            (" -1.5 ", Some("-1.5 seconds")),
            ("+2", Some("2 seconds")),
            ("10:11:12", Some("36672000000000 nanoseconds")),
            ("2 quarters", Some("6 months")),
            ("1 day", None),
            ("", None),
            ("-", None),
            ("abc", None),
            ("1 parsec", None),
        ];
        for (text, made) in cases {
            assert_eq!(written_interval(text).as_deref(), made, "{text}");
        }
    }

    #[test]
    fn digits_are_no_time_of_day() {
        let tried = Reads::TimeOfDay { is_tried: true };
        assert_eq!(tried.made_of("-5").expect("tried"), None);
        assert_eq!(tried.made_of("9:30").expect("tried").as_deref(), Some("09:30:00"));
        assert_eq!(tried.made_of("x").expect("tried").as_deref(), Some("x"));
        let strict = Reads::TimeOfDay { is_tried: false };
        assert!(strict.made_of("99999999999").is_err());
        assert!(strict.made_of("+5").is_err());
        assert_eq!(strict.made_of("10:00:00").expect("a time").as_deref(), Some("10:00:00"));
    }

    #[test]
    fn arrays_in_which_nothing_is_left_out_are_not_copied() {
        let usual: ArrayRef = Arc::new(StringArray::from(vec![Some("2024-01-31 10:00:00"), None]));
        assert!(Arc::ptr_eq(&usual, &completed_texts(&usual, Reads::Time).expect("texts")));
        let other: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("2024-01-31 10:00"), None, Some("x")]));
        let expected: ArrayRef =
            Arc::new(StringViewArray::from(vec![Some("2024-01-31 10:00:00"), None, Some("x")]));
        assert_eq!(&completed_texts(&other, Reads::Time).expect("texts"), &expected);
    }
}
