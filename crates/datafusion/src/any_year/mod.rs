//! DataFusion's functions of times, for times of any year.
//!
//! They compute in nanoseconds, which hold the years 1677 to 2262: of other years `date_trunc` fails, `date_bin` gives NULL, and texts are
//! not read. The calendar repeats every 400 years, to the day of the week, and so many years are within those: other times are moved
//! there and back, by the clocks of their zone. Bins are computed here, from origins of any unit.

mod bins;
mod seconds;
mod years;

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{ExprSchema, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::functions::datetime::to_timestamp::{
    ToTimestampMicrosFunc, ToTimestampMillisFunc, ToTimestampSecondsFunc,
};
use datafusion::functions::datetime::to_unixtime::ToUnixtimeFunc;
use datafusion::functions::datetime::{date_bin::DateBinFunc, date_trunc::DateTruncFunc};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

pub use self::bins::{date_of, first_of};
use crate::function_methods::of_inner;
use crate::options::KelpieOptions;
use crate::zones::{Zone, ticks_of_second};

const DAY_SECONDS: i64 = 86_400;
/// Days of 400 years, which is after how many the calendar repeats itself.
const PERIOD_DAYS: i64 = 146_097;
const PERIOD_SECONDS: i64 = PERIOD_DAYS * DAY_SECONDS;
/// The beginning of 1800, from which on 400 years are within what nanoseconds hold.
const FIRST_SECOND: i64 = -5_364_662_400;

/// What DataFusion's function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Does {
    Truncates,
    Bins,
    /// Reads texts as times of a unit that is not nanoseconds.
    Reads,
}

/// One of these functions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AnyYear {
    inner: ScalarUDF,
    does: Does,
    signature: Signature,
}

impl AnyYear {
    /// Such a function for one of DataFusion's, where that is known to need it.
    pub fn of(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
        let implementation = function.inner().as_ref();
        let does = if implementation.is::<DateBinFunc>() {
            Does::Bins
        } else if implementation.is::<DateTruncFunc>() {
            Does::Truncates
        } else if implementation.is::<ToTimestampSecondsFunc>()
            || implementation.is::<ToTimestampMillisFunc>()
            || implementation.is::<ToTimestampMicrosFunc>()
            || implementation.is::<ToUnixtimeFunc>()
        {
            Does::Reads
        } else {
            return None;
        };
        Some(AnyYear::wrapping(function.as_ref().clone(), does))
    }

    fn wrapping(inner: ScalarUDF, does: Does) -> ScalarUDF {
        let signature = match does {
            Does::Bins => Signature::user_defined(Volatility::Immutable),
            Does::Truncates | Does::Reads => inner.signature().clone(),
        };
        AnyYear { inner, does, signature }.into()
    }

    /// DataFusion's function.
    pub fn inner(&self) -> &ScalarUDF {
        &self.inner
    }

