//! Local times of a zone: those that its clocks skip, or show twice, are times too.
//!
//! DataFusion's cast to a zone fails for them. As in other systems, a time that is skipped is read by the clock before the leap, and one
//! that comes twice is the second.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, TimestampSecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, Int64Type, Time32SecondType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::{ScalarValue, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

const DAY_SECONDS: i64 = 86_400;

/// A cast of a local time to a zone whose clocks change, as a function that knows all of its times.
pub(super) fn mended_cast(cast: &Cast, schema: &DFSchema) -> Option<Expr> {
    let DataType::Timestamp(unit, Some(zone)) = cast.field.data_type() else { return None };
    // Others have one offset.
    let changes = zone.contains('/') && !zone.starts_with("Etc/");
    let local = DataType::Timestamp(*unit, None);
    let input = match cast.expr.as_ref() {
        Expr::Literal(text @ (ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_))), _) => {
            // A text may have an offset; what fails has none.
            let fails = || text.cast_to(cast.field.data_type()).is_err();
            Expr::Literal(text.cast_to(&local).ok().filter(|_| changes && fails())?, None)
        }
        expr if changes && matches!(expr.get_type(schema), Ok(DataType::Timestamp(_, None))) => expr.clone(),
        _ => return None,
    };
    let function =
        InZone { signature: Signature::any(1, Volatility::Immutable), unit: *unit, zone: Arc::clone(zone) };
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![input])))
}

/// The moment of a local time in a zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct InZone {
    signature: Signature,
    unit: TimeUnit,
    zone: Arc<str>,
}

impl ScalarUDFImpl for InZone {
    fn name(&self) -> &str {
        "kelpie_in_zone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(times) = args.args.first() else { return Err(exec_datafusion_err!("a time is missing")) };
        let is_scalar = matches!(times, ColumnarValue::Scalar(_));
        let times = times.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let ticks = cast(&cast(&times, &DataType::Timestamp(self.unit, None))?, &DataType::Int64)?;
        let of_second = match self.unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let ticks = ticks.as_primitive::<Int64Type>();
        let seconds: Int64Array =
            ticks.iter().map(|ticks| ticks.map(|ticks| ticks.div_euclid(of_second))).collect();
        let offsets = self.offsets_of_local(&seconds)?;
        let moments: Int64Array = ticks
            .iter()
            .zip(&offsets)
            .map(|(ticks, offset)| ticks?.checked_sub(offset?.checked_mul(of_second)?))
            .collect();
        // Without a zone first: a cast to one would take them for local times.
        let utc = DataType::Timestamp(self.unit, Some("+00:00".into()));
        let moments =
            cast(&cast(&moments, &utc)?, &DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&moments, 0)?),
            false => ColumnarValue::Array(moments),
        })
    }
}

impl InZone {
    /// The offsets, in seconds, by which local times are to be read.
    fn offsets_of_local(&self, local: &Int64Array) -> Result<Int64Array> {
        let moved = |by: &Int64Array, sign: i64| -> Int64Array {
            local.iter().zip(by).map(|(local, by)| Some(local? + sign * by?)).collect()
        };
        let days = Int64Array::from_value(DAY_SECONDS, local.len());
        let (before, after) = (self.offsets(&moved(&days, -1))?, self.offsets(&moved(&days, 1))?);
        let of_before = self.offsets(&moved(&before, -1))?;
        let of_after = self.offsets(&moved(&after, -1))?;
        let choose = |row: usize| {
            if local.is_null(row) {
                return None;
            }
            let (before, after) = (before.value(row), after.value(row));
            let (first, second) = (of_before.value(row) == before, of_after.value(row) == after);
            Some(match (first, second) {
                // The smaller offset is the later moment.
                (true, true) => before.min(after),
                (false, true) => after,
                (true, false) | (false, false) => before,
            })
        };
        Ok((0..local.len()).map(choose).collect())
    }

    /// The zone's offsets at moments, in seconds.
    fn offsets(&self, moments: &Int64Array) -> Result<Int64Array> {
        let values: TimestampSecondArray = moments.iter().collect();
        let values = values.with_timezone(Arc::clone(&self.zone));
        let days = cast(&values, &DataType::Date32)?;
        let times = cast(&values, &DataType::Time32(TimeUnit::Second))?;
        let (days, times) = (days.as_primitive::<Date32Type>(), times.as_primitive::<Time32SecondType>());
        let local =
            days.iter().zip(times).map(|(day, time)| Some(i64::from(day?) * DAY_SECONDS + i64::from(time?)));
        Ok(local.zip(moments).map(|(local, moment)| Some(local? - moment?)).collect())
    }
}
