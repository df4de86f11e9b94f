//! Casts between texts and other values, as SQL's other engines have them: a timestamp is written with a blank between date and time and
//! without zeros behind its fraction, an interval with its time as a clock shows it, lists, structs and maps with their values in them. And
//! a text with a point or an exponent is rounded where it is cast to a whole number. Arrow writes a `T`, has no text of a struct, and takes
//! digits alone.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringBuilder};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TryCast, Volatility,
};

use crate::call_rows::CallRows;

use super::written_values;

/// A node with its casts from and to texts mended.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let columns = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &columns)?);
    }
    let concerns = |expr: &Expr| expr.exists(|expr| Ok(text_cast(expr, &schema).is_some()));
    super::map_expressions(plan, concerns, |expr| {
        expr.transform_up(|expr| {
            let Some(how) = text_cast(&expr, &schema) else { return Ok(Transformed::no(expr)) };
            Ok(Transformed::yes(mended(expr, how)))
        })
    })
}

/// The function of what is cast that comes before a cast; nothing where it is one that stays. What has no type here is within a lambda.
fn text_cast(expr: &Expr, schema: &DFSchema) -> Option<How> {
    let (inner, to, is_tried) = match expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
        _ => return None,
    };
    // Numbers of 64 bits without a sign are beyond what comes between.
    let to_whole = to.is_integer() && *to != DataType::UInt64;
    if !to_whole && !to.is_string() {
        return None;
    }
    let from = inner.get_type(schema).ok()?;
    match to_whole {
        true if from.is_string() => Some(if is_tried { How::WholeOrNull } else { How::Whole }),
        false if written_values::is_written(&from) => Some(How::Text),
        _ => None,
    }
}

fn mended(mut expr: Expr, how: How) -> Expr {
    if let Expr::Cast(Cast { expr: inner, .. }) | Expr::TryCast(TryCast { expr: inner, .. }) = &mut expr {
        let value = std::mem::take(inner.as_mut());
        **inner = Expr::ScalarFunction(ScalarFunction::new_udf(how.function(), vec![value]));
    }
    expr
}

/// What a function makes of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum How {
    /// A text.
    Text,
    /// The whole number of a text; another text is an error.
    Whole,
    /// The whole number of a text, or NULL.
    WholeOrNull,
}

impl How {
    pub(crate) const ALL: [How; 3] = [How::Text, How::Whole, How::WholeOrNull];

    fn function(self) -> Arc<ScalarUDF> {
        static FUNCTIONS: LazyLock<[Arc<ScalarUDF>; 3]> =
            LazyLock::new(|| How::ALL.map(|how| Arc::new(ScalarUDF::new_from_impl(OfText::new(how)))));
        let [text, whole, or_null] = &*FUNCTIONS;
        Arc::clone(match self {
            How::Text => text,
            How::Whole => whole,
            How::WholeOrNull => or_null,
        })
    }
}

/// The function that comes before a cast from or to a text.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OfText {
    how: How,
    signature: Signature,
}

impl OfText {
    pub(crate) fn new(how: How) -> OfText {
        OfText { how, signature: Signature::any(1, Volatility::Immutable) }
    }

    /// What it makes of a value.
    pub(crate) fn how(&self) -> How {
        self.how
    }
}

impl ScalarUDFImpl for OfText {
    fn name(&self) -> &str {
        match self.how {
            How::Text => "kelpie_text",
            How::Whole => "kelpie_whole_number",
            How::WholeOrNull => "kelpie_whole_number_or_null",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.how {
            How::Text => DataType::Utf8,
            How::Whole | How::WholeOrNull => DataType::Int64,
        })
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable =
            self.how == How::WholeOrNull || arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&[])?, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = arguments.args.as_slice() else {
            return exec_err!("{} takes one argument, not {}", self.name(), arguments.args.len());
        };
        let rows = CallRows::of(&arguments);
        let values = value.to_array(rows.count)?;
        let made: ArrayRef = match self.how {
            How::Text => {
                let mut texts = StringBuilder::new();
                written_values::write_all(&values, &mut texts)?;
                Arc::new(texts.finish())
            }
            How::Whole => Arc::new(whole_numbers(&values, false)?),
            How::WholeOrNull => Arc::new(whole_numbers(&values, true)?),
        };
        rows.answer(made)
    }
}

/// The whole numbers of texts. Most are digits alone, which Arrow reads.
pub(super) fn whole_numbers(texts: &ArrayRef, is_tried: bool) -> Result<Int64Array> {
    let or_null = CastOptions { safe: true, ..CastOptions::default() };
    let read = cast_with_options(texts, &DataType::Int64, &or_null)?;
    let read = read.as_primitive::<Int64Type>();
    if read.null_count() == texts.logical_null_count() {
        return Ok(read.clone());
    }
    let texts = cast(texts, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let mut numbers = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        let number = match (texts.is_null(row), read.is_null(row)) {
            (true, _) => None,
            (false, false) => Some(read.value(row)),
            (false, true) => rounded(texts.value(row)),
        };
        if number.is_none() && texts.is_valid(row) && !is_tried {
            // The error is that of a cast.
            let strict = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(&texts.slice(row, 1), &DataType::Int64, &strict)?;
        }
        numbers.push(number);
    }
    Ok(Int64Array::from(numbers))
}

/// The whole number next to one that is written with a point or an exponent, half away from zero.
fn rounded(text: &str) -> Option<i64> {
    let text = text.trim();
    let (sign, text) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (if text.starts_with('-') { -1_i128 } else { 1 }, rest),
        None => (1, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let whole = without_separators(whole)?;
    if whole.is_empty() && fraction.is_empty() || !has_digits(&whole) || !has_digits(fraction) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).ok()?.checked_add(i64::from(exponent))?;
    let digit = |place: i64| usize::try_from(place).ok().and_then(|place| digits.as_bytes().get(place));
    let mut number: i128 = 0;
    if digits.bytes().any(|byte| byte != b'0') {
        for place in 0..point {
            let next = digit(place).map_or(0, |byte| i128::from(byte - b'0'));
            number = number.checked_mul(10)?.checked_add(next)?;
        }
    }
    if point >= 0 && digit(point).is_some_and(|byte| *byte >= b'5') {
        number += 1;
    }
    i64::try_from(sign * number).ok()
}

/// Digits without the underscores between them; nothing where one does not stand between two digits.
fn without_separators(digits: &str) -> Option<String> {
    let is_between = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    is_between.then(|| digits.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn texts_become_the_next_whole_number() {
        for (text, number) in [
            ("1.5", Some(2)),
            ("-2.5", Some(-3)),
            ("2.4999", Some(2)),
            ("1e3", Some(1000)),
            ("15e-1", Some(2)),
            ("5e-2", Some(0)),
            (".5", Some(1)),
            ("7.", Some(7)),
            ("1_000", Some(1000)),
            ("0e99", Some(0)),
            ("9223372036854775807.4", Some(i64::MAX)),
            ("9223372036854775807.5", None),
            ("-9223372036854775808.4", Some(i64::MIN)),
            ("1e19", None),
            ("1e999999999", None),
            ("", None),
            (".", None),
            ("e5", None),
            ("1_", None),
            ("1.2.3", None),
            ("--1", None),
        ] {
            assert_eq!(rounded(text), number, "{text}");
        }
    }
}