    /// What DataFusion's function gives for the same times of other years, moved back.
    fn of_any_year(&self, args: &ScalarFunctionArgs, times: &ArrayRef) -> Result<Option<ColumnarValue>> {
        let DataType::Timestamp(unit, zone) = times.data_type() else { return Ok(None) };
        // The hours of a zone's summer are not those of 400 years ago.
        if let Some(zone) = zone.as_deref().filter(|zone| !["UTC", "Etc/UTC", "Z", "+00:00"].contains(zone)) {
            return self.of_local_times(args, times, (*unit, zone));
        }
        if let Some(years) = years::years_of(args) {
            return Ok(Some(ColumnarValue::Array(years::truncated(times, *unit, years)?)));
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
        let args = with_times(args, cast(&moved, times.data_type())?);
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

    /// The same by the clocks of a zone.
    fn of_local_times(
        &self,
        args: &ScalarFunctionArgs,
        times: &ArrayRef,
        (unit, zone): (TimeUnit, &str),
    ) -> Result<Option<ColumnarValue>> {
        let zone = Zone(zone.into());
        let (local, utc) =
            (DataType::Timestamp(unit, None), DataType::Timestamp(unit, Some("+00:00".into())));
        let moments = cast(&cast(times, &utc)?, &DataType::Int64)?;
        let moments = moments.as_primitive::<Int64Type>();
        let clock = zone.local(moments, unit)?;
        let shown: ArrayRef = cast(&clock, &local)?;
        let Some(cut) = self.of_any_year(&with_times(args, Arc::clone(&shown)), &shown)? else {
            return Ok(None);
        };
        let cut = cast(&cut.into_array(args.number_rows)?, &DataType::Int64)?;
        let cut = cut.as_primitive::<Int64Type>();
        let within_hour = matches!(args.args.first(), Some(ColumnarValue::Scalar(part)) if part.try_as_str()
            .flatten().is_some_and(|part| PARTS_OF_HOURS.contains(&part.to_lowercase().as_str())));
        let back: Int64Array = match within_hour {
            // An hour that comes twice stays the one that it is.
            true => {
                let offsets = moments.iter().zip(&clock).map(|(moment, clock)| Some(clock? - moment?));
                cut.iter().zip(offsets).map(|(cut, offset)| Some(cut? - offset?)).collect()
            }
            false => zone.moments(cut, unit)?,
        };
        Ok(Some(ColumnarValue::Array(cast(&cast(&back, &utc)?, times.data_type())?)))
    }

    /// Texts as times of the result's type, without a detour through nanoseconds.
    fn read(&self, args: &ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
        let [text] = args.args.as_slice() else { return Ok(None) };
        if !matches!(text.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
            return Ok(None);
        }
        let texts = text.to_array(args.number_rows)?;
        let (result, exactly) =
            (args.return_field.data_type(), CastOptions { safe: false, ..CastOptions::default() });
        let read = match result {
            DataType::Int64 => {
                let seconds = DataType::Timestamp(TimeUnit::Second, None);
                cast(&cast_with_options(&texts, &seconds, &exactly)?, result)?
            }
            _ => cast_with_options(&texts, result, &exactly)?,
        };
        Ok(Some(ColumnarValue::Array(read)))
    }
}

/// What `date_trunc` cuts within an hour.
const PARTS_OF_HOURS: [&str; 5] = ["hour", "minute", "second", "millisecond", "microsecond"];

/// A call with other times.
fn with_times(args: &ScalarFunctionArgs, times: ArrayRef) -> ScalarFunctionArgs {
    let mut args = args.clone();
    if let Some(field) = args.arg_fields.get_mut(1) {
        *field = Arc::new(field.as_ref().clone().with_data_type(times.data_type().clone()));
    }
    args.return_field =
        Arc::new(args.return_field.as_ref().clone().with_data_type(times.data_type().clone()));
    if let Some(argument) = args.args.get_mut(1) {
        *argument = ColumnarValue::Array(times);
    }
    args
}

impl ScalarUDFImpl for AnyYear {
    of_inner!(name, aliases, documentation);

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, info)
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

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        use DataType::{Interval, Timestamp};
        // An origin of any unit; DataFusion's is of nanoseconds.
        if let [width @ Interval(_), Timestamp(..), Timestamp(unit, _)] = types
            && *unit != TimeUnit::Nanosecond
        {
            let width = match width {
                Interval(IntervalUnit::YearMonth) => Interval(IntervalUnit::MonthDayNano),
                width => width.clone(),
            };
            return Ok([width].into_iter().chain(types.iter().skip(1).cloned()).collect());
        }
        let fields: Vec<FieldRef> =
            types.iter().map(|data_type| Arc::new(Field::new("", data_type.clone(), true))).collect();
        let coerced = fields_with_udf(&fields, &self.inner)?;
        Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let updated = self.inner.inner().with_updated_config(config)?;
        Some(AnyYear::wrapping(updated, self.does))
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(arg_types)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(deprecated, reason = "it is asked for all the same")]
        self.inner.inner().is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.inner().preimage(args, literal, info)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let corrects = KelpieOptions::of(&args.config_options).corrections;
        match self.does {
            Does::Bins => {
                let is_coarse = |time: &ColumnarValue| matches!(time.data_type(), DataType::Timestamp(unit, _) if unit != TimeUnit::Nanosecond);
                let other_origin = args.args.get(2).is_some_and(is_coarse);
                if other_origin && let Some(bins) = bins::bins(&args)? {
                    return Ok(bins);
                }
                let result = self.inner.invoke_with_args(args.clone());
                let Some(times) = args.args.get(1).filter(|times| corrects && is_coarse(times)) else {
                    return result;
                };
                let nulls =
                    |times: &ColumnarValue| times.to_array(args.number_rows).map(|times| times.null_count());
                match &result {
                    Ok(result) if nulls(result)? == nulls(times)? => {}
                    _ => {
                        if let Some(bins) = bins::bins(&args)? {
                            return Ok(bins);
                        }
                    }
                }
                result
            }
            Does::Truncates => {
                if corrects && let Some(cut) = seconds::truncated(&args)? {
                    return Ok(cut);
                }
                let result = self.inner.invoke_with_args(args.clone());
                let of_years = years::years_of(&args).is_some();
                let coarse = |times: &&ColumnarValue| matches!(times.data_type(), DataType::Timestamp(unit, _) if of_years || unit != TimeUnit::Nanosecond);
                let Some(times) = args.args.get(1).filter(coarse).filter(|_| corrects && result.is_err())
                else {
                    return result;
                };
                let times = times.to_array(args.number_rows)?;
                self.of_any_year(&args, &times)?.map_or(result, Ok)
            }
            Does::Reads => {
                let result = self.inner.invoke_with_args(args.clone());
                match &result {
                    Err(_) if corrects => self.read(&args).ok().flatten().map_or(result, Ok),
                    _ => result,
                }
            }
        }
    }
}
