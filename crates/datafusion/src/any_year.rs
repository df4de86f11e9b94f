//! DataFusion's `date_trunc` and `date_bin`, for times of any year.
//!
//! They compute in nanoseconds, which hold the years 1677 to 2262: of other years `date_trunc` fails, and `date_bin` gives NULL. The
//! calendar repeats every 400 years, to the day of the week, and so many years are within those: other times are moved there and back.

use std::hash::Hash;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type, TimeUnit};
use datafusion::common::{ExprSchema, ScalarValue, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::functions::datetime::{date_bin::DateBinFunc, date_trunc::DateTruncFunc};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use crate::options::KelpieOptions;

const DAY_SECONDS: i64 = 86_400;
/// 400 years.
const PERIOD_SECONDS: i64 = 146_097 * DAY_SECONDS;
/// The beginning of 1800, from which on 400 years are within what nanoseconds hold.
const FIRST_SECOND: i64 = -5_364_662_400;

/// One of these functions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AnyYear {
    inner: ScalarUDF,
    bins: bool,
}

impl AnyYear {
    /// Such a function for one of DataFusion's, where that is known to need it.
    pub fn of(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
        let implementation = function.inner().as_ref();
        let bins = implementation.is::<DateBinFunc>();
        let known = bins || implementation.is::<DateTruncFunc>();
        known.then(|| AnyYear { inner: function.as_ref().clone(), bins }.into())
    }

    /// DataFusion's function.
    pub fn inner(&self) -> &ScalarUDF {
        &self.inner
    }

    fn of_any_year(&self, args: &ScalarFunctionArgs, times: &ArrayRef) -> Result<Option<ColumnarValue>> {
        let DataType::Timestamp(unit, zone) = times.data_type() else { return Ok(None) };
        // The hours of a zone's summer are not those of 400 years ago.
        if !zone.as_deref().is_none_or(|zone| ["UTC", "Etc/UTC", "Z", "+00:00"].contains(&zone)) {
            return Ok(None);
        }
        let ticks = ticks_of_second(*unit);
        let (period, first) = (PERIOD_SECONDS * ticks, FIRST_SECOND * ticks);
        let values = cast(times, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        let shift = |value: i64| {
            let periods = (i128::from(value) - i128::from(first)).div_euclid(i128::from(period));
            periods * i128::from(period)
        };
        let moved: Int64Array =
            values.iter().map(|value| value.map(|value| (i128::from(value) - shift(value)) as i64)).collect();
        let mut args = args.clone();
        if let Some(argument) = args.args.get_mut(1) {
            *argument = ColumnarValue::Array(cast(&moved, times.data_type())?);
        }
        let rows = args.number_rows;
        let result = self.inner.invoke_with_args(args)?.into_array(rows)?;
        let result = cast(&result, &DataType::Int64)?;
        let back = result.as_primitive::<Int64Type>().iter().zip(values).map(|(result, value)| {
            let (Some(result), Some(value)) = (result, value) else { return Ok(None) };
            let back = i64::try_from(i128::from(result) + shift(value));
            back.map(Some).map_err(|_| exec_datafusion_err!("{} is beyond its type", self.inner.name()))
        });
        let back = back.collect::<Result<Int64Array>>()?;
        Ok(Some(ColumnarValue::Array(cast(&back, times.data_type())?)))
    }
}

fn ticks_of_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Whether bins of a width begin anew every 400 years.
fn repeats(width: &ColumnarValue) -> bool {
    const DAY_NS: i128 = DAY_SECONDS as i128 * 1_000_000_000;
    let (months, ns) = match width {
        ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width))) => {
            (i64::from(width.months), i128::from(width.days) * DAY_NS + i128::from(width.nanoseconds))
        }
        ColumnarValue::Scalar(ScalarValue::IntervalDayTime(Some(width))) => {
            (0, i128::from(width.days) * DAY_NS + i128::from(width.milliseconds) * 1_000_000)
        }
        ColumnarValue::Scalar(ScalarValue::IntervalYearMonth(Some(months))) => (i64::from(*months), 0),
        _ => return false,
    };
    match (months, ns) {
        (0, ns) => ns > 0 && i128::from(PERIOD_SECONDS) * 1_000_000_000 % ns == 0,
        (months, 0) => months > 0 && 4800 % months == 0,
        _ => false,
    }
}

impl ScalarUDFImpl for AnyYear {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(deprecated, reason = "it is asked for all the same")]
        self.inner.inner().is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.inner().preimage(args, literal, info)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = self.inner.invoke_with_args(args.clone());
        let coarse = |times: &&ColumnarValue| matches!(times.data_type(), DataType::Timestamp(unit, _) if unit != TimeUnit::Nanosecond);
        let Some(times) = args.args.get(1).filter(coarse) else { return result };
        let nulls = |times: &ColumnarValue| times.to_array(args.number_rows).map(|times| times.null_count());
        let is_complete = match &result {
            Ok(result) => !self.bins || nulls(result)? == nulls(times)?,
            Err(_) => false,
        };
        if is_complete || !KelpieOptions::of(&args.config_options).corrections {
            return result;
        }
        let can_move = !self.bins || (args.args.len() == 2 && args.args.first().is_some_and(repeats));
        let times = times.to_array(args.number_rows)?;
        match if can_move { self.of_any_year(&args, &times)? } else { None } {
            Some(moved) => Ok(moved),
            None => result,
        }
    }
}
