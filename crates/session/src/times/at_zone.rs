//! AT TIME ZONE as SQL has it: of a moment it is what a clock of the zone shows, of what a clock shows the moment.
//!
//! DataFusion casts to a zone in both cases, so that a moment stays one and `x AT TIME ZONE a AT TIME ZONE b` is `x AT TIME ZONE b`.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, TimeUnit};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::{CallRows, Zone, name_and_signature};

/// The function that stands in a statement's place of AT TIME ZONE: of a time and the name of a zone.
pub(crate) const AT_TIME_ZONE: &str = "kelpie_at_time_zone";

/// That function.
pub(super) fn at_time_zone() -> ScalarUDF {
    AtTimeZone { signature: Signature::user_defined(Volatility::Immutable) }.into()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZone {
    signature: Signature,
}

impl ScalarUDFImpl for AtTimeZone {
    name_and_signature!(AT_TIME_ZONE);

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [time, _] = types else { return plan_err!("AT TIME ZONE takes a time and a zone") };
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            DataType::Date32 | DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                DataType::Timestamp(TimeUnit::Nanosecond, None)
            }
            other => return plan_err!("AT TIME ZONE takes a timestamp or a date, not {other}"),
        };
        Ok(vec![time, DataType::Utf8])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of AT TIME ZONE depends on the zone")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [time, _] = args.arg_fields else { return plan_err!("AT TIME ZONE takes a time and a zone") };
        let Some(zone) =
            args.scalar_arguments.get(1).copied().flatten().and_then(|zone| zone.try_as_str().flatten())
        else {
            return plan_err!("AT TIME ZONE takes a zone that is written out, such as 'Europe/Berlin'");
        };
        let data_type = match time.data_type() {
            DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, None),
            DataType::Timestamp(unit, None) => DataType::Timestamp(*unit, Some(zone.into())),
            other => return plan_err!("AT TIME ZONE takes a timestamp or a date, not {other}"),
        };
        // A zone that is none is found now, whatever rows there are.
        cast(
            &ScalarValue::Int64(Some(0)).to_array()?,
            &DataType::Timestamp(TimeUnit::Second, Some(zone.into())),
        )?;
        Ok(Arc::new(Field::new(AT_TIME_ZONE, data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times, ColumnarValue::Scalar(zone)] = args.args.as_slice() else {
            return plan_err!("AT TIME ZONE takes a time and a zone that is written out");
        };
        let Some(zone) = zone.try_as_str().flatten() else {
            return plan_err!("the zone of AT TIME ZONE is NULL");
        };
        let rows = CallRows::of(&args);
        let times = times.to_array(rows.count)?;
        let DataType::Timestamp(unit, of_moment) = times.data_type() else {
            return internal_err!("AT TIME ZONE of {}", times.data_type());
        };
        let ticks = cast(&times, &DataType::Int64)?;
        let (ticks, clock) = (ticks.as_primitive::<Int64Type>(), Zone(zone.into()));
        let made = match of_moment {
            Some(_) => cast(&clock.local(ticks, *unit)?, &DataType::Timestamp(*unit, None))?,
            None => {
                // In UTC first: a cast to a zone would take them for local times.
                let utc = DataType::Timestamp(*unit, Some("+00:00".into()));
                let moments = cast(&clock.moments(ticks, *unit)?, &utc)?;
                cast(&moments, &DataType::Timestamp(*unit, Some(zone.into())))?
            }
        };
        rows.answer(made)
    }
}
